"""Rows of a Delta table copied through `where`: Lakefeed beside Spark's Delta source and sink; and how soon.

`python copying.py CONTENDER FOLDER` copies the table there and prints the seconds that it took.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from contender import running
from deltalake import write_deltalake
from figure import Asked, Figure, say

ROWS = 10_000_000
FILES = 20
WARM_UP = 200_000
COMMITS = 60
TIMES_SPARK = 3.0
MOST_MS = 500
_LIMIT = 1200.0


def measure(asked: Asked) -> Iterator[Figure]:
    """The same table, copied by each in a process of its own; then one commit after the other."""
    rows = asked.of(ROWS)
    with tempfile.TemporaryDirectory(prefix="lakefeed-bench-") as made_in:
        folder = Path(made_in)
        say(f"  writing {rows:,} rows ...")
        _write(folder / "source", rows, FILES)
        _write(folder / "small", min(rows, WARM_UP), 1)
        rates = {}
        for name in ("lakefeed", "spark"):
            if asked.wants(name):
                rates[name] = rows / _seconds(name, folder)
                say(f"  {name}: {rates[name]:,.0f} rows/s")
        if len(rates) == 2:
            ratio = rates["lakefeed"] / rates["spark"]
            goal = f"at least {TIMES_SPARK:g} times Spark's Delta source and sink"
            yield Figure(
                "rows copied", rates["lakefeed"], "rows/s", ratio, "Spark", goal, ratio >= TIMES_SPARK
            )
        for name, rate in rates.items():
            yield Figure(f"rows copied, {name}", rate, "rows/s")
        if asked.wants("latency"):
            yield from _latency(folder, asked.of(COMMITS, least=20))


def _write(path: Path, rows: int, files: int) -> None:
    chance = np.random.default_rng(0)
    for number in range(files):
        ids = np.arange(rows * number // files, rows * (number + 1) // files)
        table = pa.table(
            {
                "id": ids,
                "user_id": chance.integers(0, 1_000_000, len(ids)),
                "price": chance.random(len(ids)) * 100,
                "brand": pa.array(chance.integers(0, 500, len(ids))).cast(pa.string()),
                "event_time": pa.array(ids * 1000, pa.timestamp("us", "UTC")),
            }
        )
        write_deltalake(path, table, mode="append")


def _seconds(name: str, folder: Path) -> float:
    command = [sys.executable, __file__, name, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT)
    assert done.returncode == 0, done.stderr[-3000:]
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def _pipeline(folder: Path, source: str, once: str = "") -> Path:
    file = folder / f"{source}.yaml"
    file.write_text(
        f"""\
name: {source}
sources: {{rows: {{type: delta, path: {source}, flush: {{interval: 100ms, rows: 2000000}}}}}}
tables: {{copied: {{path: {source}_copied, from: rows{once}}}}}
upkeep: off
sync: false
"""
    )
    return file


def _latency(folder: Path, commits: int) -> Iterator[Figure]:
    """From a commit of one row to the commit that has it in the next table."""
    _write(folder / "live", 100, 1)
    file = _pipeline(folder, "live")
    log = folder / "live_copied" / "_delta_log"
    with running([sys.executable, "-m", "lakefeed", "run", str(file)], folder / "said"):
        version, waits = 1, []
        _await(log / f"{version:020d}.json", 180)
        for number in range(commits + 10):
            time.sleep(0.3)
            _write(folder / "live", 1, 1)
            began = time.perf_counter()
            version += 1
            _await(log / f"{version:020d}.json", 60)
            if number >= 10:
                waits.append((time.perf_counter() - began) * 1000)
    middle = statistics.median(waits)
    yield Figure("commit to commit, p50", middle, "ms", goal=f"under {MOST_MS} ms", reached=middle < MOST_MS)
    yield Figure("commit to commit, p95", statistics.quantiles(waits, n=20)[-1], "ms")


def _await(path: Path, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not come"
        time.sleep(0.002)


def _copy_with_lakefeed(folder: Path) -> float:
    from lakefeed import Pipeline
    from lakefeed.engine.spark.session import own_session

    took = 0.0
    with own_session("bench", "local[2]", {}, folder / "spark.log"):
        for source in ("small", "source"):
            pipeline = Pipeline.from_file(_pipeline(folder, source, ", where: price < 50"))
            began = time.perf_counter()
            pipeline.run(once=True)
            took = time.perf_counter() - began
    return took


def _copy_with_spark(folder: Path) -> float:
    from pyspark.sql import SparkSession

    from support.jars import delta_jars

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.jars", ",".join(str(jar) for jar in delta_jars()))
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    spark = builder.config("spark.sql.catalog.spark_catalog", catalog).getOrCreate()
    took = 0.0
    for source in ("small", "source"):
        frame = spark.readStream.format("delta").load(str(folder / source)).where("price < 50")
        began = time.perf_counter()
        writer = frame.writeStream.format("delta").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(folder / f"{source}_checkpoint"))
        writer.start(str(folder / f"{source}_by_spark")).awaitTermination()
        took = time.perf_counter() - began
    spark.stop()
    return took


if __name__ == "__main__":
    copy = {"lakefeed": _copy_with_lakefeed, "spark": _copy_with_spark}[sys.argv[1]]
    print(json.dumps({"seconds": copy(Path(sys.argv[2]))}))
