"""Deletion vectors between engines: those that we write are read by all, and those of Spark by us."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefeed.tables.data_files import data_files
from lakefeed.tables.operations.changes import changes
from lakefeed.tables.operations.checkpoint import checkpoint_now
from lakefeed.tables.rewrite import compact
from lakefeed.tables.write.history import HistoryMode
from lakefeed.tables.write.keyed import HistoryRules, KeyRules
from lakefeed.tables.write.keyed.merge_on_read import MergeOnRead
from lakefeed.tables.write.upsert import UpsertMode
from lakefeed.upkeep.file_writer import file_writer
from support.delta_spark import DeltaSpark
from support.delta_tables import forget_entries, make_old, open_any, rows
from support.keyed_table import KeyedTable
from support.vectors import allow

SCHEMA = pa.schema([("id", pa.int64()), ("seq", pa.int64()), ("v", pa.string()), ("day", pa.string())])
SPAN = [pa.field("valid_from", pa.int64()), pa.field("valid_to", pa.int64())]
MODES: dict[str, tuple[type[UpsertMode], KeyRules]] = {
    "upsert": (UpsertMode, KeyRules(("id",), ("seq",))),
    "history": (HistoryMode, HistoryRules(("id",), ("seq",))),
}


def changed(folder: Path, kind: str) -> KeyedTable:
    """A table of many random changes, in vectors within the log and in files, with its change data feed."""
    mode, rules = MODES[kind]
    schema = pa.schema([*SCHEMA, *(SPAN if kind == "history" else [])])
    table = KeyedTable(folder, schema, rules, partition_by=["day"], layout=MergeOnRead(), modes=mode)
    DeltaTable(folder).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    allow(folder)
    table.restart()
    apply(table, 8)
    return table


def apply(table: KeyedTable, batches: int) -> None:
    chance = random.Random(batches)
    for _ in range(batches):
        size = chance.choice([5, 3000])
        batch: list[dict[str, Any]] = [
            {
                "op": chance.choices(["upsert", "delete"], [9, 1])[0],
                "id": chance.randrange(6000),
                "seq": chance.randrange(1000),
                "v": f"v{chance.randrange(3)}",
            }
            for _ in range(size)
        ]
        for change in batch:
            change["day"] = "mon" if change["id"] % 2 else "tue"
        table.apply(*batch)


def as_text(found: pa.Table) -> list[str]:
    names = sorted(found.schema.names)
    return sorted(repr([(name, row[name]) for name in names]) for row in found.to_pylist())


@pytest.mark.parametrize("kind", MODES)
def test_all_engines_read_the_rows_and_changes_that_we_write(
    kind: str, tmp_path: Path, delta_spark: DeltaSpark
) -> None:
    table = changed(tmp_path / "t", kind)
    files = data_files(open_any(table.path))
    assert len({file.vector.path for file in files if file.vector}) > 1

    expected = as_text(pa.Table.from_pylist(table.rows(), table.table.schema))
    assert as_text(pl.read_delta(table.path).to_arrow().cast(table.table.schema)) == expected
    assert len(rows(table.path)) == len(expected)
    assert as_text(delta_spark.read(table.path)) == expected
    _changes_are_the_same(table, tmp_path / "feed", delta_spark)


def _changes_are_the_same(table: KeyedTable, out: Path, spark: DeltaSpark) -> None:
    lake = open_any(table.path)
    first = lake.version - 5
    columns = ", ".join([*lake.schema.names, "_change_type", "_commit_version"])
    spark.sql(
        f"CREATE TABLE delta.`{out}` USING delta AS SELECT {columns} "
        f"FROM table_changes_by_path('{table.path}', {first}, {lake.version})"
    )
    ours = pa.Table.from_batches(changes(lake, first, lake.version).batches)
    assert as_text(spark.read(out)) == as_text(ours.drop_columns(["_commit_timestamp"]))


def test_polars_still_shows_removed_rows_where_the_path_of_a_partition_is_encoded(tmp_path: Path) -> None:
    """When this fails, Polars is repaired: the warning of `plan` and the page about it can go."""
    rules, schema = KeyRules(("id",), ("seq",)), SCHEMA
    table = KeyedTable(
        tmp_path / "t", schema, rules, partition_by=["day"], layout=MergeOnRead(), modes=UpsertMode
    )
    allow(tmp_path / "t")
    table.restart()
    days = ["plain", "2026-11-01", "with space", "ü", "10:30"]
    for seq in (1, 2):
        ids = range(100 * len(days)) if seq == 1 else range(7 * len(days))
        table.apply(
            *({"op": "upsert", "id": one, "seq": seq, "v": "v", "day": days[one % len(days)]} for one in ids)
        )

    seen = pl.read_delta(table.path).group_by("day").len().sort("day").to_dicts()

    assert len(rows(table.path)) == 500
    assert {one["day"]: one["len"] for one in seen} == {
        "plain": 100, "2026-11-01": 100, "with space": 107, "ü": 107, "10:30": 107
    }  # fmt: skip


def test_spark_deletes_and_purges_beside_us(tmp_path: Path, delta_spark: DeltaSpark) -> None:
    table = changed(tmp_path / "t", "upsert")
    name = f"delta.`{table.path}`"

    delta_spark.sql(f"DELETE FROM {name} WHERE id % 10 = 3", f"UPDATE {name} SET v = 'w' WHERE id % 10 = 4")
    table.table.refresh()
    kept = table.rows()
    assert kept and not [row for row in kept if row["id"] % 10 == 3]
    assert {row["v"] for row in kept if row["id"] % 10 == 4} == {"w"}
    apply(table, 3)
    ours = as_text(pa.Table.from_pylist(table.rows(), table.table.schema))
    assert as_text(delta_spark.read(table.path)) == ours

    lake = open_any(table.path)
    compact.run(lake, compact.plan(lake, max_deleted=0.0), {"kind": "compact", "by": "test"}, file_writer)
    assert not [file for file in data_files(open_any(table.path)) if file.vector]
    assert as_text(delta_spark.read(table.path)) == ours
    apply(table, 2)
    ours = as_text(pa.Table.from_pylist(table.rows(), table.table.schema))
    delta_spark.sql(f"REORG TABLE {name} APPLY (PURGE)")
    table.table.refresh()
    assert as_text(pa.Table.from_pylist(table.rows(), table.table.schema)) == ours
    apply(table, 2)
    assert as_text(delta_spark.read(table.path)) == as_text(
        pa.Table.from_pylist(table.rows(), table.table.schema)
    )


def test_spark_reads_and_vacuums_behind_a_checkpoint_of_ours(tmp_path: Path, delta_spark: DeltaSpark) -> None:
    table = changed(tmp_path / "t", "upsert")
    lake = open_any(table.path)
    compact.run(lake, compact.plan(lake, max_deleted=0.1), {"kind": "compact", "by": "test"}, file_writer)
    apply(table, 2)
    checkpoint_now(open_any(table.path))
    forget_entries(Path(table.path))
    ours = as_text(pa.Table.from_pylist(table.rows(), table.table.schema))

    assert as_text(delta_spark.read(table.path)) == ours
    # All files look old, and none was removed a week ago: a removal that is missing would cost a file.
    make_old(Path(table.path), days=30)
    before = stored(table)
    delta_spark.sql(f"VACUUM delta.`{table.path}`")
    assert any(name.endswith(".bin") for name in before)
    assert stored(table) == before
    assert as_text(delta_spark.read(table.path)) == ours


def stored(table: KeyedTable) -> set[str]:
    """Its files and their vectors; not its log nor its changes, which Spark keeps by their own age."""
    found = (file.relative_to(table.path) for file in Path(table.path).rglob("*.*"))
    return {str(file) for file in found if not file.parts[0].startswith("_")}
