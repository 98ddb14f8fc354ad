"""The ledger: what was produced against what landed, read with engines other than the one that wrote."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from duckdb_extensions import import_extension

SHOWN = 20


def table_ids(
    path: str | Path, column: str = "event_id", storage: Mapping[str, str] | None = None
) -> list[Any]:
    """One column of a Delta table, in no order; empty when there is no table."""
    table = _table(path, storage)
    if table is None:
        return []
    found: list[Any] = (
        pa.RecordBatchReader.from_stream(table.scan(columns=[column])).read_all()[column].to_pylist()
    )
    return found


def dead_letters(path: str | Path, storage: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """The rows of a dead-letter table by source position; empty when there is no table."""
    table = _table(path, storage)
    rows: list[dict[str, Any]] = [] if table is None else table.to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: (row["source"], row["topic"] or "", row["partition"], row["offset"]))


def assert_each_once(
    produced: Iterable[Any], in_table: Iterable[Any], in_dead_letters: Iterable[Any] = ()
) -> None:
    """Every produced id is once in the table or once in the dead letters, and nothing else is."""
    wanted, rows, dead = set(produced), Counter(in_table), Counter(in_dead_letters)
    landed = rows + dead
    differences = {
        "lost": wanted - landed.keys(),
        "more than once in the table": {found for found, count in rows.items() if count > 1},
        "more than once in the dead letters": {found for found, count in dead.items() if count > 1},
        "in the table and in the dead letters": rows.keys() & dead.keys(),
        "never produced": landed.keys() - wanted,
    }
    told = [f"  {len(ids)} {what}: {_shown(ids)}" for what, ids in differences.items() if ids]
    counts = f"{len(wanted)} produced, {rows.total()} in the table, {dead.total()} dead letters"
    assert not told, "\n".join([f"the ledger does not hold ({counts}):", *told])


def assert_versions_contiguous(path: str | Path) -> list[int]:
    """The versions in a local table's log, after a look that none is missing."""
    versions = sorted(
        int(file.stem) for file in (Path(path) / "_delta_log").glob("*.json") if file.stem.isdigit()
    )
    assert versions, f"{path} has no versions"
    missing = set(range(versions[0], versions[-1] + 1)) - set(versions)
    assert not missing, f"{path} has no versions {_shown(missing)} between {versions[0]} and {versions[-1]}"
    return versions


def assert_ranges_contiguous(path: str | Path) -> None:
    """By the accounts in a local table's log, each range of a partition begins where the last one ended."""
    ends: dict[tuple[str, str], int] = {}
    for entry in reversed(DeltaTable(str(path)).history()):
        commit_info = json.loads(entry.get("lakefeed", "{}"))
        for partition, (start, end, read, letters) in commit_info.get("ranges", {}).items():
            key = (commit_info["source"], partition)
            assert ends.get(key, start) == start, f"{path}: {key} continues at {start}, not at {ends[key]}"
            assert 0 <= letters <= read <= end - start, f"{path}: {key} has an account that cannot be"
            ends[key] = end


def duckdb_count(path: str | Path) -> int:
    """The rows that DuckDB sees in a local Delta table."""
    import_extension("delta")
    with duckdb.connect() as connection:
        connection.execute("LOAD delta")
        counted = connection.execute("SELECT count(*) FROM delta_scan(?)", [str(path)]).fetchone()
    assert counted is not None
    return int(counted[0])


def _table(path: str | Path, storage: Mapping[str, str] | None) -> DeltaTable | None:
    options = dict(storage) if storage else None
    return (
        DeltaTable(str(path), storage_options=options)
        if DeltaTable.is_deltatable(str(path), options)
        else None
    )


def _shown(ids: Iterable[Any]) -> str:
    ordered = sorted(ids, key=lambda found: (str(type(found)), found))
    more = f" and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else ""
    return ", ".join(repr(found) for found in ordered[:SHOWN]) + more
