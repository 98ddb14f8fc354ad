"""The small-file case: 9,000 files of a million rows are compacted, by Lakefeed and by Spark's OPTIMIZE.

Call `python compaction.py NAME TABLE` to measure one of them in a process of its own. It prints one line of
JSON: the time of the first and of a second run on the clock and on all cores, and the files that are left.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from figure import Asked, Figure, say

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
    from lakefeed.stores import open_store
    from lakefeed.tables.operations.operation import operation_info
    from lakefeed.tables.rewrite import compact as compaction
    from lakefeed.tables.table import LakeTable
    from lakefeed.upkeep.file_writer import file_writer

    def optimize() -> int:
        table = LakeTable.open("table", str(path), {}, open_store(str(path), {}), foreign=True)
        assert table is not None
        commit_info = operation_info("compact", by="bench")
        return compaction.run(table, compaction.plan(table), commit_info, file_writer).after.files

    return _twice(optimize)


def spark(path: Path) -> dict[str, Any]:
    import plain

    session = plain.session()
    # The session and its first read are not counted: a pipeline has a session already.
    session.read.format("delta").load(str(path)).limit(1).collect()

    def optimize() -> int:
        session.sql(f"OPTIMIZE delta.`{path}`").collect()
        return int(session.sql(f"DESCRIBE DETAIL delta.`{path}`").first()["numFiles"])

    return _twice(optimize)


def measure(asked: Asked) -> Iterator[Figure]:
    """Compact copies of one table, turn by turn."""
    with tempfile.TemporaryDirectory(prefix="lakefeed-bench-") as folder:
        say(f"  writing {FILES:,} files ...")
        make(Path(folder) / "table")
        found = {}
        for name in ("lakefeed", "spark"):
            copy = shutil.copytree(Path(folder) / "table", Path(folder) / name)
            found[name] = _alone(name, copy)
            say(f"  {name}: {found[name]}")
            shutil.rmtree(copy)
    mine, theirs = found["lakefeed"], found["spark"]
    for what, unit, figures in [
        ("clock", "s", [one["first"]["seconds"] for one in (mine, theirs)]),
        ("CPU", "s", [one["first"]["cpu"] for one in (mine, theirs)]),
        ("memory", "MB", [one["megabytes"] for one in (mine, theirs)]),
    ]:
        own, others = figures
        yield Figure(f"{FILES:,} files, {what}", own, unit, own / others, "Spark's OPTIMIZE")
        yield Figure(f"{FILES:,} files, {what}, Spark's OPTIMIZE", others, unit)


def _alone(name: str, path: Path) -> dict[str, Any]:
    """Run one of them in a process of its own, and watch the memory of it and of what it starts."""
    process = subprocess.Popen([sys.executable, __file__, name, str(path)], stdout=subprocess.PIPE, text=True)
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
