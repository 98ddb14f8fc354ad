"""A table that the pipeline `shop` feeds from the partition `clicks/0`, without a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakefeed.stores import open_store
from lakefeed.tables.table import LakeTable

PARTITION = "shop/clicks/0"
IDS = pa.schema([("id", pa.int64())])
CITIES = pa.schema([("id", pa.int64()), ("city", pa.string())])


def make_table(
    path: Path,
    schema: pa.Schema = IDS,
    partition_by: Sequence[str] = (),
    *,
    properties: dict[str, str] | None = None,
    commit_info: dict[str, Any] | None = None,
    durable: bool = False,
) -> LakeTable:
    """A new table of no rows, before the first event."""
    return LakeTable.create(
        "events",
        str(path),
        {},
        open_store(str(path), {}),
        schema=schema,
        partition_by=list(partition_by),
        properties=properties or {},
        transactions={PARTITION: -1},
        commit_info=commit_info or {"kind": "create"},
        durable=durable,
    )


def make_cities(path: Path, properties: dict[str, str] | None = None) -> LakeTable:
    """A new table that has a partition for each city."""
    return make_table(path, CITIES, ["city"], properties=properties)


def open_table(path: Path) -> LakeTable:
    table = LakeTable.open("events", str(path), {}, open_store(str(path), {}))
    assert table is not None
    return table


def entry_file(path: Path, version: int) -> Path:
    """The file of a version in a table's log."""
    return path / "_delta_log" / f"{version:020d}.json"
