"""Partition values of every type, through every command that writes them, read by four engines."""

from __future__ import annotations

import datetime as dt
import math
import shutil
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema
from duckdb_extensions import import_extension

from lakefeed.errors import TableError
from lakefeed.stores import open_store
from lakefeed.tables.operations import convert as conversion
from lakefeed.tables.operations import delete as deletion
from lakefeed.tables.operations import repartition as layout
from lakefeed.tables.operations import replace as replacement
from lakefeed.tables.operations.operation import operation_info
from lakefeed.tables.rewrite import compact as compaction
from lakefeed.tables.rewrite import z_order as clustering
from lakefeed.tables.rewrite.rewrite import rewrite
from lakefeed.tables.table import LakeTable
from lakefeed.upkeep.file_writer import file_writer
from support.delta_spark import DeltaSpark
from support.delta_tables import open_any
from support.foreign_parquet import write_taken

INFO = operation_info("test", by="test")
UTC = dt.UTC
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "byte": (pa.int8(), [-128, 127]),
    "short": (pa.int16(), [-300]),
    "int": (pa.int32(), [70_000]),
    "long": (pa.int64(), [2**63 - 1, -(2**63)]),
    "float": (pa.float32(), [0.5, 2.0**127, math.inf]),
    "double": (pa.float64(), [0.1, 1e300, 1e-7, -math.inf]),
    "boolean": (pa.bool_(), [True, False]),
    "string": (pa.string(), ["a b", "ü", "x%y", "a/b", "世" * 84, "世" * 20, "x" * 253, "null"]),
    "binary": (pa.binary(), [b"abc", "ü".encode()]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(2026, 1, 2, 3, 4, 5, 600_000, UTC), dt.datetime(1969, 12, 31, tzinfo=UTC)],
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        [dt.datetime(2026, 1, 2, 3, 4, 5, 600_000), dt.datetime(2026, 1, 2), dt.datetime(1, 1, 1)],
    ),
    "decimal": (pa.decimal128(10, 2), [Decimal("1.00"), Decimal("-99999999.99"), Decimal("0.01")]),
}
REFUSED = {
    "double": r"the partition value 1e\+300 of column k is too long for the name of a directory",
    "string": r"the partition value '世+\.\.\. of column k is too long for the name of a directory",
    "binary": r"the partition value b'.*' of column k is binary, which cannot be written here\.",
    "decimal": r"the partition value -99999999\.99 of column k is a negative decimal",
}
"""What delta-rs would write so that nobody reads it."""


def feed(table: LakeTable, rows: pa.Table) -> None:
    rewrite(table, [], iter(rows.to_batches()), file_writer(table, "ZSTD", 2**27), INFO)


def compact(table: LakeTable, folder: Path, rows: pa.Table) -> None:
    plan = compaction.plan(table)
    assert plan.steps
    compaction.run(table, plan, INFO, file_writer)


def z_order(table: LakeTable, folder: Path, rows: pa.Table) -> None:
    clustering.run(table, clustering.plan(table, ["id"]), INFO, file_writer)


def delete(table: LakeTable, folder: Path, rows: pa.Table) -> None:
    feed(table, pa.table({"id": [-1] * rows.num_rows, "k": rows["k"]}, schema=rows.schema))
    deletion.run(table, deletion.plan(table, "id = -1"), INFO)


def replace(table: LakeTable, folder: Path, rows: pa.Table) -> None:
    pq.write_table(rows, folder / "fix.parquet")
    source = replacement.Rows.at(str(folder / "fix.parquet"), {})
    replacement.run(table, replacement.plan(table, "id >= 0", source), INFO)


def lay_out(table: LakeTable, folder: Path, rows: pa.Table) -> None:
    layout.run(table, layout.plan(table, []), INFO)
    layout.run(table, layout.plan(table, ["k"]), INFO)


STEPS: list[Callable[[LakeTable, Path, pa.Table], None]] = [compact, z_order, delete, replace, lay_out]
BY_DELTA_RS = (delete, replace, lay_out)


def with_deltalake(path: Path) -> pa.Table:
    return pa.RecordBatchReader.from_stream(DeltaTable(path).scan()).read_all()


@cache
def duckdb_once() -> duckdb.DuckDBPyConnection:
    """One for all: loading the extension takes longer than reading a table."""
    import_extension("delta")
    connection = duckdb.connect()
    connection.execute("LOAD delta")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def with_duckdb(path: Path) -> pa.Table:
    return duckdb_once().execute(f"SELECT * FROM delta_scan('{path}')").to_arrow_table()


def with_polars(path: Path) -> pa.Table:
    return pl.read_delta(str(path)).to_arrow()


def values(table: pa.Table) -> dict[int, Any]:
    return {row["id"]: row["k"] for row in table.select(["id", "k"]).to_pylist() if row["id"] >= 0}


def assert_read_alike(name: str, path: Path, expected: dict[int, Any], step: Any) -> None:
    for read in (with_deltalake, with_duckdb, with_polars):
        # Polars has no partitions of bytes. It takes values from the names of directories, and all of them
        # must write a timestamp alike; delta-rs writes it otherwise.
        unread = name == "binary" or (name == "timestamp" and step in BY_DELTA_RS)
        if read is not with_polars or not unread:
            assert values(read(path)) == expected, (step, read)


def made(name: str, folder: Path) -> tuple[Path, pa.Table]:
    kind, some = KINDS[name]
    schema = pa.schema([("id", pa.int64()), ("k", kind)])
    rows = pa.table([pa.array(range(len(some) + 1)), pa.array([*some, None], kind)], schema=schema)
    path = folder / name
    DeltaTable.create(str(path), Schema.from_arrow(schema), partition_by=["k"])
    return path, rows


@pytest.mark.parametrize("name", KINDS)
def test_partition_values_are_read_alike_after_every_command(name: str, tmp_path: Path) -> None:
    path, rows = made(name, tmp_path)
    expected = values(rows)
    half = rows.num_rows // 2

    feed(open_any(path), rows.slice(0, half))
    feed(open_any(path), pa.concat_tables([rows.slice(half), rows]))
    assert_read_alike(name, path, expected, "feed")
    for step in STEPS:
        refusal = REFUSED.get(name) if step in BY_DELTA_RS else None
        if refusal:
            with pytest.raises(TableError, match=refusal):
                step(open_any(path), tmp_path, rows)
        else:
            step(open_any(path), tmp_path, rows)
        assert_read_alike(name, path, expected, step)


@pytest.mark.parametrize("name", KINDS)
def test_directories_become_the_values_that_they_stand_for(name: str, tmp_path: Path) -> None:
    path, rows = made(name, tmp_path)
    feed(open_any(path), rows)
    shutil.rmtree(path / "_delta_log")

    store = open_store(str(path), {})
    plan = conversion.plan(str(path), store, {"k": KINDS[name][0]})
    conversion.run(plan, {}, INFO)

    assert_read_alike(name, path, values(rows), "convert")


def test_spark_reads_every_partition_value_and_every_column_that_was_converted(
    tmp_path: Path, delta_spark: DeltaSpark
) -> None:
    """All in few tables: Spark takes more than a second for each."""
    letters = dict(zip("abcdefghijklmnop", KINDS.values(), strict=False))
    count = max(len(some) for _, some in letters.values()) + 1
    padded = {name: pa.array([*some, *[None] * (count - len(some))], kind)
              for name, (kind, some) in letters.items()}  # fmt: skip
    rows = pa.table({"id": list(range(count)), **padded})
    path = tmp_path / "t"
    DeltaTable.create(str(path), Schema.from_arrow(rows.schema), partition_by=list(letters))
    feed(open_any(path), rows)
    feed(open_any(path), rows.slice(0, 1))
    compact(open_any(path), tmp_path, rows)
    converted = write_taken(tmp_path / "converted")
    for folder in converted:
        at = str(tmp_path / "converted" / folder)
        conversion.run(conversion.plan(at, open_store(at, {}), {}), {}, INFO)

    read = delta_spark.read(path).to_pylist()
    assert {row["id"]: row for row in read} == {row["id"]: row for row in rows.to_pylist()}
    for folder, expected in converted.items():
        assert delta_spark.read(tmp_path / "converted" / folder).drop_columns("id").to_pylist() == [expected]
