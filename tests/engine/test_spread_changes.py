"""Many files are looked at and rewritten as tasks of Spark: the same table, the same errors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lakefeed import Pipeline, TableError
from lakefeed.engine.spark import spread
from lakefeed.engine.spark.spread import OnSpark
from lakefeed.reports.verify import verify
from lakefeed.tables.write.history import HistoryMode
from lakefeed.tables.write.keyed import HistoryRules, KeyRules
from lakefeed.tables.write.upsert import UpsertMode
from support.keyed_table import KeyedTable

BATCHES = [
    [{"id": key, "at": 1, "name": "a"} for key in range(40)],
    [{"id": key, "at": 2, "name": "b"} for key in range(0, 40, 3)],
    [{"id": key, "at": 3, "op": "delete"} for key in range(0, 40, 5)],
    [{"id": key, "at": 2, "name": "late"} for key in range(0, 40, 4)],
]
MODES: dict[str, tuple[type[UpsertMode], KeyRules, list[str]]] = {
    "upsert": (UpsertMode, KeyRules(("id",), ("at",)), []),
    "history": (HistoryMode, HistoryRules(("id",), ("at",)), ["valid_from", "valid_to"]),
}


@pytest.fixture(autouse=True)
def _everything_is_worth_it(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "_WORTH", 0)
    monkeypatch.setattr(spread, "AT_ONCE", 0)


def fill(folder: Path, mode: str, spark: SparkSession | None) -> KeyedTable:
    kind, rules, ends = MODES[mode]
    numbers = [pa.field(name, pa.int64()) for name in ("id", "at", *ends)]
    schema = pa.schema([*numbers, pa.field("name", pa.string())])
    table = KeyedTable(folder, schema, rules, max_rows=5, modes=kind)
    if spark is not None:
        table.mode.spread = OnSpark(spark.sparkContext, str(folder), {})  # type: ignore[union-attr]
    for batch in BATCHES:
        table.apply(*batch)
    return table


@pytest.mark.parametrize("mode", MODES)
def test_workers_make_the_same_table_as_the_driver(mode: str, spark: SparkSession, tmp_path: Path) -> None:
    here, there = fill(tmp_path / "here", mode, None), fill(tmp_path / "there", mode, spark)

    assert there.rows() == here.rows()
    assert len(DeltaTable(there.path).file_uris()) > 5


def test_what_a_worker_cannot_read_is_told_and_nothing_is_left_behind(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = fill(tmp_path, "upsert", spark)
    Path(DeltaTable(tmp_path).file_uris()[0]).unlink()
    before, version = set(tmp_path.glob("*.parquet")), DeltaTable(tmp_path).version()

    with pytest.raises(TableError, match="the log names it, and it is not there"):
        table.apply(*({"id": key, "at": 9, "name": "z"} for key in range(40)))

    assert DeltaTable(tmp_path).version() == version
    assert set(tmp_path.glob("*.parquet")) == before


def test_a_pipeline_rewrites_on_its_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.yaml").write_text(
        """\
name: shop
sources: {clicks: {type: generate, rows: 4000, partitions: 2}}
tables:
  newest:
    path: newest
    from: clicks
    mode: upsert
    keys: product_id
    sequence_by: event_id
    max_rows_per_file: 100
    schema: {event_id: long, product_id: long}
flush: {rows: 1500}
"""
    )
    workers: set[int] = set()
    real = OnSpark.__call__

    def watched(self: OnSpark, store: Any, work: Any, items: Any, size: int) -> Any:
        workers.update(self._context.parallelize(range(4), 4).map(lambda _: os.getpid()).collect())
        return real(self, store, work, items, size)

    monkeypatch.setattr(OnSpark, "__call__", watched)
    pipeline = Pipeline.from_file(tmp_path / "shop.yaml")

    pipeline.run(once=True)

    rows = DeltaTable(tmp_path / "newest").to_pyarrow_table().to_pylist()
    assert len({row["product_id"] for row in rows}) == len(rows) > 1000
    assert max(row["event_id"] for row in rows) == 3999
    assert workers and os.getpid() not in workers
    assert verify(pipeline, deep=True).sound
