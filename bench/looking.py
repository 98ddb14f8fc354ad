"""What it costs to look for new files where very many are known: the listing, the comparison, the memory.

`python looking.py FOLDER` is one who looks, as a process of its own, so that its memory can be told, and
`python looking.py FOLDER fill|load COUNT` one who has a ledger.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
IN_A_FOLDER = 10_000
LIMIT = 600.0
LOOKS = 3
PART = 100_000
MEGABYTE = 2**20


def looks(count: int) -> Iterator[Figure]:
    """Figures of a look at so many files that are all known."""
    with _folder() as folder:
        say(f"  making {count:,} files ...")
        _make(folder, count)
        say(f"  looking at them {LOOKS} times ...")
        command = [sys.executable, str(HERE / "looking.py"), str(folder)]
        told = subprocess.run(command, check=True, timeout=LIMIT, stdout=subprocess.PIPE).stdout
        say("  deleting them ...")
    found = json.loads(told)
    assert found["known"] == count, f"{found['known']:,} of {count:,} files were found"
    took, compared, memory = found["seconds"], found["compared"], found["megabytes"]
    yield Figure(f"listing of {count:,} known files", took, "s", goal="less than 10 s", reached=took < 10)
    yield Figure(f"of that, comparing {count:,}", compared, "s", goal="less than 1 s", reached=compared < 1)
    yield Figure(f"memory of that for {count:,}", memory, "MB", goal="less than 200 MB", reached=memory < 200)


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder that goes with all that is in it, by a program that is quicker at that than Python."""
    folder = Path(tempfile.mkdtemp(prefix="lakefeed-bench-"))
    try:
        yield folder
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True, timeout=LIMIT)


def _make(base: Path, count: int) -> None:
    """Small files, each with an inode of its own, as the ones that people drop.

    They are holes: a disk that is told of each block that is free takes minutes to delete a million of them.
    One process is quicker than several.
    """
    deadline = time.monotonic() + LIMIT
    for first in range(0, count, IN_A_FOLDER):
        assert time.monotonic() < deadline, f"{first:,} files took {LIMIT:.0f} s to make"
        folder = base / str(first // IN_A_FOLDER)
        folder.mkdir()
        at = os.open(folder, os.O_RDONLY)
        for number in range(first, min(count, first + IN_A_FOLDER)):
            file = os.open(f"{number}.json", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=at)
            os.ftruncate(file, 2)
            os.close(file)
        os.close(at)


def look(folder: str) -> dict[str, Any]:
    """List the files and compare them with the known ones, which they all are; the slowest of some looks.

    The memory is what a look takes at its most, over what the process has with all files known.
    """
    import psutil

    from lakefeed.sources.files.finding.listing import Listing
    from lakefeed.sources.files.known import KnownFiles
    from lakefeed.sources.files.ledger import found
    from lakefeed.sources.files.scope import Scope

    known, scope, comparing = KnownFiles(), Scope.of(folder), [0.0]
    for part in Listing(scope, {}).everything().in_order():
        known.add(found(part, known.next_number))

    def is_new(files: Any) -> Any:
        began = time.monotonic()
        new = ~known.is_as_known(files)
        comparing[-1] += time.monotonic() - began
        return new

    listing, seconds, peaks = Listing(scope, {}, is_new), [], []
    for _ in range(LOOKS):
        _release()
        before = psutil.Process().memory_info().rss
        began = time.monotonic()
        assert not list(listing.everything().in_order())
        seconds.append(time.monotonic() - began)
        peaks.append((_peak() - before) / MEGABYTE)
        comparing.append(0.0)
    return {
        "known": known.last,
        "seconds": max(seconds),
        "compared": max(comparing),
        "megabytes": max(peaks),
    }


def ledgers(count: int) -> Iterator[Figure]:
    """Figures of a ledger of so many files, each found and read; of none of them there is a file."""
    with _folder() as folder:
        say(f"  a ledger of {count:,} files ...")
        told = []
        for what in ("fill", "load"):
            command = [sys.executable, str(HERE / "looking.py"), str(folder), what, str(count)]
            out = subprocess.run(command, check=True, timeout=2 * LIMIT, stdout=subprocess.PIPE).stdout
            told.append(json.loads(out))
    filled, loaded = told
    memory = max(filled["megabytes"], loaded["megabytes"])
    yield Figure(
        f"memory of a ledger of {count:,} files", memory, "MB", goal="less than 500 MB", reached=memory < 500
    )
    yield Figure("of that, with all of them loaded", loaded["held"], "MB")
    yield Figure(f"start with {count:,} files", loaded["seconds"], "s")
    yield Figure(f"numbering {count:,} files, and noting that they were read", filled["seconds"], "s")


def ledger(folder: str, what: str, count: int) -> dict[str, Any]:
    """Fill a ledger, or load it; the memory is what that takes over what the process had before."""
    import numpy as np
    import psutil
    import pyarrow as pa

    from lakefeed.sources.files.known import READ
    from lakefeed.sources.files.ledger import Ledger, LedgerLocation, found, with_state

    before = psutil.Process().memory_info().rss
    began = time.monotonic()
    own = Ledger(LedgerLocation(folder, {}, "shop", "drops"))

    def of(first: int) -> Any:
        numbers = range(first, min(count, first + PART))
        paths = [f"s3://landing/orders/day=2026-11-18/{number:012}.json.gz" for number in numbers]
        etags = [f"{number * 2654435761:032x}" for number in numbers]
        times = pa.array(numbers, pa.int64()).cast(pa.timestamp("us", "UTC"))
        columns = [paths, pa.array(numbers, pa.int64()), times, etags]
        listed = pa.table(columns, ["path", "size", "modified", "etag"])
        return found(listed, own.known.next_number)

    def read(first: int) -> Any:
        rows = own.rows_of(np.arange(first + 1, min(count, first + PART) + 1))
        ones, now = [1] * rows.num_rows, [dt.datetime.now(dt.UTC)] * rows.num_rows
        return with_state(rows, READ, rows=ones, dead_letters=ones, version=ones, read_at=now)

    if what == "fill":
        own.append(of(first) for first in range(0, count, PART))
        own.append(read(first) for first in range(0, count, PART))
    assert own.known.last == count
    seconds = time.monotonic() - began
    held = (psutil.Process().memory_info().rss - before) / MEGABYTE
    return {"seconds": seconds, "held": held, "megabytes": (_peak() - before) / MEGABYTE}


def _release() -> None:
    """Give back memory that is free, and let Linux forget the highest amount that there was."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """The most memory since then, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


if __name__ == "__main__":
    folder, *more = sys.argv[1:]
    print(json.dumps(ledger(folder, more[0], int(more[1])) if more else look(folder)))
else:
    from figure import Figure, say
