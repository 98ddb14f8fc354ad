from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from lakefeed.columns.partition_values import value_of, value_text
from lakefeed.errors import TableError

NOON = dt.datetime(2026, 11, 15, 12)
ZONED = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ZONED, "2026-11-15 12:00:00", NOON.replace(tzinfo=dt.UTC)),
        (ZONED, "2026-11-15 12:00:00.000000", NOON.replace(tzinfo=dt.UTC)),
        (ZONED, "2026-11-15T12:00:00.000000Z", NOON.replace(tzinfo=dt.UTC)),
        (ZONED, "2026-11-15T14:00:00+02:00", NOON.replace(tzinfo=dt.UTC)),
        (ZONED, "2026-11-15", dt.datetime(2026, 11, 15, tzinfo=dt.UTC)),
        (pa.timestamp("us"), "2026-11-15 12:00:00", NOON),
        (pa.timestamp("us"), "2026-11-15T12:00:00", NOON),
        (pa.date32(), "0001-01-01", dt.date.min),
        (pa.bool_(), "true", True),
        (pa.int8(), "-128", -128),
        (pa.float32(), "Infinity", float("inf")),
        (pa.decimal128(10, 2), "-0.50", Decimal("-0.50")),
        (pa.binary(), "ü", "ü".encode()),
        (pa.string(), "", None),
        (pa.string(), None, None),
    ],
)
def test_a_text_of_the_log_is_read_whoever_wrote_it(
    kind: pa.DataType, text: str | None, value: object
) -> None:
    assert value_of(text, kind).as_py() == value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ZONED, NOON.replace(tzinfo=dt.UTC)),
        (ZONED, dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
        (pa.timestamp("us"), NOON.replace(microsecond=7)),
        (pa.float64(), 1e-300),
        (pa.float64(), float("-inf")),
        (pa.decimal128(38, 10), Decimal("0.0000000001")),
        (pa.binary(), b"plain"),
    ],
)
def test_what_is_written_is_read_again(kind: pa.DataType, value: object) -> None:
    assert value_of(value_text(value), kind).as_py() == value


def test_a_text_that_is_no_value_of_the_column_is_named() -> None:
    with pytest.raises(
        TableError, match=r"the log has 'banana' as a partition value, which is no timestamp\.\n"
    ):
        value_of("banana", ZONED)


def test_bytes_that_are_no_text_cannot_be_a_partition() -> None:
    with pytest.raises(TableError, match=r"the partition value b'\\xff' is not UTF-8"):
        value_text(b"\xff")
