from __future__ import annotations

import pytest

from lakefeed.columns.column_types import declared_schema
from lakefeed.events import Refused
from lakefeed.formats.json.format import CODES, JsonFormat

RFC_3339 = "v: expected timestamp as RFC 3339 text, got "


def refusal(columns: dict[str, str], payload: bytes | None) -> tuple[str, str, str]:
    good = b'{"known": 1}'
    decoded = (
        JsonFormat().decoder(declared_schema({"known": "long", **columns})).decode([good, payload, good])
    )
    assert decoded.rows.num_rows == 2
    [refused] = decoded.refused
    assert refused.index == 1
    return refused.stage, refused.code, refused.error


def value_refusal(kind: str, text: str) -> tuple[str, str]:
    stage, code, error = refusal({"v": kind}, f'{{"v": {text}}}'.encode())
    assert stage == "schema"
    return code, error


@pytest.mark.parametrize(
    ("payload", "code", "error"),
    [
        (None, "null_payload", "the event has no payload"),
        (b"", "empty_payload", "the payload is empty"),
        (b" \n", "bad_json", "expected an object, got only white space"),
        (b'{"known": 1, "s": "abc', "bad_json", "line 1 column 19: unterminated string"),
        (b'{"known": 1', "bad_json", "line 1 column 12: expected ',' or a closing bracket"),
        (b'{\n"known": }', "bad_json", "line 2 column 10: expected a value"),
        (b'{"known": 1} x', "bad_json", "line 1 column 14: unexpected text after the object"),
        (
            b'{"known": 1},',
            "bad_json",
            "line 1 column 13: a comma after the object; leave it out, or put [ and ] around all objects",
        ),
        (b'{"known": 1}{"known": 2}', "bad_json", "line 1 column 13: unexpected text after the object"),
        (b'{"known": NaN}', "bad_json", "NaN is not JSON; expected a number or null"),
        (b'{"known": 01}', "bad_json", "line 1 column 12: expected ',' or a closing bracket"),
        (b'\xef\xbb\xbf{"known": 1}', "bad_json", "line 1 column 1: byte order mark before the object"),
        (b'{"s": "\\ud800"}', "bad_json", 's: half a surrogate pair in "\\ud800"'),
        (b'{"s": "a\nb"}', "bad_json", "line 1 column 9: control character in a string"),
        (b'{"s": "a\xffb"}', "not_utf8", "byte 9: 0xff is not UTF-8"),
        (b'{"s\xff": "a"}', "not_utf8", "byte 4: 0xff is not UTF-8"),
        (b"null", "not_an_object", "expected an object, got null"),
        (b'[{"known": 1}]', "not_an_object", 'expected an object, got [{"known": 1}]'),
        (b'{"known": 1, "known": 1}', "duplicate_key", "known: the key appears twice in one object"),
        (b'{"new": [{"a": 1, "a": 2}]}', "duplicate_key", "new[0].a: the key appears twice in one object"),
        (b"[" * 100_000, "too_deep", "nested more than 100 levels deep"),
        (b'{"new":' + b"[" * 100 + b"]" * 100 + b"}", "too_deep", "nested more than 100 levels deep"),
    ],
)
def test_what_is_not_one_json_object_is_refused_as_such(payload: bytes | None, code: str, error: str) -> None:
    assert refusal({"s": "string"}, payload) == ("decode", code, error)


@pytest.mark.parametrize(
    "payload", [b'{"known": 1}, "q": {}', b'{"known": 1}}{"r": {}', b'{}, "r": {}', b'{}}\n{"r":{}', b"{}},{"]
)
def test_no_payload_breaks_out_of_its_row(payload: bytes) -> None:
    assert refusal({}, payload)[1] == "bad_json"


def test_two_payloads_that_are_one_object_together_are_both_refused() -> None:
    decoded = (
        JsonFormat()
        .decoder(declared_schema({"a": "long"}))
        .decode([b'{"a": 1}}{"r": {"a": 2}', b'{"a": 3', b"}"])
    )

    assert [each.code for each in decoded.refused] == ["bad_json"] * 3


@pytest.mark.parametrize(
    ("kind", "text", "code", "error"),
    [
        ("long", '"abc"', "wrong_type", 'v: expected long, got "abc"'),
        ("long", "1.5", "wrong_type", "v: expected long, got 1.5"),
        ("long", "1e-1", "wrong_type", "v: expected long, got 1e-1"),
        ("long", "1e19", "out_of_range", "v: expected long, got 1e19, which may have been rounded"),
        ("long", "1e16", "out_of_range", "v: expected long, got 1e16, which may have been rounded"),
        (
            "long",
            "9007199254740992e0",
            "out_of_range",
            "v: expected long, got 9007199254740992e0, which may have been rounded",
        ),
        ("long", "1e400", "out_of_range", "v: expected long, got 1e400"),
        ("byte", "300.0", "out_of_range", "v: expected byte (-128 to 127), got 300.0"),
        ("long", "true", "wrong_type", "v: expected long, got true"),
        (
            "long",
            "9223372036854775808",
            "out_of_range",
            f"v: expected long ({-(2**63)} to {2**63 - 1}), got 9223372036854775808",
        ),
        ("uint8", "-1", "out_of_range", "v: expected uint8 (0 to 255), got -1"),
        (
            "uint64",
            "18446744073709551615",
            "out_of_range",
            f"v: expected uint64 (0 to {2**63 - 1}), got 18446744073709551615",
        ),
        ("double", "1e400", "out_of_range", "v: expected double, got 1e400"),
        ("float", "1e39", "out_of_range", "v: expected float, got 1e39"),
        ("string", "5", "wrong_type", "v: expected string, got 5"),
        ("string", '{"a": [1]}', "wrong_type", 'v: expected string, got {"a": [1]}'),
        ("decimal(10,2)", '"abc"', "bad_decimal", 'v: expected decimal(10,2), got "abc"'),
        ("decimal(10,2)", "1.005", "bad_decimal", "v: expected decimal(10,2), got 1.005"),
        ("decimal(10,2)", "100000000", "out_of_range", "v: expected decimal(10,2), got 100000000"),
        ("binary", '"YQ"', "bad_base64", 'v: expected binary as base64 text, got "YQ"'),
        ("date", '"2023-02-29"', "bad_date", 'v: expected date as YYYY-MM-DD, got "2023-02-29"'),
        (
            "date",
            '"2024-03-01T00:00:01Z"',
            "bad_date",
            'v: expected date as YYYY-MM-DD, got "2024-03-01T00:00:01Z"',
        ),
        (
            "date",
            '"2024-03-01T00:00:00+02:00"',
            "bad_date",
            'v: expected date as YYYY-MM-DD, got "2024-03-01T00:00:00+02:00"',
        ),
        ("date", "19000", "wrong_type", "v: expected date as YYYY-MM-DD, got 19000"),
        ("timestamp", '"yesterday"', "bad_timestamp", RFC_3339 + '"yesterday"'),
        ("timestamp", '"2024-03-01T12:00:60Z"', "bad_timestamp", RFC_3339 + '"2024-03-01T12:00:60Z"'),
        ("timestamp", '"2024-03-01T12:30Z"', "bad_timestamp", RFC_3339 + '"2024-03-01T12:30Z"'),
        ("timestamp", '"0000-06-01T00:00:00Z"', "bad_timestamp", RFC_3339 + '"0000-06-01T00:00:00Z"'),
        (
            "timestamp",
            '"9999-12-31T23:59:59-01:00"',
            "out_of_range",
            'v: expected timestamp of the years 1 to 9999 in UTC, got "9999-12-31T23:59:59-01:00"',
        ),
        (
            "timestamp",
            "1700000000000",
            "bad_timestamp",
            RFC_3339 + "1700000000000; declare timestamp(ms) for epoch numbers",
        ),
        ("timestamp(ms)", '"2024-03-01"', "wrong_type", 'v: expected timestamp(ms), got "2024-03-01"'),
        ("timestamp(s)", "253402300800", "out_of_range", "v: expected timestamp(s), got 253402300800"),
        ("array<string>", '["a", "b", "c", 5]', "wrong_type", "v[3]: expected string, got 5"),
        ("array<long not null>", "[1, null]", "missing_value", "v[1]: expected long not null, got null"),
        ("struct<a: struct<b: int>>", '{"a": {"b": "x"}}', "wrong_type", 'v.a.b: expected int, got "x"'),
        ("struct<a: int not null>", "{}", "missing_value", "v.a: expected int not null, got null"),
        ("map<string, long>", '{"x y": "1"}', "wrong_type", 'v.`x y`: expected long, got "1"'),
        ("map<string, long>", "[null]", "wrong_type", "v: expected map<string, long>, got [null]"),
        ("struct<a: int>", "[null]", "wrong_type", "v: expected struct<a: int>, got [null]"),
        ("struct<a: int>", "[{}]", "wrong_type", "v: expected struct<a: int>, got [{}]"),
        ("array<int>", '{"0": 1}', "wrong_type", 'v: expected array<int>, got {"0": 1}'),
        ("struct<a: int not null>", "[]", "missing_value", "v.a: expected int not null, got null"),
        ("long", "[]", "wrong_type", "v: expected long, got []"),
        ("string", "{}", "wrong_type", "v: expected string, got {}"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_path(
    kind: str, text: str, code: str, error: str
) -> None:
    assert value_refusal(kind, text) == (code, error)


def test_a_missing_value_of_a_column_that_is_not_null_is_refused() -> None:
    decoded = JsonFormat().decoder(declared_schema({"id": "string not null"})).decode([b"{}", b'{"id": "a"}'])

    assert decoded.refused == [
        Refused(0, "schema", "missing_value", "id: expected string not null, got null")
    ]
    assert decoded.rows.to_pylist() == [{"id": "a"}]


def test_a_long_value_is_shortened_in_the_message() -> None:
    code, error = value_refusal("long", '"' + "x" * 5_000_000 + '"')

    assert code == "wrong_type"
    assert error == 'v: expected long, got "' + "x" * 76 + "..."


def test_huge_numbers_are_refused_in_short() -> None:
    digits = "9" * 1_000_000

    for kind in ("long", "double", "decimal(38,0)", "timestamp(ns)", "timestamp"):
        code, error = value_refusal(kind, digits)

        assert code in ("out_of_range", "bad_timestamp")
        assert len(error) < 200


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (
            b'{"user id": 1}',
            "`user id`: a column name may not contain a space, so this new column cannot be added",
        ),
        (b'{"": 1}', "``: a column needs a name, so this new column cannot be added"),
        (b'{"Known": 1}', "Known: differs only by case from known; a Delta table can have only one of them"),
        (
            b'{"new": 1, "NEW": 2}',
            "NEW: differs only by case from new; a Delta table can have only one of them",
        ),
        (
            b'{"new": [{"a=b": 1}]}',
            "new[0].a=b: a column name may not contain '=', so this new column cannot be added",
        ),
        (
            b'{"meta": {"IP": 1}}',
            "meta.IP: differs only by case from ip; a Delta table can have only one of them",
        ),
    ],
)
def test_a_new_column_that_delta_cannot_hold_is_refused(payload: bytes, error: str) -> None:
    assert refusal({"meta": "struct<ip: string>"}, payload) == ("schema", "bad_name", error)


def test_the_keys_of_a_map_may_be_any_text() -> None:
    decoded = (
        JsonFormat()
        .decoder(declared_schema({"m": "map<string, long>"}))
        .decode([b'{"m": {"a b": 1, "A": 2, "a": 3}}'])
    )

    assert decoded.refused == []
    assert decoded.unknown is None


def test_every_code_is_explained() -> None:
    outside = "bad_compression too_large bad_framing unknown_schema bad_schema"
    decode = f"null_payload {outside} empty_payload not_utf8 bad_json not_an_object duplicate_key too_deep"
    decode += " bad_transform"
    schema = "wrong_type out_of_range bad_timestamp bad_date bad_decimal bad_base64 missing_value bad_name"
    rules = "new_column"

    assert " ".join(CODES) == f"{decode} {schema} {rules}"
