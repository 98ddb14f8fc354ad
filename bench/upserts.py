"""`python bench/upserts.py`: 20,000 changes into a table of millions of rows, beside Spark's own MERGE.

Recent keys: half of the changes are new keys, the others are among the last 2%. Random keys: anywhere. Each
run begins with a fresh copy of the same table, whose files have 250,000 rows each. Spark's numbers are those
of the second run in a warm JVM.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "tests")]
CHANGES, PER_FILE = 20_000, 250_000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, nargs="*", default=[3_000_000])
    options.add_argument("--layouts", nargs="*", default=["copy_on_write", "merge_on_read"])
    options.add_argument("--spark", action=argparse.BooleanOptionalAction, default=True)
    options.add_argument("--child", nargs=3, default=None, help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.child:
        print(json.dumps(ours(Path(asked.child[0]), asked.child[1], asked.child[2])))
        return
    with tempfile.TemporaryDirectory(prefix="lakefeed-upserts-") as folder:
        for rows in asked.rows:
            base = Path(folder) / f"rows-{rows}"
            make(base, rows)
            for keys in ("recent", "random"):
                for layout in asked.layouts:
                    tell(rows, keys, layout, own_process(base, layout, keys))
                if asked.spark:
                    for vectors in (False, True):
                        told = "spark merge, vectors" if vectors else "spark merge"
                        tell(rows, keys, told, sparks(base, keys, vectors))


def tell(rows: int, keys: str, who: str, found: dict[str, Any]) -> None:
    print(
        f"{rows:>12,} rows  {keys:7} {who:22} " + "  ".join(f"{k} {v}" for k, v in found.items()), flush=True
    )


def columns(keys: Any, moment: int) -> pa.Table:
    """Rows of eight columns, about 130 bytes each."""
    chance = np.random.default_rng(moment)
    count = len(keys)
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "seq": pa.array(np.full(count, moment), pa.int64()),
            "name": pa.array(np.char.add("customer ", keys.astype(str))),
            "country": pa.array(np.array(["de", "fr", "it", "es"])[keys % 4]),
            "amount": pa.array(chance.random(count)),
            "visits": pa.array(chance.integers(0, 1000, count)),
            "note": pa.array(np.char.add("note ", chance.integers(0, 10**12, count).astype(str))),
            "at": pa.array(chance.integers(0, 2 * 10**15, count), pa.timestamp("us", "UTC")),
        }
    )


def make(base: Path, rows: int) -> None:
    """A table that is sorted by its key."""
    from lakefeed.files.parquet import TableWriter
    from lakefeed.tables.write.append import append
    from lakefeed.tables.write.keyed import KeyRules
    from lakefeed.tables.write.mode import Change
    from support.keyed_table import KeyedTable

    table = KeyedTable(base, columns(np.arange(1), 1).schema, KeyRules(("id",), ("seq",)), max_rows=PER_FILE)
    writer = TableWriter(table.table.store, table.target(table.table.shape))
    for start in range(0, rows, PER_FILE):
        part = columns(np.arange(start, min(rows, start + PER_FILE)), 1)
        for batch in part.combine_chunks().to_batches():
            writer.write(batch)
    append(table.table, Change(writer.close(), {"shop/clicks/0": 0}, {"shop/clicks/0": None}, {}), retries=0)


def changed_keys(rows: int, keys: str) -> Any:
    chance = np.random.default_rng(7)
    if keys == "random":
        return chance.choice(rows, CHANGES, replace=False)
    recent = chance.choice(np.arange(int(rows * 0.98), rows), CHANGES // 2, replace=False)
    return np.concatenate([recent, np.arange(rows, rows + CHANGES // 2)])


def own_process(base: Path, layout: str, keys: str) -> dict[str, Any]:
    """In a process of its own, whose memory is its own."""
    command = [sys.executable, __file__, "--child", str(base), layout, keys]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def ours(base: Path, layout: str, keys: str) -> dict[str, Any]:
    from lakefeed.columns.staged import STAGED, staged_schema
    from lakefeed.files.parquet import TableWriter, staged_target
    from lakefeed.tables.allow_vectors import allow_vectors
    from lakefeed.tables.write.commit import commit
    from lakefeed.tables.write.keyed import KeyRules
    from lakefeed.tables.write.keyed.copy_on_write import CopyOnWrite
    from lakefeed.tables.write.keyed.merge_on_read import MergeOnRead
    from lakefeed.tables.write.mode import Change
    from lakefeed.tables.write.upsert import UpsertMode
    from support.keyed_table import KeyedTable

    rows = int(base.name.partition("-")[2])
    copy = base.parent / f"copy-{layout}"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(base, copy)
    table = KeyedTable.__new__(KeyedTable)
    table.path, table._max_rows = str(copy), PER_FILE
    opened = table.open()
    if layout == "merge_on_read":
        allow_vectors(opened, {"kind": "alter"})
    chosen = {"copy_on_write": CopyOnWrite, "merge_on_read": MergeOnRead}[layout]()
    mode = UpsertMode("shop", KeyRules(("id",), ("seq",)), table.target, chosen, 3600.0)
    part = columns(changed_keys(rows, keys), 2)
    count = part.num_rows
    staged = [
        pa.array(np.zeros(count), pa.int8()),
        pa.array(["0"] * count),
        pa.array(np.arange(count)),
        *(pa.nulls(count, field.type) for field in list(STAGED)[3:]),
    ]
    whole = pa.Table.from_arrays([*part.columns, *staged], schema=staged_schema(part.schema))
    writer = TableWriter(opened.store, staged_target(table.target(opened.shape)))
    for batch in whole.combine_chunks().to_batches():
        writer.write(batch)
    told = {"pipeline": "shop", "source": "clicks", "ranges": {}}
    change = Change(writer.close(), {"shop/clicks/0": count}, {"shop/clicks/0": 0}, told)
    began, cpu = time.monotonic(), time.process_time()
    entry = commit(opened, change, mode, retries=0).entry
    took, spent = time.monotonic() - began, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    shutil.rmtree(copy)
    told = {name: entry.commit_info[name] for name in ("looked_at", "rewritten", "copied")}
    return {"s": round(took, 2), "cpu": round(spent, 2), "peak_mb": peak, **told}


def sparks(base: Path, keys: str, vectors: bool) -> dict[str, Any]:
    """Spark's MERGE, the second of two runs in one JVM."""
    from pyspark.sql import SparkSession

    from support.jars import delta_jars

    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.jars": ",".join(str(jar) for jar in delta_jars()),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    rows = int(base.name.partition("-")[2])
    took: list[float] = []
    for turn in range(2):
        copy = base.parent / f"spark-{turn}"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(base, copy)
        if vectors:
            session.sql(
                f"ALTER TABLE delta.`{copy}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
            )
        source = base.parent / "changes.parquet"
        pq.write_table(columns(changed_keys(rows, keys), 2), source)
        session.read.parquet(str(source)).createOrReplaceTempView("changes")
        merge = (
            f"MERGE INTO delta.`{copy}` t USING changes s ON t.id = s.id "
            "WHEN MATCHED AND s.seq > t.seq THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        began = time.monotonic()
        session.sql(merge).collect()
        took.append(time.monotonic() - began)
        shutil.rmtree(copy)
    return {"s": round(took[-1], 2)}


if __name__ == "__main__":
    main()
