"""A Delta table read by Spark with Delta's own jars, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from support.jars import DELTA_FOR_SPARK, fetch, spark_jars

READ_SECONDS = 240


def read_with_spark(path: str | Path) -> pa.Table:
    """Every row of a local Delta table as Spark sees it, in no order; timestamps in UTC."""
    tests = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory(prefix="lakefeed-spark-reader-") as folder:
        out = Path(folder) / "rows.arrow"
        done = subprocess.run(
            [sys.executable, "-m", "support.spark_reader", str(Path(path).absolute()), str(out)],
            # A folder of its own: Spark leaves warehouses and scratch files where it runs.
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(tests), "PYSPARK_PYTHON": sys.executable, "TZ": "UTC"},
            capture_output=True,
            text=True,
            timeout=READ_SECONDS,
        )
        assert done.returncode == 0, f"Spark could not read {path}:\n{done.stderr[-4000:]}"
        with pa.ipc.open_file(out) as reader:
            return reader.read_all()


def delta_jars() -> list[Path]:
    """Delta's jars without those that Spark carries in a version of its own."""
    carried = {_artifact(jar) for jar in spark_jars().glob("*.jar")}
    return sorted(jar for jar in fetch(DELTA_FOR_SPARK).glob("*.jar") if _artifact(jar) not in carried)


def _artifact(jar: Path) -> str:
    return jar.stem.rpartition("-")[0]


def _read(path: str, out: str) -> None:
    # Imported here: the tests' own process must not load Spark.
    from pyspark.sql import SparkSession

    settings = {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.jars": ",".join(str(jar) for jar in delta_jars()),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        table = spark.read.format("delta").load(path).toArrow()
    finally:
        spark.stop()
    with pa.OSFile(out, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


if __name__ == "__main__":
    _read(*sys.argv[1:])
