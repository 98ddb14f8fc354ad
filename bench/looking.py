"""What it costs to look for new files where very many are known: the listing, the comparison, the memory.

`python looking.py FOLDER` is one who looks, as a process of its own, so that its memory can be told.
"""

from __future__ import annotations

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

    The memory is what a look takes at its most, over what the process has with the ledger in it.
    """
    import psutil

    from lakefeed.sources.files.discovery import compare
    from lakefeed.sources.files.finding.listing import Listing
    from lakefeed.sources.files.ledger import found
    from lakefeed.sources.files.scope import Scope

    listing = Listing(Scope.of(folder), {})
    rows = found(listing.everything(), 1)
    seconds, compared, peaks = [], [], []
    for _ in range(LOOKS):
        _release()
        before = psutil.Process().memory_info().rss
        began = time.monotonic()
        files = listing.everything()
        listed_at = time.monotonic()
        differing = compare(rows, files)
        ended = time.monotonic()
        assert not differing.new.num_rows and not differing.changed.num_rows
        del files, differing
        seconds.append(ended - began)
        compared.append(ended - listed_at)
        peaks.append((_peak() - before) / MEGABYTE)
    return {
        "known": rows.num_rows,
        "seconds": max(seconds),
        "compared": max(compared),
        "megabytes": max(peaks),
    }


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
    print(json.dumps(look(sys.argv[1])))
else:
    from figure import Figure, say
