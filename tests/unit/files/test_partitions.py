from __future__ import annotations

import datetime as dt
from decimal import Decimal
from urllib.parse import unquote

import pyarrow as pa
import pytest

from lakefeed.errors import TableError
from lakefeed.files.partitions import directory, split_by_partition, without_partition

TOO_LONG = (
    "expected a text that fits the name of a directory, 255 bytes with that of the column and with special "
    "characters as %XX"
)


def test_rows_are_split_by_value_in_the_order_that_they_had() -> None:
    table = pa.table({"c": ["b", "a", None, "b", "a", ""], "id": [1, 2, 3, 4, 5, 6]})

    parts = {values: part.to_pydict() for values, part in split_by_partition(table, ["c"])}

    assert parts == {("b",): {"id": [1, 4]}, ("a",): {"id": [2, 5]}, (None,): {"id": [3, 6]}}


def test_rows_are_split_by_the_values_of_several_columns() -> None:
    table = pa.table({"c": ["x", "x", "y", None], "id": [1, 2, 3, 4], "n": [1, 2, 1, None]})

    parts = {values: part["id"].to_pylist() for values, part in split_by_partition(table, ["c", "n"])}

    assert parts == {("x", "1"): [1], ("x", "2"): [2], ("y", "1"): [3], (None, None): [4]}


def test_rows_of_one_value_are_not_copied() -> None:
    table = pa.table({"c": ["x"] * 100, "id": list(range(100))})

    [(values, part)] = split_by_partition(table, ["c"])

    assert values == ("x",)
    assert part["id"].chunk(0).buffers()[1].address == table["id"].chunk(0).buffers()[1].address


def test_more_values_than_fit_into_small_codes_are_split_as_well() -> None:
    count = 40_000
    table = pa.table({"c": [f"v{i % count}" for i in range(2 * count)], "id": list(range(2 * count))})

    parts = dict(split_by_partition(table, ["c"]))

    assert len(parts) == count
    assert parts[("v39999",)]["id"].to_pylist() == [39_999, 79_999]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.date32(), dt.date(2026, 11, 5), "2026-11-05"),
        (pa.date32(), dt.date(99, 1, 1), "0099-01-01"),
        (pa.int8(), -3, "-3"),
        (pa.bool_(), True, "true"),
        (pa.bool_(), False, "false"),
        (pa.decimal128(12, 9), Decimal("0.000000100"), "0.000000100"),
        (pa.timestamp("us", "UTC"), dt.datetime(2026, 11, 15, 10, tzinfo=dt.UTC), "2026-11-15T10:00:00Z"),
        (
            pa.timestamp("us", "UTC"),
            dt.datetime(2026, 11, 15, 10, 0, 0, 123_456, dt.UTC),
            "2026-11-15T10:00:00.123456Z",
        ),
        (pa.timestamp("us"), dt.datetime(2026, 11, 15, 10), "2026-11-15 10:00:00"),
        (pa.timestamp("us"), dt.datetime(1, 1, 1, 0, 0, 0, 5), "0001-01-01 00:00:00.000005"),
        (pa.float64(), float("-inf"), "-Infinity"),
        (pa.float64(), float("nan"), "NaN"),
        (pa.binary(), "ü".encode(), "ü"),
        (pa.string(), "u/v ü", "u/v ü"),
        (pa.string(), "", None),
        (pa.string(), None, None),
    ],
)
def test_a_value_is_written_as_the_protocol_has_it(
    kind: pa.DataType, value: object, text: str | None
) -> None:
    table = pa.table({"c": pa.array([value], kind), "id": [1]})

    [(values, _)] = split_by_partition(table, ["c"])

    assert values == (text,)


def test_rows_that_no_partition_can_hold_are_named() -> None:
    schema = pa.schema([pa.field("c", pa.string(), nullable=False), ("d", pa.string()), ("id", pa.int64())])
    rows = pa.record_batch(
        {
            "c": ["", "x", "世" * 90, " " * 84, " " * 85],
            "d": ["", None, "x", "ü" * 150, "x"],
            "id": [1, 2, 3, 4, 5],
        },
        schema=schema,
    )

    found = without_partition(rows, schema, ["c", "d"])

    assert {at: (why.code, why.error) for at, why in found.items()} == {
        0: (
            "missing_value",
            "c: expected string not null, got the empty text, which is null in a partition column",
        ),
        2: ("bad_partition", f"c: {TOO_LONG}, got 272 bytes"),
        3: ("bad_partition", f"d: {TOO_LONG}, got 302 bytes"),
        4: ("bad_partition", f"c: {TOO_LONG}, got 257 bytes"),
    }


def test_a_time_that_no_reader_takes_is_refused() -> None:
    table = pa.table({"day": pa.array([3_700_000], pa.int32()).cast(pa.date32()), "id": [1]})

    with pytest.raises(TableError) as refused:
        list(split_by_partition(table, ["day"]))

    assert str(refused.value) == (
        "partition_by: column day holds a time outside of the years 1 to 9999\n"
        "Correct it at the source, or partition by another column."
    )


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("plain", "c=plain/"),
        (None, "c=__HIVE_DEFAULT_PARTITION__/"),
        ("a b/ü%=#?&'\n", "c=a%20b%2F%C3%BC%25%3D%23%3F%26%27%0A/"),
        ("..", "c=../"),
    ],
)
def test_a_directory_is_named_by_its_value(value: str | None, name: str) -> None:
    assert directory(["c"], (value,)) == name


@pytest.mark.parametrize("value", ["ü" * 200, "世" * 85, "x%" * 80, "a" * 254])
def test_a_value_that_no_directory_can_be_named_by_is_in_one_that_nobody_takes_for_a_value(
    value: str,
) -> None:
    name = directory(["c"], (value,))

    assert len(name.encode()) <= 256
    assert "=" not in name and "%" not in name
    assert name != directory(["c"], (value + "x",))


@pytest.mark.parametrize("value", ["世" * 84, "ü" * 126, "a" * 253, "世界 a/b=" * 14])
def test_a_directory_name_holds_all_of_a_value_that_fits(value: str) -> None:
    name = directory(["c"], (value,))

    assert len(name.encode()) <= 256
    assert unquote(name) == f"c={value}/"


def test_every_partition_column_is_a_directory() -> None:
    assert directory(["a b", "n"], ("x", "1")) == "a%20b=x/n=1/"
    assert directory([], ()) == ""
