from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from lakefeed.events import ORIGIN, Refused
from lakefeed.rows.dead_letter import DEAD_LETTER_SCHEMA, dead_letters, preview


def test_a_dead_letter_keeps_the_bytes_the_origin_and_the_reason() -> None:
    at = dt.datetime(2026, 11, 15, 10, tzinfo=dt.UTC)
    refused = [
        Refused(4, "decode", "bad_json", "expected a value at byte 3"),
        Refused(9, "schema", "missing", "lone \ud800 surrogate"),
    ]
    origin = pa.RecordBatch.from_pylist(
        [
            {"stream": "t", "partition": 1, "offset": 14, "timestamp": at, "key": b"k", "headers": None},
            {"stream": "t", "partition": 1, "offset": 19, "headers": [{"key": "h", "value": None}]},
        ],
        schema=ORIGIN,
    )

    letters = dead_letters("shop", "clicks", "events", refused, origin, [b'{"a\xff', None], at)

    assert letters.schema == DEAD_LETTER_SCHEMA
    assert letters.to_pylist()[0] == {
        "dead_at": at,
        "pipeline": "shop",
        "source": "clicks",
        "table": "events",
        "stage": "decode",
        "code": "bad_json",
        "error": "expected a value at byte 3",
        "topic": "t",
        "partition": 1,
        "offset": 14,
        "timestamp": at,
        "key": b"k",
        "headers": None,
        "payload": b'{"a\xff',
    }
    assert letters.column("error")[1].as_py() == "lone ? surrogate"
    assert letters.column("payload")[1].as_py() is None
    assert letters.column("headers")[1].as_py() == [{"key": "h", "value": None}]


def test_a_long_reason_is_kept_with_its_beginning_and_its_end() -> None:
    at = dt.datetime(2026, 11, 15, 10, tzinfo=dt.UTC)
    origin = pa.RecordBatch.from_pylist([{"stream": "t", "offset": 1}], schema=ORIGIN)
    refused = [Refused(0, "select", "CAST_INVALID_INPUT", f"The value '{'9' * 1_000_000}' is malformed.")]

    (error,) = dead_letters("shop", "s", "t", refused, origin, [b"x"], at).column("error").to_pylist()

    assert len(error) < 5000
    assert error.startswith("The value '999") and error.endswith("999' is malformed.")
    assert " ... (996,026 characters left out) ... " in error


def test_the_dead_letter_table_has_the_columns_that_are_documented() -> None:
    assert DEAD_LETTER_SCHEMA.names == [
        "dead_at",
        "pipeline",
        "source",
        "table",
        "stage",
        "code",
        "error",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "key",
        "headers",
        "payload",
    ]
    assert DEAD_LETTER_SCHEMA.field("partition").type == pa.int32()
    assert DEAD_LETTER_SCHEMA.field("dead_at").type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (None, "(no payload)"),
        (b"", ""),
        (b'{"a": 1}\n', '{"a": 1}\n'),
        ("größe".encode(), "größe"),
        (b"a\x00b", "a\ufffdb"),
        (b"\x00\xff\x10", "00 ff 10"),
        (b"x" * 2500, "x" * 2000 + "\n(2,000 of 2,500 bytes)"),
        (b"x" + "ö".encode() * 1500, "x" + "ö" * 999 + "\n(2,000 of 3,001 bytes)"),
        (b"\xff" * 501, " ".join(["ff"] * 500) + "\n(500 of 501 bytes)"),
    ],
)
def test_text_is_shown_as_text_and_bytes_as_numbers(payload: bytes | None, text: str) -> None:
    assert preview(payload) == text
