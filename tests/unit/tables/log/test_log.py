"""The reader of a Delta log: every kind of checkpoint tells the same."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed.errors import StoreUnavailable
from lakefeed.stores import open_store, store_errors
from lakefeed.tables.log.checkpoint import read_transactions
from lakefeed.tables.log.entry import entry_name, read_entry
from lakefeed.tables.log.log import Log
from lakefeed.tables.operations import vacuum
from lakefeed.tables.table import commit_properties
from support.delta_tables import open_any

VERSION = 4
UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


def classic(log: Path) -> None:
    """As delta-rs wrote it."""


def in_parts(log: Path) -> None:
    checkpoint = log / f"{VERSION:020}.checkpoint.parquet"
    rows = pq.read_table(checkpoint)
    for part, rows_of_it in enumerate((rows.slice(0, 3), rows.slice(3)), 1):
        pq.write_table(rows_of_it, log / f"{VERSION:020}.checkpoint.{part:010}.{2:010}.parquet")
    checkpoint.unlink()
    # What another writer did not finish.
    pq.write_table(rows.slice(0, 1), log / f"{VERSION:020}.checkpoint.{1:010}.{3:010}.parquet")


def of_version_2_as_parquet(log: Path) -> None:
    checkpoint = log / f"{VERSION:020}.checkpoint.parquet"
    rows = pq.read_table(checkpoint)
    sidecar = put_sidecar(log, rows)
    others = rows.drop_columns(["add", "remove", *({"sidecar"} & set(rows.column_names))])
    others = others.append_column("sidecar", pa.nulls(len(others), sidecar.type))
    named = pa.Table.from_pylist([{"sidecar": sidecar.as_py()}], others.schema)
    whole = pa.concat_tables([others, named])
    pq.write_table(whole, log / f"{VERSION:020}.checkpoint.{UUID}.parquet")
    checkpoint.unlink()


def of_version_2_as_json(log: Path) -> None:
    checkpoint = log / f"{VERSION:020}.checkpoint.parquet"
    rows = pq.read_table(checkpoint)
    lines: list[dict[str, Any]] = [{"checkpointMetadata": {"version": VERSION}}]
    lines.append({"sidecar": put_sidecar(log, rows).as_py()})
    for row in rows.drop_columns(["add", "remove"]).to_pylist():
        lines += [{kind: plain(action)} for kind, action in row.items() if action]
    content = "\n".join(json.dumps(line) for line in lines)
    (log / f"{VERSION:020}.checkpoint.{UUID}.json").write_text(content)
    checkpoint.unlink()


def put_sidecar(log: Path, rows: pa.Table) -> pa.StructScalar:
    (log / "_sidecars").mkdir()
    name = f"{VERSION:020}.checkpoint.{1:010}.{1:010}.{UUID}.parquet"
    pq.write_table(rows.select(["add", "remove"]), log / "_sidecars" / name)
    size = (log / "_sidecars" / name).stat().st_size
    return pa.scalar({"path": name, "sizeInBytes": size, "modificationTime": 0})


def plain(action: dict[str, Any]) -> dict[str, Any]:
    """An action of a Parquet file as JSON has it: maps are objects."""
    maps = ("configuration", "options")
    return {
        key: dict(value or ()) if key in maps else plain(value) if isinstance(value, dict) else value
        for key, value in action.items()
    }


def cleaned_table(path: Path, checkpoint: Callable[[Path], None]) -> None:
    """A table of five versions, of which the log has the newest and a checkpoint only."""
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "day": ["ä b"] * 3})
    for last in range(VERSION):
        properties = commit_properties({"shop/clicks/0": last, f"shop/clicks/{last}": 7}, {"kind": "rows"})
        write_deltalake(
            str(path), rows, mode="append", partition_by=["day"], commit_properties=properties, name="clicks"
        )
    table = DeltaTable(str(path))
    table.optimize.compact()
    table.create_checkpoint()
    log = path / "_delta_log"
    for entry in log.glob("*.json"):
        if int(entry.stem) < VERSION:
            entry.unlink()
    (log / "_last_checkpoint").unlink()
    checkpoint(log)


@pytest.mark.parametrize("checkpoint", [classic, in_parts, of_version_2_as_parquet, of_version_2_as_json])
def test_every_kind_of_checkpoint_is_read_alike_by_all(
    checkpoint: Callable[[Path], None], tmp_path: Path
) -> None:
    cleaned_table(tmp_path, checkpoint)
    store = open_store(str(tmp_path), {})
    table = DeltaTable(str(tmp_path))

    log = Log.open(store)
    assert log is not None
    assert log.newest_checkpoint == VERSION
    assert log.oldest == VERSION
    snapshot = log.snapshot(VERSION)
    assert sorted(snapshot.files) == sorted(
        path.relative_to(tmp_path).as_posix() for path in map(Path, table.file_uris())
    )
    assert snapshot.rows == 12
    assert snapshot.transactions == read_transactions(store, VERSION) == {
        "shop/clicks/0": 3, "shop/clicks/1": 7, "shop/clicks/2": 7, "shop/clicks/3": 7
    }  # fmt: skip
    assert len(log.removed(log.newest_checkpoint)) == 4
    found = log.metadata()
    assert found and (found["name"], found["partitionColumns"]) == ("clicks", ["day"])


@pytest.mark.parametrize("checkpoint", [classic, of_version_2_as_parquet, of_version_2_as_json])
def test_vacuum_keeps_what_a_checkpoint_knows_as_removed_lately(
    checkpoint: Callable[[Path], None], tmp_path: Path
) -> None:
    cleaned_table(tmp_path, checkpoint)
    for file in tmp_path.glob("day=*/*.parquet"):
        os.utime(file, (0, 0))
    table = open_any(tmp_path)

    assert vacuum.plan(table).files == ()
    assert len(vacuum.plan(table, retain=0.001, allow_short=True).files) == 4


def test_an_entry_that_is_cleaned_up_while_the_log_is_read_is_no_store_that_does_not_answer(
    tmp_path: Path,
) -> None:
    for number in range(4):
        write_deltalake(tmp_path, pa.table({"id": [number]}), mode="append")
    store = open_store(str(tmp_path), {})
    log = Log.open(store)
    assert log is not None
    for version in (0, 1):
        (tmp_path / entry_name(version)).unlink()

    left = [entry.version for entry in log.newest_entries(3)]
    with pytest.raises(StoreUnavailable, match=r"no longer has version 0: it was cleaned up meanwhile"):
        log.snapshot(3)
    with (
        pytest.raises(StoreUnavailable, match=r"version 0 is no longer in the log: it was cleaned up"),
        store_errors(str(tmp_path)),
    ):
        read_entry(store, 0)

    assert left == [2, 3]
