"""Delta tables that tests make without Spark, and their content whatever the order."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from duckdb_extensions import import_extension

from lakefeed.stores import open_store
from lakefeed.tables.table import LakeTable


def write_table(
    path: Path,
    batches: Sequence[Mapping[str, Any]],
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    positions: str | None = None,
) -> LakeTable:
    """A table with one version for each batch; with `positions`, each moves that application id."""
    for number, columns in enumerate(batches):
        transactions = [Transaction(positions, number)] if positions else None
        write_deltalake(
            path,
            pa.table(dict(columns)),
            mode="append",
            partition_by=list(partition_by) or None,
            configuration=dict(properties or {}) or None,
            commit_properties=CommitProperties(app_transactions=transactions),
        )
    return open_any(path)


def small_files(path: Path, **more: Any) -> Path:
    """A table of two days and six files of one row each."""
    batches = [{"id": [number], "day": [f"2026-11-0{number % 2 + 1}"]} for number in range(6)]
    write_table(path, batches, partition_by=["day"], **more)
    return path


def open_any(path: Path | str, storage: Mapping[str, str] | None = None) -> LakeTable:
    """A table to look after, whoever wrote it."""
    options = dict(storage or {})
    table = LakeTable.open("table", str(path), options, open_store(str(path), options), foreign=True)
    assert table is not None
    return table


def rows(path: Path | str) -> list[str]:
    """Every row as text, sorted, as DuckDB reads it."""
    found = _duckdb().execute("SELECT * FROM delta_scan(?)", [str(path)])
    assert found.description is not None
    names = [column[0] for column in found.description]
    return sorted(repr(sorted(zip(names, row, strict=True))) for row in found.fetchall())


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """One for all: loading the extension takes longer than reading a table."""
    import_extension("delta")
    connection = duckdb.connect()
    connection.execute("LOAD delta")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def content(path: Path | str) -> str:
    """A hash of every row, whatever their order and the order of the columns."""
    return hashlib.sha256("\n".join(rows(path)).encode()).hexdigest()


def ids(path: Path | str) -> list[int]:
    found = _duckdb().execute("SELECT id FROM delta_scan(?) ORDER BY id", [str(path)])
    return [number for (number,) in found.fetchall()]


def commit_info(path: Path) -> dict[str, Any]:
    """What Lakefeed keeps in the commit info of the newest version."""
    told: dict[str, Any] = json.loads(DeltaTable(path).history(1)[0]["lakefeed"])
    return told


def make_old(folder: Path, days: float) -> None:
    """Let every file of a table, its log included, look as if it had been written days ago."""
    moment = (dt.datetime.now(dt.UTC) - dt.timedelta(days=days)).timestamp()
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            os.utime(file, (moment, moment))


def clean_log(path: Path) -> int:
    """Take away all entries that a checkpoint of the newest version stands for; returns that version."""
    DeltaTable(path).create_checkpoint()
    return forget_entries(path)


def forget_entries(path: Path) -> int:
    """Take away all entries but the newest, of which there is a checkpoint; returns its version."""
    *older, newest = sorted((path / "_delta_log").glob("*.json"))
    for entry in older:
        entry.unlink()
    return int(newest.stem)


def age_log(path: Path, days: float) -> None:
    """Let the log tell that everything happened days ago."""
    for entry in (path / "_delta_log").glob("*.json"):
        actions = entry.read_text()
        for key in ("timestamp", "deletionTimestamp"):
            actions = _shift(actions, f'"{key}":', int(days * 86_400_000))
        entry.write_text(actions)
    make_old(path, days)


def _shift(text: str, key: str, by: int) -> str:
    head, *parts = text.split(key)
    for part in parts:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        head += f"{key}{int(digits) - by}{part[len(digits) :]}"
    return head
