from __future__ import annotations

import pyarrow as pa
import pytest

from lakefeed.columns.column_types import declared_schema
from lakefeed.errors import TableError
from lakefeed.pipeline.options.partition_by import (
    PartitionField,
    check_partitioning,
    parse_partition_field,
    partition_problems,
)

SCHEMA = declared_schema(
    {
        "country": "string",
        "event_time": "timestamp",
        "sent": "timestamp(ms)",
        "born": "date",
        "price": "double",
    }
)


@pytest.mark.parametrize(
    ("text", "column", "function", "pattern", "name"),
    [
        ("country", "country", None, None, "country"),
        ("country as land", "country", None, None, "land"),
        ("day(event_time)", "event_time", "day", None, "event_time_day"),
        ("YEAR( event_time ) AS y", "event_time", "year", None, "y"),
        ("strftime(event_time, '%Y/%m/%d')", "event_time", "strftime", "%Y/%m/%d", "event_time_strftime"),
        ('strftime(event_time, "%Y, %m") as ym', "event_time", "strftime", "%Y, %m", "ym"),
    ],
)
def test_an_entry_is_a_column_or_a_function_of_one(
    text: str, column: str, function: str | None, pattern: str | None, name: str
) -> None:
    assert parse_partition_field(text) == PartitionField(text, column, function, pattern, name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a column or a function such as day(event_time), got ''"),
        ("day(", "expected a column or a function such as day(event_time), got 'day('"),
        ("a b", "expected a column or a function such as day(event_time), got 'a b'"),
        ("dya(t)", "unknown function 'dya', did you mean 'day'?"),
        ("bucket(t)", "unknown function 'bucket'; known are year, month, day, hour and strftime"),
        ("day(t, 'x')", "day takes only a column, got 'x' as well"),
        ("strftime(t)", "strftime needs a pattern, such as strftime(t, '%Y-%m')"),
        ("strftime(t, 'all')", "the pattern 'all' is the same for every row; write one such as '%Y-%m'"),
        ("day(t) as a=b", "a column name may not contain '=', got 'a=b'"),
    ],
)
def test_an_entry_that_cannot_be_read_says_why(text: str, message: str) -> None:
    with pytest.raises(ValueError) as refusal:
        parse_partition_field(text)

    assert str(refusal.value) == message


def test_patterns_that_depend_on_the_locale_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown '%B' in the pattern '%B'; known are %Y"):
        parse_partition_field("strftime(t, '%B')")


def test_partition_columns_have_the_documented_types() -> None:
    types = {
        text: parse_partition_field(text).arrow_type(pa.string())
        for text in ("c", "year(c)", "month(c)", "day(c)", "hour(c)", "strftime(c, '%Y')")
    }

    assert list(types.values()) == [
        pa.string(),
        pa.int32(),
        pa.string(),
        pa.date32(),
        pa.string(),
        pa.string(),
    ]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (["country", "day(event_time)", "month(sent)", "year(born)"], []),
        (["contry"], ["the table has no column 'contry', did you mean 'country'?"]),
        (["day(country)"], ["day needs a timestamp or date column, 'country' is string"]),
        (["hour(born)"], ["hour needs a timestamp column, 'born' is date"]),
        (["price"], ["a table cannot be partitioned by a column of type double"]),
        (
            ["country", "country"],
            ["'country' is a partition column already; give this one a name: country as NAME"],
        ),
        (
            ["day(born) as Country"],
            ["the table has a column 'Country' already; give this one a name: day(born) as Country as NAME"],
        ),
    ],
)
def test_entries_must_fit_the_schema(entries: list[str], expected: list[str]) -> None:
    fields = [parse_partition_field(text) for text in entries]

    assert [message for _, message in partition_problems(fields, SCHEMA)] == expected


def test_at_least_one_column_is_left_for_the_files() -> None:
    schema = declared_schema({"a": "string", "b": "long"})

    with pytest.raises(TableError, match="every column is a partition column"):
        check_partitioning([parse_partition_field("a"), parse_partition_field("b")], schema)


def test_a_table_whose_schema_was_inferred_is_checked_when_it_is_created() -> None:
    fields = [parse_partition_field("day(price)")]

    with pytest.raises(TableError) as refusal:
        check_partitioning(fields, SCHEMA)

    expected = "partition_by: day(price): day needs a timestamp or date column, 'price' is double"
    assert str(refusal.value) == expected
