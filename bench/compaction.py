"""The small-file case: 9,000 files of a million rows are compacted, by Lakefeed and by Spark's OPTIMIZE.

Call `python small_files.py NAME TABLE` to measure one of them in a process of its own. It prints one line of
JSON: the time of the first and of a second run on the clock and on all cores, and the files that are left.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

ROWS = 1_000_000
FILES = 9_000


def make(path: Path) -> None:
    """A table of shop events whose every file has about a hundred rows."""
    import numpy as np
    import pyarrow as pa
    from deltalake import Schema
    from deltalake.transaction import AddAction, create_table_with_add_actions

    from lakefeed.files.parquet import FileTarget, TableWriter
    from lakefeed.stores import open_store

    numbers = np.arange(ROWS)
    brands = np.array(["apple", "bosch", "samsung", "xiaomi", "lg", "sony", "huawei", "dyson"])
    rows = pa.table(
        {
            "event_id": numbers,
            "event_time": pa.array(numbers * 20_000, pa.timestamp("us", "UTC")),
            "event_type": np.array(["view", "view", "view", "cart", "purchase"])[numbers % 5],
            "product_id": 1_000_000 + numbers * 7919 % 50_000,
            "brand": brands[numbers * 17 % 8],
            "price": numbers * 13 % 100_000 / 100,
            "user_session": [f"{number * 2654435761 % 2**32:08x}" for number in range(ROWS)],
        }
    )
    path.mkdir(parents=True)
    each = -(-ROWS // FILES)
    writer = TableWriter(open_store(str(path), {}), FileTarget(rows.schema, max_rows_per_file=each))
    for batch in rows.to_batches(max_chunksize=100_000):
        writer.write(batch)
    now = int(time.time() * 1000)
    adds = [AddAction(file.path, file.size, {}, now, True, file.stats) for file in writer.close()]
    create_table_with_add_actions(str(path), Schema.from_arrow(rows.schema), adds)


def lakefeed(path: Path) -> dict[str, Any]:
    from lakefeed.engine.rewriting import file_writer
    from lakefeed.stores import open_store
    from lakefeed.tables import compaction
    from lakefeed.tables.operation import operation_account
    from lakefeed.tables.table import LakeTable

    def optimize() -> int:
        table = LakeTable.open("table", str(path), {}, open_store(str(path), {}), foreign=True)
        assert table is not None
        account = operation_account("compact", by="bench")
        return compaction.run(table, compaction.plan(table), account, file_writer).after.files

    return _twice(optimize)


def spark(path: Path) -> dict[str, Any]:
    from pyspark.sql import SparkSession

    from support.spark_reader import delta_jars

    settings = {
        "spark.master": "local[*]",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.jars": ",".join(map(str, delta_jars())),
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
    session.sparkContext.setLogLevel("ERROR")
    # The session and its first read are not counted: a pipeline has a session already.
    session.read.format("delta").load(str(path)).limit(1).collect()

    def optimize() -> int:
        session.sql(f"OPTIMIZE delta.`{path}`").collect()
        return int(session.sql(f"DESCRIBE DETAIL delta.`{path}`").first()["numFiles"])

    return _twice(optimize)


def measure(name: str, path: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Run one of them in a process of its own, and watch the memory of it and of what it starts."""
    process = subprocess.Popen(
        [sys.executable, __file__, name, str(path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    watched, peak = psutil.Process(process.pid), 0
    while process.poll() is None:
        peak = max(peak, _memory(watched))
        time.sleep(0.1)
    assert process.returncode == 0 and process.stdout is not None, f"{name} failed"
    found: dict[str, Any] = json.loads(process.stdout.read().splitlines()[-1])
    return {**found, "megabytes": peak // 2**20}


def _twice(optimize: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for run in ("first", "second"):
        began, worked = time.monotonic(), _cpu()
        found["files"] = optimize()
        found[run] = {"seconds": round(time.monotonic() - began, 2), "cpu": round(_cpu() - worked, 2)}
    return found


def _cpu() -> float:
    """The time that this process and what it has started have worked, on all cores."""
    times = [one.cpu_times() for one in _family(psutil.Process())]
    return sum(each.user + each.system for each in times)


def _memory(process: psutil.Process) -> int:
    try:
        return sum(one.memory_info().rss for one in _family(process))
    except psutil.NoSuchProcess:
        return 0


def _family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


if __name__ == "__main__":
    print(json.dumps({"lakefeed": lakefeed, "spark": spark}[sys.argv[1]](Path(sys.argv[2]))))
