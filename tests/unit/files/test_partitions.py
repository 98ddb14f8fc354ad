from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from lakefeed.errors import TableError
from lakefeed.files.partitions import directory, split_by_partition


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


def test_a_directory_name_stays_within_what_a_disk_takes() -> None:
    long, other = directory(["c"], ("ü" * 200,)), directory(["c"], ("ü" * 201,))

    assert len(long) == 256
    assert long != other
    assert long.startswith("c=%C3%BC%C3%BC")


def test_every_partition_column_is_a_directory() -> None:
    assert directory(["a b", "n"], ("x", "1")) == "a%20b=x/n=1/"
    assert directory([], ()) == ""
