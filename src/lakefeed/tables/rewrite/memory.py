"""Whether a rewrite fits the memory of this machine; if not, a cluster should do it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq

from lakefeed.figures import readable_size
from lakefeed.stores import store_errors
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.table import LakeTable

_COPIES = 3
"""What sorting holds at its height: the rows, the rows in their new order, and the file that is written."""
_SHARE = 0.5
"""The part of the free memory that a rewrite may take; the stream and Spark need the rest."""
_SAMPLE_ROWS = 10_000


def beyond_memory(table: LakeTable, files: Sequence[DataFile]) -> str | None:
    """Why these files cannot be put in order at once on this machine, and what to do; None when they can.

    For clustering, which holds a partition whole. Compaction reads batch by batch and needs no more than one
    file takes.
    """
    free, needed = memory_available(), memory_needed(table, files)
    if free is None or needed <= free * _SHARE:
        return None
    return (
        f"ordering {readable_size(sum(file.size for file in files))} of files needs about "
        f"{readable_size(needed)} of memory, and {readable_size(int(free * _SHARE))} may be taken here. "
        "Set `upkeep: {engine: spark}`, or partition the table more finely."
    )


def memory_needed(table: LakeTable, files: Sequence[DataFile]) -> int:
    """Bytes that sorting the rows of some files takes, judged by the first rows of the largest."""
    if not files:
        return 0
    largest = max(files, key=lambda file: file.size)
    with store_errors(table.path), table.store.open_input_file(largest.path) as stream:
        reader = pq.ParquetFile(stream)
        batch = next(reader.iter_batches(batch_size=_SAMPLE_ROWS), None)
        rows_there = reader.metadata.num_rows
    if batch is None or not batch.num_rows:
        return 0
    per_row = batch.nbytes / batch.num_rows
    # A file that does not say how many rows it has is taken to be like the largest.
    rows = sum(file.rows or rows_there * file.size // max(1, largest.size) for file in files)
    return int(rows * per_row * _COPIES)


def memory_available() -> int | None:
    """Bytes that this process could still take, by the machine and by its container; None if unknown."""
    found = []
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")))
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        found.append(max(0, limit - used))
    return min(found, default=None)
