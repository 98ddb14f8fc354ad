from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction
from hypothesis import given, settings
from hypothesis import strategies as some

from lakefeed.files.parquet import FileTarget, TableWriter
from lakefeed.stores import open_store


def stats_of(path: Path, table: pa.Table, **properties: str) -> dict[str, Any]:
    named = {f"delta.dataSkipping{name}": value for name, value in properties.items()}
    writer = TableWriter(open_store(str(path), {}), FileTarget(table.schema, properties=named))
    for batch in table.to_batches():
        writer.write(batch)
    [file] = writer.close()
    found: dict[str, Any] = json.loads(file.stats, parse_float=Decimal)
    return found


def bounds(path: Path, values: list[Any], kind: pa.DataType) -> tuple[Any, Any, int]:
    stats = stats_of(path, pa.table({"x": pa.array(values, kind)}))
    return stats["minValues"].get("x"), stats["maxValues"].get("x"), stats["nullCount"]["x"]


MOMENT = dt.datetime(2026, 11, 15, 10, 0, 0, 123_456, dt.UTC)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int64(), [5, None, -(2**63), 2**63 - 1], (-(2**63), 2**63 - 1, 1)),
        (pa.int8(), [-1, 3], (-1, 3, 0)),
        (pa.float64(), [0.1, -2.5], (Decimal("-2.5"), Decimal("0.1"), 0)),
        (pa.float64(), [1.0, math.nan, 2.0], (None, None, 0)),
        (pa.float64(), [math.nan], (None, None, 0)),
        (pa.float64(), [1.0, math.inf], (1, None, 0)),
        (pa.float64(), [-math.inf, 1.0, None], (None, 1, 1)),
        (pa.decimal128(38, 18), [Decimal("1.000000000000000001"), Decimal(-3)], None),
        (pa.decimal128(12, 9), [Decimal("0.000000001")], (Decimal("1E-9"), Decimal("1E-9"), 0)),
        (pa.bool_(), [True, None, False], (None, None, 1)),
        (pa.binary(), [b"\x00", b"\xff", None], (None, None, 1)),
        (pa.date32(), [dt.date(2026, 11, 15), dt.date(99, 1, 2)], ("0099-01-02", "2026-11-15", 0)),
        (pa.string(), ["b", "", None], ("", "b", 1)),
        (pa.string(), [None, None], (None, None, 2)),
        (
            pa.timestamp("us", "UTC"),
            [MOMENT, dt.datetime(1, 1, 1, tzinfo=dt.UTC)],
            ("0001-01-01T00:00:00.000000Z", "2026-11-15T10:00:00.123456Z", 0),
        ),
    ],
)
def test_bounds_of_a_type(tmp_path: Path, kind: pa.DataType, values: list[Any], expected: Any) -> None:
    found = bounds(tmp_path, values, kind)

    assert found == (expected or (Decimal(-3), Decimal("1.000000000000000001"), 0))


def test_times_outside_of_what_readers_parse_have_no_bound(tmp_path: Path) -> None:
    far = pa.array([0, 3_700_000], pa.int32()).cast(pa.date32())
    early = pa.array([-(10**17), 0]).cast(pa.timestamp("us", "UTC"))

    stats = stats_of(tmp_path, pa.table({"far": far, "early": early}))

    assert stats["minValues"] == {"far": "1970-01-01"}
    assert stats["maxValues"] == {"early": "1970-01-01T00:00:00.000000Z"}


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        ("x" * 32, "x" * 32, "x" * 32),
        ("x" * 33, "x" * 32, "x" * 32 + "\U0010ffff"),
        ("ü😀" * 20, "ü😀" * 16, "ü😀" * 16 + "\U0010ffff"),
        ("x" * 32 + "\U0010ffff" * 2, "x" * 32, None),
        ("x" * 5_000, None, None),
    ],
)
def test_long_texts_are_cut_so_that_bounds_still_hold(
    tmp_path: Path, value: str, low: str | None, high: str | None
) -> None:
    assert bounds(tmp_path, [value], pa.string()) == (low, high, 0)


def test_structs_have_nested_statistics_and_arrays_and_maps_count_nulls_only(tmp_path: Path) -> None:
    inner = pa.struct([("n", pa.int32()), ("tags", pa.list_(pa.int64()))])
    schema = pa.schema(
        [("meta", inner), ("l", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int64()))]
    )
    rows = [
        {"meta": {"n": 3, "tags": [None, None]}, "l": [], "m": [("k", None)]},
        {"meta": None, "l": None, "m": None},
        {"meta": {"n": None, "tags": None}, "l": [1], "m": []},
    ]

    stats = stats_of(tmp_path, pa.Table.from_pylist(rows, schema=schema))

    assert stats == {
        "numRecords": 3,
        "minValues": {"meta": {"n": 3}},
        "maxValues": {"meta": {"n": 3}},
        "nullCount": {"meta": {"n": 2, "tags": 2}, "l": 1, "m": 1},
    }


def wide_table() -> pa.Table:
    pair = pa.array([{"a": 1, "b.c": 2}])
    return pa.table({"first": pair, **{f"c{i}": [i] for i in range(40)}})


def test_the_first_32_columns_have_statistics(tmp_path: Path) -> None:
    counts = stats_of(tmp_path, wide_table())["nullCount"]

    assert counts["first"] == {"a": 0, "b.c": 0}
    assert list(counts)[1:] == [f"c{i}" for i in range(30)]


@pytest.mark.parametrize(
    ("properties", "names"),
    [
        ({"NumIndexedCols": "0"}, []),
        ({"NumIndexedCols": "3"}, ["first", "c0"]),
        ({"NumIndexedCols": "-1"}, ["first", *(f"c{i}" for i in range(40))]),
        ({"StatsColumns": "c39, `c7`,nope"}, ["c7", "c39"]),
        ({"StatsColumns": "first.`b.c`", "NumIndexedCols": "1"}, ["first"]),
    ],
)
def test_table_properties_choose_the_columns(
    tmp_path: Path, properties: dict[str, str], names: list[str]
) -> None:
    stats = stats_of(tmp_path, wide_table(), **properties)

    assert list(stats["nullCount"]) == list(stats["minValues"]) == names
    assert stats["numRecords"] == 1
    if properties.get("StatsColumns", "").startswith("first"):
        assert stats["nullCount"] == {"first": {"b.c": 0}}


def test_statistics_cover_all_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefeed.files.parquet._ROW_GROUP_BYTES", 1)
    parts = [[5, 6], [None, None], [1, None], [9, 2]]
    table = pa.concat_tables([pa.table({"x": pa.array(part, pa.int64())}) for part in parts])

    stats = stats_of(tmp_path, table)

    assert (stats["minValues"], stats["maxValues"]) == ({"x": 1}, {"x": 9})
    assert (stats["nullCount"], stats["numRecords"]) == ({"x": 3}, 8)


PROPERTY_SCHEMA = pa.schema(
    [
        ("whole", pa.int64()),
        ("real", pa.float64()),
        ("text", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(20, 4)),
        ("nest", pa.struct([("text", pa.string())])),
    ]
)
TEXT = some.text(some.characters(codec="utf-8"), max_size=40) | some.text(
    "x\U0010ffff", min_size=30, max_size=36
)
ROWS = some.lists(
    some.fixed_dictionaries(
        {
            "whole": some.none() | some.integers(-(2**63), 2**63 - 1),
            "real": some.none() | some.floats(),
            "text": some.none() | TEXT,
            "day": some.none() | some.dates(),
            "at": some.none() | some.datetimes(timezones=some.just(dt.UTC)),
            "price": some.none() | some.decimals(-(10**15), 10**15, places=4),
            "nest": some.none() | some.fixed_dictionaries({"text": some.none() | TEXT}),
        }
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_bounds_hold_for_all_rows_and_readers_find_every_row_by_them(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("table")
    data = pa.RecordBatch.from_pylist(rows, schema=PROPERTY_SCHEMA)
    writer = TableWriter(open_store(str(path), {}), FileTarget(PROPERTY_SCHEMA))
    writer.write(data)
    [file] = writer.close()

    table = DeltaTable.create(str(path), Schema.from_arrow(PROPERTY_SCHEMA))
    add = AddAction(file.path, file.size, file.partition_values, 1, True, file.stats)
    table.create_write_transaction([add], "append", table.schema())
    table = DeltaTable(str(path))

    [read] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert read["num_records"] == len(rows)
    for name, values in columns_of(rows).items():
        present = [value for value in values if value is not None]
        assert read[f"null_count.{name}"] == len(values) - len(present)
        low, high = read.get(f"min.{name}"), read.get(f"max.{name}")
        assert low is None or all(low <= value for value in present), name
        assert high is None or all(value <= high for value in present), name
        if any(isinstance(value, float) and math.isnan(value) for value in present):
            assert low is None and high is None
    assert_found_by_filters(path, rows)


def columns_of(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    plain = {name: [row[name] for row in rows] for name in PROPERTY_SCHEMA.names if name != "nest"}
    return plain | {"nest.text": [row["nest"] and row["nest"]["text"] for row in rows]}


def assert_found_by_filters(path: Path, rows: list[dict[str, Any]]) -> None:
    frame = polars.scan_delta(str(path))
    for name in ("whole", "text", "day", "at", "price"):
        value = next((row[name] for row in rows if row[name] is not None), None)
        if value is not None:
            kind = frame.collect_schema()[name]
            found = frame.filter(polars.col(name) == polars.lit(value, kind)).collect()
            assert len(found) == sum(row[name] == value for row in rows), name
