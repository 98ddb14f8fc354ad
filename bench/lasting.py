"""20,000 changes of random keys each second into 3,000,000 rows, in merge-on-read, for ten minutes.

Ten minutes of changes are applied one batch after the other, with the compaction of upkeep once a minute of
them: where every batch takes less than its second, the lag is flat. Then DuckDB reads the table, and the same
rows freshly written.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from figure import Asked, Figure, say

ROWS, BATCHES, EACH_MINUTE = 3_000_000, 600, 60
FLAT = 1.3
"""How many times as much the last minute may cost as the first."""
READ = 1.3
"""How many times as long reading may take as with a table that was just written."""


def measure(asked: Asked) -> Iterator[Figure]:
    """The cost of a second of changes in the first minute and in the last; what reading costs then."""
    from keyed import Keyed
    from upserts import CHANGES, PER_FILE, columns, make

    with tempfile.TemporaryDirectory(prefix="lakefeed-lasting-") as folder:
        rows, batches = asked.of(ROWS, 10 * CHANGES), asked.of(BATCHES, 2 * EACH_MINUTE)
        path = Path(folder) / "rows"
        make(path, rows)
        table, chance = Keyed(path, "upsert", "merge_on_read", PER_FILE), np.random.default_rng(7)
        seconds, spent, upkeep = [], [], 0.0
        for number in range(batches):
            keys = chance.choice(rows, CHANGES, replace=False)
            change = table.staged(columns(keys, number + 2))
            began, cpu = time.monotonic(), time.process_time()
            table.apply(change)
            seconds.append(time.monotonic() - began)
            spent.append(time.process_time() - cpu)
            if number % EACH_MINUTE == EACH_MINUTE - 1:
                upkeep += _compact(path)
                say(f"minute {number // EACH_MINUTE + 1}: {np.mean(spent[-EACH_MINUTE:]):.2f} s CPU a batch")
        first, last = (float(np.mean(some)) for some in (spent[:EACH_MINUTE], spent[-EACH_MINUTE:]))
        within = float(np.mean(np.array(seconds) < 1.0))
        yield Figure("batches within their second", 100 * within, "%")
        flat = f"at most {FLAT} times", last <= FLAT * first
        yield Figure("CPU of a second of changes, last minute", last, "s", last / first, "the first", *flat)
        yield Figure("CPU of compaction, all minutes", upkeep, "s")
        yield from _read(path)


def _compact(path: Path) -> float:
    """What upkeep does: worn files are written again, and small ones become large; its CPU seconds."""
    from lakefeed.tables.rewrite import compact
    from lakefeed.upkeep.file_writer import file_writer
    from support.delta_tables import open_any

    began, table = time.process_time(), open_any(path)
    compact.run(table, compact.plan(table), {"kind": "compact", "by": "upkeep"}, file_writer)
    return time.process_time() - began


def _read(path: Path) -> Iterator[Figure]:
    """DuckDB reads all rows, in turn here and in a fresh copy."""
    import duckdb
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake
    from duckdb_extensions import import_extension

    fresh = path.parent / "fresh"
    write_deltalake(fresh, pa.RecordBatchReader.from_stream(DeltaTable(path).scan()))
    import_extension("delta")
    with duckdb.connect() as connection:
        connection.execute("LOAD delta")

        def scan(table: Path) -> Callable[[], object]:
            query = f"SELECT count(*), sum(amount), max(note) FROM delta_scan('{table}')"
            return lambda: connection.execute(query).fetchall()

        worn, new = _fastest(scan(path), scan(fresh))
    shutil.rmtree(fresh)
    told = f"at most {READ} times", worn <= READ * new
    yield Figure("DuckDB reads the table", worn, "s", worn / new, "a fresh one", *told)


def _fastest(*readings: Callable[[], object]) -> list[float]:
    """The CPU seconds of each, the least of some turns."""
    least = [float("inf")] * len(readings)
    for _ in range(5):
        for at, read in enumerate(readings):
            began = time.process_time()
            read()
            least[at] = min(least[at], time.process_time() - began)
    return least
