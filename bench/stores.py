"""An object store beside the disk: commits into a table of many files, and throughput with a slow network.

The store is a server of moto on this machine: only ratios that are taken on one machine mean something.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from figure import Asked, Figure, say

FILES = 100_000
COMMITS = 40
ROWS = 2_000_000
LATENCY = 0.02


def measure(asked: Asked) -> Iterator[Figure]:
    from support.s3 import S3Server

    with S3Server() as s3:
        if asked.wants("commit"):
            yield from commits(asked, s3.storage, s3.create_bucket)
        if asked.wants("throughput"):
            yield from throughput(asked, s3)


def commits(asked: Asked, storage, create_bucket) -> Iterator[Figure]:  # type: ignore[no-untyped-def]
    """The time of a commit alone: its file is there already."""
    create_bucket(bucket := f"bench-{uuid4().hex[:8]}")
    files = asked.of(FILES, 1000)
    empty, full = _table(f"s3://{bucket}/empty", storage, 1), _table(f"s3://{bucket}/full", storage, files)
    times: dict[str, list[float]] = {"empty": [], "full": []}
    for number in range(COMMITS):
        # In turns, so that the noise of the machine meets both.
        for name, table in (("empty", empty), ("full", full)):
            times[name].append(_commit(table, number))
    small, large = statistics.median(times["empty"]), statistics.median(times["full"])
    yield Figure("commit into an empty table", small * 1000, "ms")
    yield Figure(
        f"commit into a table of {files:,} files",
        large * 1000,
        "ms",
        large / small,
        "an empty one",
        "at most 1.3",
        large / small <= 1.3,
    )


def _table(path: str, storage: dict[str, str], files: int):  # type: ignore[no-untyped-def]
    import pyarrow as pa

    from lakefeed.stores import open_store
    from lakefeed.tables.log.write import add_action, commit_info
    from lakefeed.tables.table import LakeTable

    store = open_store(path, storage)
    table = LakeTable.create(
        "bench",
        path,
        storage,
        store,
        schema=pa.schema([("id", pa.int64())]),
        partition_by=[],
        properties={},
        transactions={},
        commit_info={"kind": "create"},
    )
    adds = (add_action(f"{at}.parquet", 500, {}, '{"numRecords":1}', 0) for at in range(files))
    table.put([commit_info([], {}, 0), *adds])
    table.refresh()
    table.delta.create_checkpoint()
    return table


def _commit(table, number: int) -> float:  # type: ignore[no-untyped-def]
    from lakefeed.files import WrittenFile
    from lakefeed.tables.write.append import append
    from lakefeed.tables.write.mode import Change

    file = WrittenFile(f"new-{number}.parquet", 500, {}, '{"numRecords":1}', 1)
    change = Change([file], {"bench/s/0": number}, {"bench/s/0": number - 1 if number else None}, {})
    began = time.perf_counter()
    append(table, change, retries=0)
    return time.perf_counter() - began


def throughput(asked: Asked, s3) -> Iterator[Figure]:  # type: ignore[no-untyped-def]
    """Rows a second of the engine without Spark, with the default flush."""
    from support.unreliable import UnreliableStore

    os.environ["LAKEFEED_DOOR_LATENCY"] = str(LATENCY)
    with UnreliableStore(s3) as door:
        s3.create_bucket(bucket := f"bench-{uuid4().hex[:8]}")
        rows = asked.of(ROWS, 100_000)
        here = there = 0.0
        for turn in range(3):
            with tempfile.TemporaryDirectory() as folder:
                here = max(here, _rows_a_second(folder, f"{folder}/events", {}, rows))
                there = max(there, _rows_a_second(folder, f"s3://{bucket}/events{turn}", door.storage, rows))
            say(f"  turn {turn + 1}: disk {here:,.0f}, store {there:,.0f} rows/s")
    yield Figure("rows on the local disk, best of 3", here, "rows/s")
    yield Figure(
        f"rows on S3 with {LATENCY * 1000:.0f} ms for each request",
        there,
        "rows/s",
        there / here,
        "the disk",
        "at least 0.7",
        there / here >= 0.7,
    )


def _rows_a_second(folder: str, path: str, storage: dict[str, str], rows: int) -> float:
    from lakefeed import Pipeline
    from lakefeed.engine.inline import run_inline

    file = Path(folder) / "bench.yaml"
    file.write_text(
        f"""\
name: bench
sources: {{clicks: {{type: generate, rows: {rows}, partitions: 1}}}}
tables: {{events: {{path: {path}, from: clicks}}}}
storage: {json.dumps(storage)}
"""
    )
    pipeline = Pipeline.from_file(file)
    began = time.perf_counter()
    run_inline(pipeline)
    return rows / (time.perf_counter() - began)
