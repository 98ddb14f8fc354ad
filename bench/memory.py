"""The peak of memory of the process that folds and commits changes, in cases that a driver has to hold.

Call `python memory.py CASE SCALE` to measure one in a process of its own; it prints one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

from figure import Asked, Figure, say  # noqa: E402

CHANGES, LOADED, LOADS = 500_000, 100_000, 60
DELETED, DELETIONS = 1_000_000, 35
PER_FILE = 250_000
ENOUGH = 1024
"""MB that are to be enough for every case."""
MANY = 4
"""Times as many changes show that the size of a batch does not matter."""
CASES = {
    "upsert": f"{CHANGES:,} changes in one batch, upsert",
    "feed": "the same with a change data feed",
    "deduplicate": "the same, deduplicate",
    "history": "the same, history",
    "many-upsert": f"{MANY * CHANGES:,} changes in one batch, upsert",
    "many-feed": f"{MANY * CHANGES:,} with a change data feed",
    "many-deduplicate": f"{MANY * CHANGES:,}, deduplicate",
    "many-history": f"{MANY * CHANGES:,}, history",
    "many-truncate": f"{MANY * CHANGES:,} after a truncation, upsert",
    "deleted": f"{DELETIONS * DELETED:,} deletions that are remembered: two days of 200 a second",
    "reloaded": f"a history of {LOADED:,} rows, truncated and filled {LOADS} times",
}


def measure(asked: Asked) -> Iterator[Figure]:
    """One figure for each case."""
    for case, what in CASES.items():
        if not asked.wants(what):
            continue
        command = [sys.executable, __file__, case, str(asked.scale)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
        say(f"{what}: {found}")
        peak = found["peak_mb"]
        yield Figure(what, peak, "MB", goal=f"at most {ENOUGH} MB", reached=peak <= ENOUGH)


def ours(case: str, scale: float) -> dict[str, int]:
    """The batches of a case into a new table: the memory before the first one, and the peak of all."""
    from keyed import Keyed

    from lakefeed.columns.staged import DELETE, TRUNCATE, UPSERT
    from lakefeed.tables.write.keyed import KeyRules
    from support.keyed_table import KeyedTable

    name = case.removeprefix("many-")
    modes = {"reloaded": "history", "history": "history", "deduplicate": "deduplicate"}
    mode = modes.get(name, "upsert")
    properties = {"delta.enableChangeDataFeed": "true"} if name == "feed" else {}
    scale *= MANY if case != name else 1
    with tempfile.TemporaryDirectory(prefix="lakefeed-memory-") as folder:
        schema = _rows(np.arange(1), 1, mode).schema
        KeyedTable(folder, schema, KeyRules(("id",), ("seq",)), properties=properties)
        table = Keyed(Path(folder), mode, "copy_on_write", PER_FILE)
        before, peaks = 0, []
        turns, size = {"reloaded": (LOADS, LOADED), "deleted": (DELETIONS, DELETED)}.get(case, (2, CHANGES))
        for turn in range(turns):
            # In another order than the table has.
            keys = np.random.default_rng(turn).permutation(int(size * scale))
            if case == "deleted":
                change = table.staged(_rows(keys + turn * len(keys), turn, mode), DELETE, all_of_them=True)
            else:
                op = TRUNCATE if case in ("reloaded", "many-truncate") else UPSERT
                change = table.staged(_rows(keys, turn, mode, first_at=10 * turn if op else None), op)
            before = before or _forget_peak()
            _forget_peak()
            table.apply(change)
            peaks.append(_status("VmHWM"))
        return {"before_mb": before, "peak_mb": max(peaks)}


def _rows(keys: Any, turn: int, mode: str, first_at: int | None = None) -> pa.Table:
    """Rows of about 200 bytes each; with `first_at`, the first one has a sequence before all others."""
    texts = pc.utf8_lpad(pa.array(keys).cast(pa.string()), 12, "0")
    moments = np.full(len(keys), 10 * turn + 1)
    if first_at is not None:
        moments[0] = first_at
    rows = pa.table(
        {
            "id": pc.binary_join_element_wise("0a1b2c3d-4e5f-6789-abcd-", texts, ""),
            "seq": pa.array(moments, pa.int64()),
            "pad": pc.binary_repeat(pc.binary_join_element_wise(str(turn), texts, ""), 12),
        }
    )
    if mode != "history":
        return rows
    ends = pa.nulls(len(keys), pa.int64())
    return rows.append_column("valid_from", ends).append_column("valid_to", ends)


def _forget_peak() -> int:
    """Begin a new peak; the memory that is in use."""
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(name: str) -> int:
    """What the kernel says of this process, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) // 1024


if __name__ == "__main__":
    case, scale = sys.argv[1:]
    print(json.dumps(ours(case, float(scale))))
