"""What the plain formats make of a payload, value by value."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from lakefeed.formats import Format
from lakefeed.formats.bytes import BytesFormat
from lakefeed.formats.csv.format import CsvFormat
from lakefeed.formats.event import EventFormat
from lakefeed.formats.int64 import Int64Format
from lakefeed.formats.text import TextFormat
from support.decoding import refusal, rows


def unknown(form: Format) -> dict[str, pa.DataType]:
    good = {"int64": bytes(8), "event": b"{}", "csv": b"1,2"}.get(form.type, b"x")
    decoded = form.decoder(pa.schema([])).decode([good])
    assert decoded.unknown is not None
    return {field.name: field.type for field in decoded.unknown}


def test_the_columns_of_each_format() -> None:
    assert unknown(TextFormat()) == {"data": pa.string()}
    assert unknown(Int64Format()) == {"value": pa.int64()}
    assert unknown(BytesFormat()) == {"data": pa.string(), "size": pa.int64()}
    assert unknown(EventFormat()) == {
        "data": pa.string(),
        "event_type": pa.string(),
        "timestamp": pa.timestamp("us", "UTC"),
        "stream": pa.string(),
    }
    assert unknown(CsvFormat(columns=("a", "b"))) == {"a": pa.string(), "b": pa.string()}


def test_text_is_kept_as_it_is() -> None:
    found = rows(TextFormat(), {"data": "string"}, b"System started", b"", b" a\n", "naïve 🦆".encode())

    assert [row["data"] for row in found] == ["System started", "", " a\n", "naïve 🦆"]


def test_text_that_is_not_utf8_is_refused_with_its_byte() -> None:
    assert refusal(TextFormat(), {"data": "string"}, b"caf\xe9") == (
        "not_utf8",
        "byte 4: 0xe9 is not UTF-8",
    )
    assert refusal(TextFormat(), {"data": "long"}, b"5") == (
        "wrong_type",
        'data: expected long, got "5"',
    )


def test_int64_is_signed_and_big_endian() -> None:
    numbers = [42, -1, 2**63 - 1, -(2**63)]

    found = rows(Int64Format(), {"value": "long"}, *(n.to_bytes(8, "big", signed=True) for n in numbers))

    assert [row["value"] for row in found] == numbers


def test_int64_fits_into_other_whole_numbers_and_into_times_or_is_out_of_range() -> None:
    moment, large = (1_700_000_000_000).to_bytes(8, "big"), (300).to_bytes(8, "big")

    [row] = rows(Int64Format(), {"value": "timestamp(ms)"}, moment)

    assert row["value"] == dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)
    assert rows(Int64Format(), {"value": "short"}, large) == [{"value": 300}]
    assert refusal(Int64Format(), {"value": "byte"}, large) == (
        "out_of_range",
        "value: expected byte (-128 to 127), got 300",
    )


def test_int64_of_another_length_is_refused() -> None:
    assert refusal(Int64Format(), {"value": "long"}, b"42") == ("bad_length", "expected 8 bytes, got 2")


def test_bytes_are_base64_with_their_number_or_themselves() -> None:
    payloads = b"\x01\x02\x03", b"", b"\xff"

    encoded = rows(BytesFormat(), {"data": "string", "size": "long"}, *payloads)
    raw = rows(BytesFormat(), {"data": "binary not null", "size": "int"}, *payloads)

    assert [tuple(row.values()) for row in encoded] == [("AQID", 3), ("", 0), ("/w==", 1)]
    assert [tuple(row.values()) for row in raw] == [(b"\x01\x02\x03", 3), (b"", 0), (b"\xff", 1)]


EVENT = {"data": "string", "event_type": "string", "timestamp": "timestamp", "stream": "string"}


def test_an_event_keeps_its_text_and_shows_three_of_its_keys() -> None:
    text = '{"id":1, "event_type":"insert","timestamp":"2024-01-15T12:30:00+02:00","stream":"users"}'

    [row] = rows(EventFormat(), EVENT, text.encode())

    assert row == {
        "data": text,
        "event_type": "insert",
        "timestamp": dt.datetime(2024, 1, 15, 10, 30, tzinfo=dt.UTC),
        "stream": "users",
    }


@pytest.mark.parametrize(
    "text", ["{}", "[1, 2]", "null", '"a"', "1e400", '{"stream": null}', ' {"a b=": 1} ']
)
def test_an_event_may_be_any_json_and_lack_any_key(text: str) -> None:
    [row] = rows(EventFormat(), EVENT, text.encode())

    assert row == {"data": text, "event_type": None, "timestamp": None, "stream": None}


def test_the_time_of_an_event_may_be_a_number_of_a_declared_unit() -> None:
    columns = {"timestamp": "timestamp(ms)", "data": "string"}

    found = rows(EventFormat(), columns, b'{"timestamp": 1705314600000}', b'{"timestamp": 0, "x": 1e400}')

    assert [row["timestamp"].isoformat() for row in found] == [
        "2024-01-15T10:30:00+00:00",
        "1970-01-01T00:00:00+00:00",
    ]


@pytest.mark.parametrize(
    ("payload", "code", "error"),
    [
        (b"", "empty_payload", "the payload is empty"),
        (b"hello", "bad_json", "line 1 column 1: expected a value"),
        (b'{"a": NaN}', "bad_json", "NaN is not JSON; expected a number or null"),
        (b'{"a": "\xff"}', "not_utf8", "byte 8: 0xff is not UTF-8"),
        (b"[" * 101 + b"]" * 101, "too_deep", "nested more than 100 levels deep"),
        (b'{"event_type": 7}', "wrong_type", "event_type: expected string, got 7"),
        (b'{"stream": {"a": 1}}', "wrong_type", 'stream: expected string, got {"a": 1}'),
        (
            b'{"timestamp": "yesterday"}',
            "bad_timestamp",
            'timestamp: expected timestamp as RFC 3339 text, got "yesterday"',
        ),
        (
            b'{"timestamp": 1705314600000}',
            "bad_timestamp",
            "timestamp: expected timestamp as RFC 3339 text, got 1705314600000; "
            "declare timestamp(ms) for epoch numbers",
        ),
        (
            b'{"stream": "a", "stream": "b"}',
            "duplicate_key",
            "stream: the key appears twice in one object",
        ),
        (
            b'{"stream": "a", "str\\u0065am": "b"}',
            "duplicate_key",
            "stream: the key appears twice in one object",
        ),
    ],
)
def test_an_event_that_is_refused(payload: bytes, code: str, error: str) -> None:
    assert refusal(EventFormat(), EVENT, payload) == (code, error)


def test_a_key_that_is_twice_in_different_objects_of_an_event_is_fine() -> None:
    [row] = rows(EventFormat(), EVENT, b'{"after": {"stream": "inner"}, "stream": "outer", "a": 1, "a": 2}')

    assert row["stream"] == "outer"


def test_an_event_must_have_what_is_declared_not_null() -> None:
    columns = {**EVENT, "event_type": "string not null"}

    assert refusal(EventFormat(), columns, b"{}") == (
        "missing_value",
        "event_type: expected string not null, got null",
    )
