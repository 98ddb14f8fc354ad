"""Columns that a writer made meet the schema of a table."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed.columns.column_types import declared_schema, stored, type_text
from lakefeed.formats import Decoded, Rules
from lakefeed.formats.fit.fitter import Fitter
from lakefeed.formats.joining import joined
from lakefeed.formats.json.format import JsonFormat


def fit(columns: dict[str, str], made: pa.Array, **rules: Any) -> Decoded:
    schema = declared_schema(columns)
    found = Fitter(schema, Rules(**rules)).fit(made)
    found.rows.validate(full=True)
    assert found.rows.schema == stored(schema)
    return found


def column(kind: pa.DataType, *values: Any) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.array(values, kind)], ["c"])


def codes(found: Decoded) -> list[tuple[int, str]]:
    return [(one.index, one.code) for one in found.refused]


def errors(found: Decoded) -> list[str]:
    return [one.error for one in found.refused]


NESTED = pa.struct(
    [
        ("a", pa.list_(pa.int32())),
        ("m", pa.struct([("x", pa.string()), ("k", pa.map_(pa.string(), pa.int64()))])),
    ]
)
DAY = date(2026, 11, 15)
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "value", "declared", "expected"),
    [
        (pa.int32(), 5, "long", 5),
        (pa.int64(), -5, "byte", -5),
        (pa.uint64(), 2**63 - 1, "long", 2**63 - 1),
        (pa.int64(), 200, "uint8", 200),
        (pa.int64(), 2**53, "double", float(2**53)),
        (pa.int64(), -(2**63), "double", -float(2**63)),
        (pa.int64(), 2**24, "float", float(2**24)),
        (pa.int64(), 12, "decimal(10,2)", Decimal("12.00")),
        (pa.int64(), 1_700_000_000_123, "timestamp(ms)", datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)),
        (pa.float32(), 1.5, "double", 1.5),
        (pa.float64(), 1.5, "float", 1.5),
        (pa.float64(), 13.0, "long", 13),
        (pa.float64(), -0.0, "byte", 0),
        (pa.float64(), float(2**53 - 1), "long", 2**53 - 1),
        (pa.float32(), float(2**24 - 1), "int", 2**24 - 1),
        (pa.float64(), 1_700_000_000_123.0, "timestamp(ms)", datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)),
        (pa.decimal128(10, 2), Decimal("13.00"), "short", 13),
        (pa.decimal128(38, 14), Decimal(2**63 - 1), "long", 2**63 - 1),
        (pa.decimal256(60, 4), Decimal(-(2**63)), "long", -(2**63)),
        (pa.decimal128(38, 14), Decimal("2305843009213693951998"), "decimal(38,0)", 2305843009213693951998),
        (
            pa.decimal128(10, 0),
            Decimal(1_700_000_000),
            "timestamp(s)",
            datetime(2023, 11, 14, 22, 13, 20, 0, UTC),
        ),
        (pa.timestamp("ns"), datetime(2026, 11, 15), "date", DAY),
        (pa.timestamp("us", "Europe/Berlin"), datetime(2026, 11, 15, tzinfo=UTC), "date", DAY),
        (pa.timestamp("s"), datetime(1969, 12, 31), "date", date(1969, 12, 31)),
        (pa.decimal128(10, 2), Decimal("1.50"), "decimal(38,10)", Decimal("1.5000000000")),
        (pa.decimal256(60, 4), Decimal("1.5000"), "decimal(3,1)", Decimal("1.5")),
        (pa.string(), "a", "string", "a"),
        (pa.dictionary(pa.int32(), pa.string()), "RED", "string", "RED"),
        (pa.string(), "2026-11-15T12:00:00Z", "timestamp", NOON),
        (pa.string(), "2026-11-15", "date", DAY),
        (pa.string(), "1.5", "decimal(3,1)", Decimal("1.5")),
        (pa.binary(), b"\x00\xff", "binary", b"\x00\xff"),
        (pa.binary(2), b"\x00\xff", "binary", b"\x00\xff"),
        (pa.bool_(), True, "boolean", True),
        (pa.date32(), DAY, "date", DAY),
        (pa.date32(), DAY, "timestamp", datetime(2026, 11, 15, tzinfo=UTC)),
        (pa.timestamp("s"), NOON.replace(tzinfo=None), "timestamp", NOON),
        (pa.timestamp("ms", "UTC"), NOON, "timestamp", NOON),
        (pa.timestamp("us", "UTC"), NOON, "timestamp(ms)", NOON),
        (pa.timestamp("ns"), -1, "timestamp", datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
        (pa.null(), None, "struct<a: long>", None),
        (pa.list_(pa.int32()), [1, None], "array<long>", [1, None]),
        (pa.map_(pa.string(), pa.int32()), [("a", 1)], "map<string, double>", [("a", 1.0)]),
        (pa.map_(pa.int32(), pa.int32()), [(7, 1)], "map<string, long>", [("7", 1)]),
    ],
)
def test_a_value_goes_into_every_column_that_holds_it(
    kind: pa.DataType, value: Any, declared: str, expected: Any
) -> None:
    found = fit({"c": declared}, column(kind, value, None))

    assert found.refused == []
    assert found.rows.column("c").to_pylist() == [expected, None]


@pytest.mark.parametrize(
    ("kind", "value", "declared", "code", "error"),
    [
        (pa.int64(), 300, "byte", "out_of_range", "expected byte (-128 to 127), got 300"),
        (
            pa.uint64(),
            2**63,
            "long",
            "out_of_range",
            f"expected long ({-(2**63)} to {2**63 - 1}), got {2**63}",
        ),
        (pa.int32(), -1, "uint8", "out_of_range", "expected uint8 (0 to 255), got -1"),
        (
            pa.int64(),
            2**53 + 1,
            "double",
            "out_of_range",
            "expected double, got 9007199254740993, which it cannot hold exactly",
        ),
        (
            pa.int64(),
            2**63 - 1,
            "double",
            "out_of_range",
            "expected double, got 9223372036854775807, which it cannot hold exactly",
        ),
        (pa.float64(), 0.1, "float", "out_of_range", "expected float, got 0.1, which it cannot hold exactly"),
        (pa.float64(), 12.5, "long", "wrong_type", "expected long, got 12.5"),
        (pa.float64(), 300.0, "byte", "out_of_range", "expected byte (-128 to 127), got 300.0"),
        (pa.float64(), float("nan"), "long", "wrong_type", 'expected long, got double "NaN"'),
        (pa.float64(), float("inf"), "long", "wrong_type", 'expected long, got double "Infinity"'),
        (
            pa.float64(),
            2.0**53,
            "long",
            "out_of_range",
            "expected long, got 9007199254740992.0, which may have been rounded",
        ),
        (
            pa.float64(),
            1e18,
            "long",
            "out_of_range",
            "expected long, got 1e+18, which may have been rounded",
        ),
        (
            pa.float32(),
            2.0**24,
            "long",
            "out_of_range",
            "expected long, got 1.6777216e+07, which may have been rounded",
        ),
        (
            pa.decimal128(38, 0),
            Decimal(2**63),
            "long",
            "out_of_range",
            f"expected long ({-(2**63)} to {2**63 - 1}), got {2**63}",
        ),
        (pa.decimal128(10, 2), Decimal("12.50"), "long", "wrong_type", "expected long, got 12.50"),
        (pa.float64(), 1.5, "decimal(3,1)", "wrong_type", "expected decimal(3,1), got double 1.5"),
        (
            pa.int64(),
            1794776913961,
            "timestamp",
            "bad_timestamp",
            "expected timestamp as RFC 3339 text, got 1794776913961; declare timestamp(ms) for epoch numbers",
        ),
        (
            pa.decimal128(10, 2),
            Decimal("1.25"),
            "decimal(3,1)",
            "bad_decimal",
            "expected decimal(3,1), got 1.25",
        ),
        (
            pa.decimal128(10, 2),
            Decimal(100),
            "decimal(3,1)",
            "out_of_range",
            "expected decimal(3,1), got 100.00",
        ),
        (
            pa.string(),
            "soon",
            "timestamp",
            "bad_timestamp",
            'expected timestamp as RFC 3339 text, got "soon"',
        ),
        (pa.string(), "soon", "date", "bad_date", 'expected date as YYYY-MM-DD, got "soon"'),
        (pa.string(), "1", "long", "wrong_type", 'expected long, got "1"'),
        (pa.string(), "AAAA", "binary", "wrong_type", 'expected binary, got string "AAAA"'),
        (pa.binary(), b"a", "string", "wrong_type", 'expected string, got binary "YQ=="'),
        (pa.bool_(), True, "long", "wrong_type", "expected long, got true"),
        (
            pa.timestamp("ms"),
            NOON.replace(tzinfo=None),
            "date",
            "wrong_type",
            'expected date, got timestamp "2026-11-15T12:00:00.000Z"',
        ),
        (
            pa.timestamp("ms"),
            10**15,
            "timestamp",
            "out_of_range",
            'expected timestamp of the years 1 to 9999 in UTC, got "33658-09-27T01:46:40.000Z"',
        ),
        (pa.list_(pa.int64()), [1], "long", "wrong_type", "expected long, got [1]"),
        (pa.struct([("a", pa.int64())]), {"a": 1}, "string", "wrong_type", 'expected string, got {"a": 1}'),
        (pa.int64(), 1, "array<long>", "wrong_type", "expected array<long>, got 1"),
    ],
)
def test_a_value_that_a_column_cannot_hold_refuses_only_its_payload(
    kind: pa.DataType, value: Any, declared: str, code: str, error: str
) -> None:
    found = fit({"c": declared}, column(kind, None, value, None))

    assert codes(found) == [(1, code)]
    assert errors(found) == [f"c: {error}"]
    assert found.rows.column("c").to_pylist() == [None, None]


def test_places_inside_lists_maps_and_structs_are_named() -> None:
    kind = pa.list_(pa.struct([("tags", pa.map_(pa.string(), pa.list_(pa.int64())))]))
    made = column(kind, [], None, [{"tags": [("x", [1])]}, {"tags": [("x", [1]), ("y", [2, 300])]}])

    found = fit({"c": "array<struct<tags: map<string, array<byte>>>>"}, made)

    assert errors(found) == ["c[1].tags.y[1]: expected byte (-128 to 127), got 300"]


def test_what_must_not_be_null_refuses_the_payloads_where_it_is() -> None:
    kind = pa.struct([("a", pa.int64()), ("l", pa.list_(pa.int64()))])
    made = column(kind, {"a": 1, "l": [1]}, None, {"a": None, "l": []}, {"a": 1, "l": [1, None]})

    found = fit({"c": "struct<a: long not null, l: array<long not null>>"}, made)

    assert errors(found) == [
        "c.a: expected long not null, got null",
        "c.l[1]: expected long not null, got null",
    ]
    assert found.rows.column("c").to_pylist() == [{"a": 1, "l": [1]}, None]


def test_rescue_keeps_what_does_not_fit_and_leaves_the_smallest_field_null() -> None:
    kind = pa.struct([("n", pa.list_(pa.int64())), ("s", pa.list_(pa.struct([("b", pa.int64())])))])
    made = column(kind, {"n": [1, 300], "s": [{"b": 1}, {"b": 999}]}, {"n": [1], "s": []})

    found = fit({"c": "struct<n: array<byte>, s: array<struct<b: byte>>>"}, made, type_change="rescue")

    assert found.refused == []
    assert found.rows.column("c").to_pylist() == [{"n": None, "s": None}, {"n": [1], "s": []}]
    assert found.rescued is not None
    assert found.rescued.to_pylist() == ['{"c":{"n":[1,300],"s":[{"b":1},{"b":999}]}}', None]


def test_rescue_does_not_help_a_column_that_must_not_be_null() -> None:
    found = fit({"c": "byte not null"}, column(pa.int64(), 300, 1), type_change="rescue")

    assert codes(found) == [(0, "out_of_range")]
    assert found.rescued is None


NEW = pa.struct(
    [("known", pa.int64()), ("extra", pa.struct([("at", pa.timestamp("ms")), ("no", pa.null())]))]
)


def test_new_fields_are_proposed_as_columns_of_a_table_also_inside_known_ones() -> None:
    made = pa.array([{"known": 1, "extra": None}, {"known": None, "extra": None}], NEW)
    nested = pa.StructArray.from_arrays([pa.array([[{"a": 1, "b": 2}], []], pa.list_(made_struct()))], ["l"])

    assert described(fit({"known": "long"}, made).unknown) == {"extra": "struct<at: timestamp>"}
    assert described(fit({"l": "array<struct<a: long>>"}, nested).unknown) == {"l": "array<struct<b: int>>"}


def made_struct() -> pa.DataType:
    return pa.struct([("a", pa.int64()), ("b", pa.int32())])


def described(schema: pa.Schema | None) -> dict[str, str] | None:
    return None if schema is None else {field.name: type_text(field.type) for field in schema}


def test_only_new_fields_with_a_value_stop_a_table_that_allows_none() -> None:
    made = pa.array([{"known": 1, "extra": None}], NEW)
    other = pa.array([{"known": 1, "extra": {"at": 1}}], NEW)

    assert fit({"known": "long"}, made, new_column="fail").unknown is None
    assert described(fit({"known": "long"}, other, new_column="fail").unknown) == {
        "extra": "struct<at: timestamp>"
    }


def test_new_fields_are_ignored_rescued_or_refused_by_the_rule() -> None:
    made = pa.array([{"known": 1, "extra": {"at": 1}}, {"known": 2, "extra": None}], NEW)

    ignored = fit({"known": "long"}, made, new_column="ignore")
    rescued = fit({"known": "long"}, made, new_column="rescue")
    refused = fit({"known": "long"}, made, new_column="dead_letter")

    assert (ignored.unknown, ignored.rescued, ignored.rows.num_rows) == (None, None, 2)
    assert rescued.unknown is None and rescued.rescued is not None
    assert rescued.rescued.to_pylist() == ['{"extra":{"at":"1970-01-01T00:00:00.001Z","no":null}}', None]
    assert errors(refused) == [
        'extra: the table has no such column, got {"at": "1970-01-01T00:00:00.001Z", "no": null}'
    ]
    assert refused.unknown is None


def test_dropped_fields_are_as_if_they_were_not_there() -> None:
    made = pa.array([{"known": 1, "extra": {"at": 1}}], NEW)

    found = fit({"known": "long"}, made, new_column="dead_letter", dropped=frozenset({"extra", "known"}))

    assert found.rows.to_pylist() == [{"known": None}]


@pytest.mark.parametrize("rule", ["add", "fail"])
def test_a_name_that_no_table_holds_refuses_payloads_with_a_value_under_it(rule: str) -> None:
    kind = pa.struct([("Known", pa.int64()), ("a b", pa.int64()), ("n", pa.struct([("x=", pa.int64())]))])
    made = pa.array([{"Known": 1}, {"a b": 1}, {"n": {"x=": 1}}, {"n": {"x=": None}}, {"n": None}], kind)

    found = fit({"known": "long"}, made, new_column=rule)

    assert errors(found) == [
        "Known: differs only by case from known; a Delta table can have only one of them",
        "`a b`: a column name may not contain a space, so this new column cannot be added",
        "n.x=: a column name may not contain '=', so this new column cannot be added",
    ]
    assert found.unknown is None


def test_of_new_names_that_differ_only_by_case_a_payload_may_have_one() -> None:
    made = pa.array(
        [{"a": 1, "A": None}, {"a": None, "A": 2}, {"a": 1, "A": 2}],
        pa.struct([("a", pa.int64()), ("A", pa.int64())]),
    )

    found = fit({}, made)

    assert errors(found) == ["A: differs only by case from a; a Delta table can have only one of them"]
    assert described(found.unknown) == {"a": "long", "A": "long"}


def test_a_name_that_the_table_makes_itself_is_refused() -> None:
    found = fit({}, column(pa.int64(), 1, None), taken=frozenset({"c"}))

    assert errors(found) == ["c: Lakefeed itself adds a column of this name to the table"]
    assert found.unknown is None


def test_rescued_values_are_exact_json() -> None:
    kind = pa.struct(
        [
            ("i", pa.uint64()),
            ("d", pa.decimal128(38, 4)),
            ("f", pa.float32()),
            ("nan", pa.float64()),
            ("b", pa.binary()),
            ("t", pa.timestamp("ns")),
            ("day", pa.date32()),
            ("m", pa.map_(pa.string(), pa.list_(pa.bool_()))),
            ('q"', pa.string()),
        ]
    )
    value = {
        "i": 2**64 - 1,
        "d": Decimal("12345678901234567890.5000"),
        "f": 0.1,
        "nan": float("nan"),
        "b": b"\x00\xff",
        "t": -1,
        "day": DAY,
        "m": [("a", [True, None])],
        'q"': 'größe "x"',
    }

    found = fit({}, pa.array([value], kind), new_column="rescue")

    assert found.rescued is not None
    text = found.rescued[0].as_py()
    assert json.loads(text, parse_int=str, parse_float=str) == {
        "i": "18446744073709551615",
        "d": "12345678901234567890.5000",
        "f": "0.1",
        "nan": "NaN",
        "b": "AP8=",
        "t": "1969-12-31T23:59:59.999999999Z",
        "day": "2026-11-15",
        "m": {"a": [True, None]},
        'q"': 'größe "x"',
    }


def test_a_slice_of_a_batch_becomes_the_rows_that_it_holds() -> None:
    made = pa.array([{"a": [n], "m": {"x": str(n), "k": [("y", n)]}} for n in range(5)], NESTED)

    found = fit({"a": "array<long>", "m": "struct<x: decimal(3,1), k: map<string, byte>>"}, made.slice(2, 2))
    within = fit({"a": "array<long>"}, pa.StructArray.from_arrays([made.field("a").slice(3)], ["a"]))

    assert found.rows.column("a").to_pylist() == [[2], [3]]
    assert found.rows.column("m").to_pylist() == [
        {"x": Decimal("2.0"), "k": [("y", 2)]},
        {"x": Decimal("3.0"), "k": [("y", 3)]},
    ]
    assert within.rows.column("a").to_pylist() == [[3], [4]]


def test_payloads_of_several_writers_come_back_in_their_order() -> None:
    fitter = Fitter(declared_schema({"a": "long"}), Rules())
    one = fitter.fit(pa.array([{"a": 1}, {"a": 3}], pa.struct([("a", pa.int32())])), {})
    other = fitter.fit(pa.array([{"a": 0}, {"a": None}], pa.struct([("a", pa.int64())])), {})

    found = joined(4, [([1, 3], one), ([0, 2], other)], {})

    assert found.rows.column("a").to_pylist() == [0, 1, None, 3]


def test_new_fields_inside_lists_and_maps_are_rescued_in_their_place() -> None:
    item = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    kind = pa.struct([("l", pa.list_(item)), ("m", pa.map_(pa.string(), item))])
    made = column(
        kind, {"l": [{"a": 1}, {"a": 2, "b": 3}, None], "m": [("x", {"b": 4}), ("y", {"a": 5})]}, None
    )

    found = fit(
        {"c": "struct<l: array<struct<a: long>>, m: map<string, struct<a: long>>>"}, made, new_column="rescue"
    )

    assert found.rescued is not None
    assert found.rescued.to_pylist() == ['{"c":{"l":[null,{"b":3},null],"m":{"x":{"b":4}}}}', None]


def test_a_list_that_must_not_be_null_is_refused_with_the_place_of_the_misfit() -> None:
    kind = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))]))
    made = column(kind, [{"a": 1, "b": [1]}, {"a": 1, "b": [2, 300]}])

    found = fit({"c": "array<struct<a: byte, b: array<byte>>> not null"}, made, type_change="rescue")

    assert errors(found) == ["c[1].b[1]: expected byte (-128 to 127), got 300"]


@pytest.mark.parametrize("rule", ["fail", "rescue", "dead_letter"])
def test_a_new_field_that_says_nothing_is_no_new_column(rule: str) -> None:
    kind = pa.struct(
        [("l", pa.list_(pa.int64())), ("s", pa.struct([("m", pa.map_(pa.string(), pa.int64()))]))]
    )
    made = pa.array([{"l": [], "s": {"m": []}}, {"l": [None], "s": None}], kind)

    found = fit({}, made, new_column=rule)

    assert (found.refused, found.unknown, found.rescued) == ([], None, None)


LEAVES = st.sampled_from([pa.int64(), pa.string(), pa.bool_()])
NAMES = st.lists(st.sampled_from("abc"), unique=True, max_size=3)


def kinds(leaves: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    """Types of a table or of a writer, over some leaves."""
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(lambda kind: pa.list_(pa.field("element", kind))),
            st.tuples(NAMES.filter(bool), st.lists(inner, min_size=3, max_size=3)).map(
                lambda pair: pa.struct(list(zip(pair[0], pair[1], strict=False)))
            ),
        ),
        max_leaves=4,
    )


def structs(leaves: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.tuples(NAMES, st.lists(kinds(leaves), min_size=3, max_size=3)).map(
        lambda pair: pa.struct(list(zip(pair[0], pair[1], strict=False)))
    )


def values(kind: pa.DataType, least: int = 0) -> st.SearchStrategy[Any]:
    """Values of a type, with so many elements in each list at least."""
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({field.name: values(field.type, least) for field in kind})
    if pa.types.is_list(kind):
        return st.none() | st.lists(values(kind.value_type, least), min_size=least, max_size=2)
    plain = {
        pa.int64(): st.sampled_from([0, 7, 300]),
        pa.string(): st.text(max_size=2),
        pa.bool_(): st.booleans(),
    }
    return st.none() | plain[kind]


def has_list_for_struct(made: pa.DataType, declared: pa.DataType) -> bool:
    """Whether a list meets a struct somewhere: of JSON alone, an empty array is an empty object."""
    types = pa.types
    if types.is_struct(made) and types.is_struct(declared):
        have = {one.name: one.type for one in declared}
        return any(has_list_for_struct(one.type, have.get(one.name, pa.null())) for one in made)
    if types.is_list(made) and types.is_list(declared):
        return has_list_for_struct(made.value_type, declared.value_type)
    return bool(types.is_list(made) and types.is_struct(declared))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_columns_that_a_writer_made_become_what_the_same_values_become_from_json(data: st.DataObject) -> None:
    made = data.draw(structs(LEAVES))
    schema = pa.schema(data.draw(structs(st.sampled_from([pa.int64(), pa.int8(), pa.string(), pa.bool_()]))))
    least = 1 if has_list_for_struct(made, pa.struct(list(schema))) else 0
    rows = data.draw(st.lists(values(made, least).filter(lambda row: row is not None), max_size=4))
    rules = Rules(
        data.draw(st.sampled_from(["ignore", "rescue", "dead_letter"])),
        data.draw(st.sampled_from(["rescue", "dead_letter"])),
        dropped=data.draw(st.sampled_from([frozenset(), frozenset("abc") - set(schema.names)])),
    )

    typed = Fitter(schema, rules).fit(pa.array(rows, made))
    from_json = JsonFormat().decoder(schema, rules).decode([json.dumps(row).encode() for row in rows])

    assert [(one.index, one.code) for one in typed.refused] == [
        (one.index, one.code) for one in from_json.refused
    ]
    assert typed.rows.to_pylist() == from_json.rows.to_pylist()
    assert parsed(typed) == parsed(from_json)


def parsed(found: Decoded) -> list[Any]:
    texts = [] if found.rescued is None else found.rescued.to_pylist()
    return [None if text is None else json.loads(text) for text in texts]
