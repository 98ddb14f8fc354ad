from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from lakefeed.pipeline.options.partition_by import parse_partition_field
from lakefeed.rows.partition import add_partition_columns

TIMES = pa.array(
    [
        dt.datetime(2026, 11, 15, 10, 5, 7, 999_999, dt.UTC),
        None,
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
        dt.datetime(99, 1, 1, tzinfo=dt.UTC),
    ],
    pa.timestamp("us", "UTC"),
)


@pytest.mark.parametrize(
    ("text", "name", "kind", "values"),
    [
        ("year(at)", "at_year", pa.int32(), [2026, None, 1969, 99]),
        ("month(at)", "at_month", pa.string(), ["2026-11", None, "1969-12", "0099-01"]),
        (
            "day(at)",
            "at_day",
            pa.date32(),
            [dt.date(2026, 11, 15), None, dt.date(1969, 12, 31), dt.date(99, 1, 1)],
        ),
        ("hour(at) as h", "h", pa.string(), ["2026-11-15-10", None, "1969-12-31-23", "0099-01-01-00"]),
        ("strftime(at, '%y%j') as x", "x", pa.string(), ["26319", None, "69365", "99001"]),
        (
            "strftime(at, '%d%% %H:%M:%S') as x",
            "x",
            pa.string(),
            ["15% 10:05:07", None, "31% 23:59:59", "01% 00:00:00"],
        ),
    ],
)
def test_a_function_of_a_timestamp_becomes_a_column(
    text: str, name: str, kind: pa.DataType, values: list[object]
) -> None:
    rows = pa.record_batch({"at": TIMES})

    found = add_partition_columns(rows, [parse_partition_field(text)])

    assert found.schema.names == ["at", name]
    assert found.schema.field(name).type == kind
    assert found.column(name).to_pylist() == values


def test_a_function_of_a_date_becomes_a_column() -> None:
    rows = pa.record_batch({"born": pa.array([dt.date(1961, 4, 12), None])})
    fields = [parse_partition_field(text) for text in ("year(born)", "month(born)", "day(born)")]

    found = add_partition_columns(rows, fields)

    assert found.to_pylist()[0] == {
        "born": dt.date(1961, 4, 12),
        "born_year": 1961,
        "born_month": "1961-04",
        "born_day": dt.date(1961, 4, 12),
    }
    assert found.to_pylist()[1] == {"born": None, "born_year": None, "born_month": None, "born_day": None}


def test_a_column_stays_as_it_is_and_may_be_repeated_under_another_name() -> None:
    rows = pa.record_batch({"country": ["FI", "NO"], "id": [1, 2]})

    same = add_partition_columns(rows, [parse_partition_field("country")])
    named = add_partition_columns(rows, [parse_partition_field("country as land")])

    assert same.equals(rows)
    assert named.column("land").to_pylist() == ["FI", "NO"]


def test_no_rows_get_typed_columns_as_well() -> None:
    rows = pa.record_batch({"at": TIMES}).slice(0, 0)

    found = add_partition_columns(
        rows, [parse_partition_field("month(at)"), parse_partition_field("day(at)")]
    )

    assert found.schema.types[1:] == [pa.string(), pa.date32()]
    assert found.num_rows == 0
