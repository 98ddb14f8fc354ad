"""20,000 changes of random keys each second into 3,000,000 rows, in merge-on-read, for ten minutes.

A batch begins each second by the clock, while the scheduler of upkeep runs beside it in a thread, with its
defaults, as in a run. In every minute, DuckDB reads the table at moments that have nothing to do with
compaction, in turn with a copy from before the first change and in a process of its own. `--scale 6` is an
hour of the same table. Call `python lasting.py TABLE FRESH` for the reader: it prints, for each line that it
gets, how many times the CPU time of the fresh table a reading took.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from figure import Asked, Figure, say

ROWS, BATCHES, EACH_MINUTE, READ_EACH = 3_000_000, 600, 60, 13
READINGS = 6
"""How often each table is read for one ratio; the least counts."""
FLAT = 1.3
"""How many times as much CPU the last minute may take as the first."""
LAG = 2.0
"""Seconds that a batch may end after the second in which it was due: a step of upkeep lets it wait."""
READ = 1.3
"""How many times as long reading may take as with a table that was just written."""


@dataclass
class _Spent:
    """By batch, how late it ended and CPU seconds since the last; what steps of upkeep and readings took."""

    lags: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    readings: list[float] = field(default_factory=list)

    def minute(self, number: int) -> str:
        """What the last minute was like."""
        told = ", ".join(f"{one:.2f}" for one in self.readings[-(EACH_MINUTE // READ_EACH) :])
        cpu, lag = np.mean(self.cpu[-EACH_MINUTE:]), max(self.lags[-EACH_MINUTE:])
        return f"minute {number}: {cpu:.2f} s CPU, lag {lag:.2f} s, {len(self.steps)} steps, reading {told}"


def measure(asked: Asked) -> Iterator[Figure]:
    """How late batches are, what the second and the last minute cost, and what reading costs meanwhile."""
    from upserts import CHANGES, make

    with tempfile.TemporaryDirectory(prefix="lakefeed-lasting-") as folder:
        rows = min(ROWS, asked.of(ROWS, 10 * CHANGES))
        batches = asked.of(BATCHES, 3 * EACH_MINUTE)
        path = Path(folder) / "rows"
        make(path, rows)
        spent = _stream(path, rows, batches)
        last = float(np.percentile(spent.lags[-EACH_MINUTE:], 99))
        yield Figure("a batch ends after it was due, p50", float(np.median(spent.lags)), "s")
        yield Figure("p99 of the last minute", last, "s", goal=f"at most {LAG:g} s", reached=last <= LAG)
        # The second minute: in the first, the table has nothing to purge for a while.
        first, last = (float(np.mean(some)) for some in (spent.cpu[60:120], spent.cpu[-EACH_MINUTE:]))
        flat = f"at most {FLAT} times", last <= FLAT * first
        yield Figure("CPU of a second, last minute", last, "s", last / first, "the second minute", *flat)
        yield Figure("upkeep for a second of changes", sum(spent.steps) / batches, "s")
        half = spent.readings[len(spent.readings) // 2 :]
        for what, times in (
            ("DuckDB reads the table", float(np.mean(half))),
            ("95% of the readings", float(np.percentile(half, 95))),
            ("the longest of them", max(half)),
        ):
            reached = times <= READ
            yield Figure(what, times, "times a fresh one", goal=f"at most {READ} times", reached=reached)


def _stream(path: Path, rows: int, batches: int) -> _Spent:
    from keyed import Keyed
    from upserts import CHANGES, PER_FILE, columns

    table, chance = Keyed(path, "upsert", "merge_on_read", PER_FILE), np.random.default_rng(7)
    spent, lock = _Spent(), threading.RLock()
    with _reader(path) as read, _upkeep(table.table, lock, spent):
        began, cpu = time.monotonic(), time.process_time()
        for number in range(batches):
            change = table.staged(columns(chance.choice(rows, CHANGES, replace=False), number + 2))
            time.sleep(max(0.0, began + number - time.monotonic()))
            with lock:
                table.apply(change)
            spent.lags.append(time.monotonic() - began - number)
            spent.cpu.append(time.process_time() - cpu)
            cpu += spent.cpu[-1]
            if number % READ_EACH == READ_EACH - 1:
                threading.Thread(target=lambda: spent.readings.append(read())).start()
            if number % EACH_MINUTE == EACH_MINUTE - 1:
                say(spent.minute(number // EACH_MINUTE + 1))
    return spent


@contextmanager
def _upkeep(table: Any, lock: threading.RLock, spent: _Spent) -> Iterator[None]:
    """The scheduler of a run beside the stream, for this one table, with its defaults."""
    from upserts import PER_FILE

    from lakefeed.pipeline.upkeep import Upkeep
    from lakefeed.upkeep.jobs import UpkeepJob
    from lakefeed.upkeep.rewriter import DeltaRewriter
    from lakefeed.upkeep.schedule import Schedule
    from lakefeed.upkeep.scheduler import Scheduler

    files = table.live().files.values()
    full = sum(file.size for file in files) // len(files)
    spec = SimpleNamespace(mode="upsert", max_rows_per_file=PER_FILE)
    handle: Any = SimpleNamespace(
        name="rows", path=table.path, storage={}, sync=True, exists=True, table=table, lock=lock, spec=spec
    )
    job = UpkeepJob(handle, Upkeep(), DeltaRewriter(handle, "shop"), full, ())
    scheduler = Scheduler(
        [job],
        Schedule(Path(table.path).parent / "upkeep.json"),
        lambda event: spent.steps.append(event.seconds),
        threading.Event(),
    )
    thread = threading.Thread(target=scheduler.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        scheduler.end()
        thread.join()


@contextmanager
def _reader(path: Path) -> Iterator[Callable[[], float]]:
    """A process that reads all rows with DuckDB, here and in a copy of the table as it is now."""
    fresh = shutil.copytree(path, path.parent / "fresh")
    command = [sys.executable, __file__, str(path), str(fresh)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdin and reader.stdout
        stdin, stdout, turn = reader.stdin, reader.stdout, threading.Lock()

        def read() -> float:
            with turn:
                print(file=stdin, flush=True)
                return float(stdout.readline())

        yield read
        with turn:
            stdin.close()


def _read_when_asked(path: str, fresh: str) -> None:
    import duckdb
    from duckdb_extensions import import_extension

    import_extension("delta")
    connection = duckdb.connect()
    connection.execute("LOAD delta")

    def spent(table: str) -> float:
        began = time.process_time()
        connection.execute(f"SELECT count(*), sum(amount), max(note) FROM delta_scan('{table}')").fetchall()
        return time.process_time() - began

    for _ in sys.stdin:
        both = [(spent(path), spent(fresh)) for _ in range(READINGS)]
        print(min(one for one, _ in both) / min(other for _, other in both), flush=True)


if __name__ == "__main__":
    _read_when_asked(*sys.argv[1:])
