"""20,000 changes into a table of millions of rows, beside Spark's own MERGE; upsert and history.

Recent keys: half of the changes are new keys, the others are among the last 2%. Random keys: anywhere. Each
run begins with a fresh copy of the same table, whose files have 250,000 rows each. Both sides run several
times in one process. The first run, in which much is done that is never done again, does not count; of the
others the least time does. Call `python upserts.py MODE LAYOUT TABLE KEYS` to measure one of ours in a
process of its own; it prints one line of JSON.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

from figure import Asked, Figure, say  # noqa: E402

ROWS = (3_000_000, 10_000_000)
CHANGES, PER_FILE = 20_000, 250_000
WARM = 2
"""Runs that count, behind one that does not."""
MOST_MEMORY = 500
COPYING = {"random": 4, "recent": 10}
"""How many times as fast as Spark it is to be, in copy-on-write."""
MARKING = 20
"""The same in merge-on-read, with random keys."""
HISTORY = 1.3
"""How many times as much an upsert a history may cost."""


def measure(asked: Asked) -> Iterator[Figure]:
    """Every table, kind of keys and layout; peak memory is that of our process."""
    with tempfile.TemporaryDirectory(prefix="lakefeed-upserts-") as folder:
        for size in ROWS:
            rows = asked.of(size, 10 * CHANGES)
            base = Path(folder) / f"rows-{rows}"
            make(base, rows)
            if size == ROWS[0]:
                make(_with_history(base), rows, history=True)
            for keys in ("recent", "random"):
                if asked.wants(f"{size} {keys}"):
                    yield from _beside_spark(base, f"{rows:,} rows, {keys} keys", keys)
            shutil.rmtree(base)


def _with_history(base: Path) -> Path:
    """The same rows as a history: each in an open interval."""
    return base.parent / f"history{base.name}"


def _beside_spark(base: Path, what: str, keys: str) -> Iterator[Figure]:
    for layout, vectors in (("copy_on_write", False), ("merge_on_read", True)):
        ours, spark = own_process("upsert", layout, base, keys), sparks(base, keys, vectors)
        say(f"{what}, {layout}: {ours}, Spark {spark}")
        times = MARKING if vectors and keys == "random" else 0 if vectors else COPYING[keys]
        ratio = spark["s"] / ours["s"]
        goal = (f"at least {times} times", ratio >= times) if times else ("", None)
        beside = "Spark's MERGE with vectors" if vectors else "Spark's MERGE"
        yield Figure(f"{what}, {layout}", ours["s"], "s", ratio, f"as fast as {beside}", *goal)
        ratio = spark["cpu"] / max(0.01, ours["cpu"])
        yield Figure(f"{what}, {layout}, CPU", ours["cpu"], "s", ratio, f"less than {beside}")
        small = ours["peak_mb"] < MOST_MEMORY
        yield Figure(f"{what}, {layout}, memory", ours["peak_mb"], "MB", goal="under 500 MB", reached=small)
        if _with_history(base).exists():
            yield from _history(base, f"{what}, history, {layout}", keys, layout, ours["cpu"])


def _history(base: Path, what: str, keys: str, layout: str, upsert: float) -> Iterator[Figure]:
    """A history beside the upsert of the same changes, and beside Spark's MERGE."""
    ours = own_process("history", layout, _with_history(base), keys)
    spark = sparks(_with_history(base), keys, layout == "merge_on_read")
    say(f"{what}: {ours}, Spark {spark}")
    yield Figure(what, ours["s"], "s", spark["s"] / ours["s"], "as fast as Spark's MERGE")
    ratio = ours["cpu"] / max(0.01, upsert)
    goal = (f"at most {HISTORY} times", ratio <= HISTORY) if layout == "copy_on_write" else ("", None)
    yield Figure(f"{what}, CPU", ours["cpu"], "s", ratio, "an upsert", *goal)
    small = ours["peak_mb"] < MOST_MEMORY
    yield Figure(f"{what}, memory", ours["peak_mb"], "MB", goal="under 500 MB", reached=small)


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


def make(base: Path, rows: int, *, history: bool = False) -> None:
    """A table that is sorted by its key."""
    from lakefeed.files.parquet import TableWriter
    from lakefeed.tables.write.append import append
    from lakefeed.tables.write.keyed import KeyRules
    from lakefeed.tables.write.mode import Change
    from support.keyed_table import KeyedTable

    schema = _as_history(columns(np.arange(1), 1), history).schema
    table = KeyedTable(base, schema, KeyRules(("id",), ("seq",)), max_rows=PER_FILE)
    writer = TableWriter(table.table.store, table.target(table.table.shape))
    for start in range(0, rows, PER_FILE):
        part = _as_history(columns(np.arange(start, min(rows, start + PER_FILE)), 1), history)
        for batch in part.combine_chunks().to_batches():
            writer.write(batch)
    append(table.table, Change(writer.close(), {"shop/clicks/0": 0}, {"shop/clicks/0": None}, {}), retries=0)


def _as_history(rows: pa.Table, history: bool) -> pa.Table:
    if not history:
        return rows
    ends = pa.nulls(rows.num_rows, pa.int64())
    return rows.append_column("valid_from", rows.column("seq")).append_column("valid_to", ends)


def changed_keys(rows: int, keys: str) -> Any:
    chance = np.random.default_rng(7)
    if keys == "random":
        return chance.choice(rows, CHANGES, replace=False)
    # Of a table for a first look, 2% would be fewer than there are changes.
    first = min(int(rows * 0.98), rows - CHANGES)
    recent = chance.choice(np.arange(first, rows), CHANGES // 2, replace=False)
    return np.concatenate([recent, np.arange(rows, rows + CHANGES // 2)])


def own_process(mode: str, layout: str, base: Path, keys: str) -> dict[str, Any]:
    """In a process of its own, whose memory is its own."""
    command = [sys.executable, __file__, mode, layout, str(base), keys]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def ours(mode: str, layout: str, base: Path, keys: str) -> dict[str, Any]:
    """One batch into a fresh copy of the table, several times; the peak of memory is that of all."""
    from keyed import Keyed

    rows = int(base.name.partition("-")[2])
    copy = base.parent / f"copy-{layout}"
    changes, took, spent = columns(changed_keys(rows, keys), 2), [], []
    for _ in range(1 + WARM):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(base, copy)
        table = Keyed(copy, mode, layout, PER_FILE)
        change = table.staged(changes)
        began, cpu = time.monotonic(), time.process_time()
        info = table.apply(change)
        took.append(time.monotonic() - began)
        spent.append(time.process_time() - cpu)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    shutil.rmtree(copy)
    told = {name: info[name] for name in ("looked_at", "rewritten", "copied")}
    return {**_least(took, spent), "peak_mb": peak, **told}


def _least(took: list[float], spent: list[float]) -> dict[str, float]:
    """The least seconds and the least CPU seconds of the runs that count."""
    return {"s": round(min(took[1:]), 3), "cpu": round(min(spent[1:]), 3)}


def sparks(base: Path, keys: str, vectors: bool) -> dict[str, Any]:
    """Spark's MERGE, several times in one JVM."""
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
    rows, history = int(base.name.partition("-")[2]), base.name.startswith("history")
    took, spent = [], []
    context: Any = session.sparkContext
    java = psutil.Process(context._gateway.proc.pid)
    for turn in range(1 + WARM):
        # A path of its own: Delta keeps what it knows of a path, though another table lies there by now.
        copy = base.parent / f"spark-{base.name}-{keys}-{vectors}-{turn}"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(base, copy)
        if vectors:
            session.sql(
                f"ALTER TABLE delta.`{copy}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
            )
        source = base.parent / "changes.parquet"
        pq.write_table(columns(changed_keys(rows, keys), 2), source)
        session.read.parquet(str(source)).createOrReplaceTempView("changes")
        merge = _merge(copy, history=history)
        began, cpu = time.monotonic(), _spent(java)
        session.sql(merge).collect()
        took.append(time.monotonic() - began)
        spent.append(_spent(java) - cpu)
        _check(session.read.format("delta").load(str(copy)).count(), rows, keys, history)
        shutil.rmtree(copy)
    return _least(took, spent)


def _merge(table: Path, *, history: bool) -> str:
    """The changes as one MERGE. In a history, each comes twice: it closes an interval, and begins another."""
    if not history:
        return (
            f"MERGE INTO delta.`{table}` t USING changes s ON t.id = s.id "
            "WHEN MATCHED AND s.seq > t.seq THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
    names = columns(np.arange(1), 1).schema.names
    return (
        f"MERGE INTO delta.`{table}` t USING (SELECT id AS closes, * FROM changes UNION ALL "
        f"SELECT NULL AS closes, c.* FROM changes c JOIN delta.`{table}` o "
        "ON c.id = o.id AND o.valid_to IS NULL AND c.seq > o.seq) s "
        "ON t.id = s.closes AND t.valid_to IS NULL "
        "WHEN MATCHED AND s.seq > t.seq THEN UPDATE SET valid_to = s.seq "
        f"WHEN NOT MATCHED THEN INSERT ({', '.join(names)}, valid_from, valid_to) "
        f"VALUES ({', '.join(f's.{name}' for name in names)}, s.seq, NULL)"
    )


def _check(found: int, rows: int, keys: str, history: bool) -> None:
    """Spark has done the same work: in a history, every change is one row more."""
    new = CHANGES if history else CHANGES // 2 if keys == "recent" else 0
    assert found == rows + new, f"{found} rows, not {rows + new}"


def _spent(process: psutil.Process) -> float:
    """CPU seconds of a process and of those that it has started."""
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


if __name__ == "__main__":
    mode, layout, base, keys = sys.argv[1:]
    print(json.dumps(ours(mode, layout, Path(base), keys)))
