"""20,000 changes of random keys each second into 3,000,000 rows, in merge-on-read, for ten minutes.

Ten minutes of changes are applied one batch after the other, and upkeep compacts the table as it does by
default: every two seconds of changes it looks whether too many rows are deleted. Where a batch takes less
than its second, the lag is flat. In every minute, DuckDB reads the table at moments that have nothing to do
with compaction, in turn with a copy from before the first change. `--scale 6` is an hour of the same table.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from figure import Asked, Figure, say

ROWS, BATCHES, EACH_MINUTE = 3_000_000, 600, 60
LOOK, READ_EACH = 2, 13
"""Batches between two looks of upkeep, and between two readings."""
FLAT = 1.3
"""How many times as much the last minute may cost as the first."""
READ = 1.3
"""How many times as long reading may take as with a table that was just written."""


@dataclass
class _Spent:
    """CPU seconds and seconds of the clock by batch; how many times that of a fresh table a reading took."""

    cpu: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    upkeep: list[float] = field(default_factory=list)
    readings: list[float] = field(default_factory=list)


def measure(asked: Asked) -> Iterator[Figure]:
    """The cost of a second of changes in the first minute and in the last; what reading costs meanwhile."""
    from upserts import CHANGES, make

    with tempfile.TemporaryDirectory(prefix="lakefeed-lasting-") as folder:
        rows = min(ROWS, asked.of(ROWS, 10 * CHANGES))
        batches = asked.of(BATCHES, 2 * EACH_MINUTE)
        path = Path(folder) / "rows"
        make(path, rows)
        spent = _stream(path, rows, batches)
        minutes = [np.mean(spent.cpu[at : at + EACH_MINUTE]) for at in range(0, batches, EACH_MINUTE)]
        first, last = float(minutes[0]), float(minutes[-1])
        within = float(np.mean(np.array(spent.seconds) < 1.0))
        yield Figure("batches within their second", 100 * within, "%")
        flat = f"at most {FLAT} times", last <= FLAT * first
        yield Figure("CPU of a second of changes, last minute", last, "s", last / first, "the first", *flat)
        yield Figure("CPU of upkeep for a second of changes", sum(spent.upkeep) / batches, "s")
        half = spent.readings[len(spent.readings) // 2 :]
        for what, times in (
            ("DuckDB reads the table", float(np.mean(half))),
            ("the longest of it", max(half)),
        ):
            yield Figure(
                what, times, "times a fresh one", goal=f"at most {READ} times", reached=times <= READ
            )


def _stream(path: Path, rows: int, batches: int) -> _Spent:
    from keyed import Keyed
    from upserts import CHANGES, PER_FILE, columns

    table, chance = Keyed(path, "upsert", "merge_on_read", PER_FILE), np.random.default_rng(7)
    spent, read = _Spent(), _reader(path)
    for number in range(batches):
        change = table.staged(columns(chance.choice(rows, CHANGES, replace=False), number + 2))
        began, cpu = time.monotonic(), time.process_time()
        table.apply(change)
        spent.seconds.append(time.monotonic() - began)
        spent.cpu.append(time.process_time() - cpu)
        if number % LOOK == LOOK - 1 and (compacted := _compact(table.table)):
            spent.upkeep.append(compacted)
        if number % READ_EACH == READ_EACH - 1:
            spent.readings.append(read())
        if number % EACH_MINUTE == EACH_MINUTE - 1:
            say(_minute(number // EACH_MINUTE + 1, spent))
    return spent


def _minute(number: int, spent: _Spent) -> str:
    """What the last minute was like."""
    told = ", ".join(f"{one:.2f}" for one in spent.readings[-(EACH_MINUTE // READ_EACH) :])
    cpu = np.mean(spent.cpu[-EACH_MINUTE:])
    return f"minute {number}: {cpu:.2f} s CPU a batch, {len(spent.upkeep)} compactions, reading {told}"


def _compact(table: Any) -> float:
    """What upkeep does where too many rows are deleted, with its defaults; its CPU seconds."""
    from upserts import PER_FILE

    from lakefeed.pipeline.upkeep import Compact
    from lakefeed.tables.operations.checkpoint import checkpoint_now
    from lakefeed.tables.rewrite.compact import table_is_worn
    from lakefeed.tables.rewrite.tiers import due_for_compaction
    from lakefeed.upkeep.file_writer import file_writer

    spec, began = Compact(), time.process_time()
    if not table_is_worn(table, spec.max_deleted):
        return 0.0
    size = sum(file.size for file in table.live().files.values())
    full = size * PER_FILE // sum(file.rows or 0 for file in table.live().files.values())
    due = due_for_compaction(
        table, target_size=full, min_files=spec.min_files, where=None, cold_before=0.0,
        max_deleted=spec.max_deleted,
    )  # fmt: skip
    for plan, step in due:
        plan.run_step(
            table, step, {"kind": "compact", "by": "upkeep"}, lambda *given: file_writer(*given, PER_FILE)
        )
    checkpoint_now(table)
    return time.process_time() - began


def _reader(path: Path) -> Callable[[], float]:
    """Lets DuckDB read all rows, here and in a copy of the table as it is now; how many times its CPU."""
    import duckdb
    from duckdb_extensions import import_extension

    fresh = shutil.copytree(path, path.parent / "fresh")
    import_extension("delta")
    connection = duckdb.connect()
    connection.execute("LOAD delta")

    def spent(table: Path) -> float:
        began = time.process_time()
        connection.execute(f"SELECT count(*), sum(amount), max(note) FROM delta_scan('{table}')").fetchall()
        return time.process_time() - began

    def read() -> float:
        both = [(spent(path), spent(fresh)) for _ in range(4)]
        return min(one for one, _ in both) / min(other for _, other in both)

    return read
