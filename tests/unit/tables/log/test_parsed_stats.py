"""Statistics that a checkpoint has as columns only are those that it would have as text."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed.tables.data_files import data_files
from support.delta_tables import forget_entries, open_any
from support.vectors import allow, mark_everywhere

NOON = dt.datetime(2026, 11, 1, 12, 0, 0, 123456, dt.UTC)
LARGE = Decimal("123456789012345678901234567.89")
"""More digits than a float has."""
SMALL = Decimal(f"-{LARGE}")
ROWS = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int64()),
        "name": ["ä", "b", "c"],
        "day": pa.array([dt.date(2026, 11, 1)] * 3),
        "at": pa.array([NOON] * 3, pa.timestamp("us", "UTC")),
        "price": pa.array([LARGE, SMALL, None], pa.decimal128(38, 2)),
        "share": [0.5, 1.5, None],
        "inner": pa.array([{"n": 1}, {"n": 2}, None], pa.struct([("n", pa.int64())])),
    }
)
BOUNDS = pa.struct([*ROWS.schema])
COUNTS = pa.struct(
    [(name, pa.int64()) for name in ROWS.schema.names[:-1]] + [("inner", pa.struct([("n", pa.int64())]))]
)
PARSED = pa.struct(
    [("numRecords", pa.int64()), ("minValues", BOUNDS), ("maxValues", BOUNDS), ("nullCount", COUNTS)]
)
LOW = {"id": 1, "name": "b", "day": dt.date(2026, 11, 1), "at": NOON, "price": SMALL, "share": 0.5}
HIGH = {"id": 2, "name": "ä", "day": dt.date(2026, 11, 1), "at": NOON, "price": LARGE, "share": 1.5}
NULLS = {"id": 1, "name": 0, "day": 0, "at": 0, "price": 1, "share": 1, "inner": {"n": 1}}
STATS = {
    "numRecords": 3,
    "minValues": {**LOW, "inner": {"n": 1}},
    "maxValues": {**HIGH, "inner": {"n": 2}},
    "nullCount": NULLS,
}


def parse_statistics(path: Path, int96: bool) -> None:
    """Rewrite the checkpoint as `writeStatsAsJson: false` and `writeStatsAsStruct: true` have it."""
    (checkpoint,) = (path / "_delta_log").glob("*.checkpoint.parquet")
    actions = pq.read_table(checkpoint)
    column = actions["add"].combine_chunks()
    fields = [field for field in column.type if field.name not in ("stats", "stats_parsed")]
    parsed = pa.array([STATS if is_add else None for is_add in column.is_valid().to_pylist()], PARSED)
    children = [column.field(field.name) for field in fields]
    add = pa.StructArray.from_arrays(
        [*children, parsed], fields=[*fields, pa.field("stats_parsed", PARSED)], mask=column.is_null()
    )
    actions = actions.set_column(actions.schema.get_field_index("add"), "add", add)
    pq.write_table(actions, checkpoint, use_deprecated_int96_timestamps=int96)


def statistics(text: str | None) -> Any:
    """With numbers as they are written."""
    return json.loads(text or "{}", parse_float=str, parse_int=str)


@pytest.mark.parametrize("int96", [False, True])
def test_file_whose_rows_are_marked_keeps_statistics_that_were_columns(int96: bool, tmp_path: Path) -> None:
    write_deltalake(tmp_path, ROWS)
    allow(tmp_path)
    DeltaTable(tmp_path).create_checkpoint()
    forget_entries(tmp_path)
    parse_statistics(tmp_path, int96)

    mark_everywhere(tmp_path, [0])

    (after,) = data_files(open_any(tmp_path))
    kept = statistics(after.stats)
    assert kept.pop("tightBounds") is False
    assert kept == expected()
    assert (after.rows, after.deleted) == (2, 1)


def expected() -> dict[str, Any]:
    low = {"id": "1", "name": "b", "day": "2026-11-01", "at": "2026-11-01T12:00:00.123456Z", "share": "0.5"}
    low |= {"price": str(SMALL), "inner": {"n": "1"}}
    high = {**low, "id": "2", "name": "ä", "price": str(LARGE), "share": "1.5", "inner": {"n": "2"}}
    nulls = {name: str(count) for name, count in NULLS.items() if name != "inner"}
    return {
        "numRecords": "3",
        "minValues": low,
        "maxValues": high,
        "nullCount": {**nulls, "inner": {"n": "1"}},
    }
