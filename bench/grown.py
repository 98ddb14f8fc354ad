"""Tables that have grown: many files or many versions, made in seconds as a pipeline makes them in months."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction

from lakefeed.columns.column_types import declared_schema, stored

SCHEMA = {
    "event_id": "long not null",
    "event_time": "timestamp",
    "event_type": "string",
    "product_id": "long",
    "category_id": "long",
    "category_code": "string",
    "brand": "string",
    "price": "double",
    "user_id": "long",
    "user_session": "string",
}
_LOT = 20_000
_CHECKPOINT_EVERY = 100
_MADE = 1_790_000_000_000


def table_with_files(path: Path, count: int) -> None:
    """A table of so many files, links to a few, in few versions and a checkpoint."""
    delta, size, stats = _begun(path)
    for first in range(0, count, _LOT):
        names = [f"part-{at:08}.parquet" for at in range(first, min(first + _LOT, count))]
        # A file may have no more than some ten thousand names.
        shutil.copy(path / "one.parquet", path / names[0])
        for name in names[1:]:
            os.link(path / names[0], path / name)
        adds = [AddAction(name, size, {}, _MADE, True, stats) for name in names]
        delta.create_write_transaction(list(adds), "append", delta.schema(), [])
        delta.update_incremental()
    if count:
        delta.create_checkpoint()


def table_with_versions(path: Path, count: int) -> None:
    """A table of so many versions and a hundred files, with a checkpoint for each hundred versions."""
    delta, size, stats = _begun(path)
    log = path / "_delta_log"
    info = {"timestamp": _MADE, "operation": "WRITE", "operationParameters": {"mode": "Append"}}
    for version in range(1, count + 1):
        name = f"part-{version:08}.parquet"
        add = {
            "path": name,
            "partitionValues": {},
            "size": size,
            "modificationTime": _MADE,
            "dataChange": True,
            "stats": stats,
        }
        actions: list[dict[str, Any]] = [
            {"commitInfo": info},
            {"txn": {"appId": "o/s/0", "version": version}},
        ]
        if version <= 100:
            os.link(path / "one.parquet", path / name)
            actions.append({"add": add})
        (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))
        if (version + 1) % _CHECKPOINT_EVERY == 0 and version > count - 10 * _CHECKPOINT_EVERY:
            delta.update_incremental()
            delta.create_checkpoint()
    delta.update_incremental()


def _begun(path: Path) -> tuple[DeltaTable, int, str]:
    """An empty table, and beside it a file that is no part of it yet: its size and statistics."""
    schema = stored(declared_schema(SCHEMA))
    path.mkdir(parents=True)
    delta = DeltaTable.create(path, Schema.from_arrow(schema))
    row: dict[str, Any] = dict.fromkeys(schema.names) | {"event_id": 1, "brand": "apple", "price": 1.5}
    pq.write_table(pa.Table.from_pylist([row], schema), path / "one.parquet")
    told = {"event_id": 1, "brand": "apple", "price": 1.5}
    missing = {name: int(row[name] is None) for name in schema.names}
    stats = json.dumps({"numRecords": 1, "minValues": told, "maxValues": told, "nullCount": missing})
    return delta, (path / "one.parquet").stat().st_size, stats
