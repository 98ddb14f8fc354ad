"""Events that a table holds twice, found in its data: each position of a source may be there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefeed.columns.views import without_views
from lakefeed.stores import store_errors, store_path
from lakefeed.tables.data_files import undeleted
from lakefeed.tables.log.data_file import DataFile

Origin = tuple[Any, ...]
"""The values of the columns that say which partition an offset is of."""


@dataclass(frozen=True)
class OriginColumns:
    """The columns that say where a row came from."""

    partition: tuple[str, ...]
    offset: str
    timestamp: str

    def stored(self, names: Mapping[str, str]) -> OriginColumns:
        """The same as files call them, by what these call each column."""
        partition = tuple(names.get(name, name) for name in self.partition)
        return OriginColumns(
            partition, names.get(self.offset, self.offset), names.get(self.timestamp, self.timestamp)
        )


OF_ROWS = OriginColumns(("_topic", "_partition"), "_offset", "_timestamp")
OF_LETTERS = OriginColumns(("pipeline", "source", "table", "topic", "partition"), "offset", "timestamp")
OF_INGEST_LETTERS = OriginColumns(OF_LETTERS.partition, "offset", "event_timestamp")

_BLOCK_BITS = 16
"""8 KB: offsets of a table that feeds another begin anew, far away, with each version."""
_MOST_AT_ONCE = 2_000_000
"""Rows whose timestamps are compared in one pass over the files: 32 MB of them."""
_NO_TIME = -(2**63)


@dataclass
class Repeated:
    """Events of one partition that are there more than once."""

    events: int = 0
    rows: int = 0
    """What is too much: the copies without the first."""
    first: int = 0
    last: int = 0

    def add(self, offsets: npt.NDArray[np.int64], surplus: int) -> None:
        """Count the offsets of further events, in order."""
        self.first = min(self.first, int(offsets[0])) if self.events else int(offsets[0])
        self.last = max(self.last, int(offsets[-1]))
        self.events += len(offsets)
        self.rows += surplus


@dataclass
class Scan:
    """What a look into every file has shown."""

    rows: int = 0
    without_origin: int = 0
    """Rows in files that have no metadata columns."""
    repeated: dict[Origin, Repeated] = field(default_factory=dict)
    """All events that are there more than once, by partition."""
    highest: dict[Origin, int] = field(default_factory=dict)
    lowest: dict[Origin, int] = field(default_factory=dict)
    counts: Counter[Origin] = field(default_factory=Counter)
    lengths: dict[str, int] = field(default_factory=dict)
    """Rows by file, as the files themselves say."""


def scan(store: pafs.FileSystem, files: Iterable[DataFile], columns: OriginColumns) -> Scan:
    """Read those columns of every file. Memory: two bits for each offset, and some million timestamps.

    The same offset with another timestamp is another event: a topic that was made anew counts from 0 again.
    """
    found, seen = Scan(), _Seen()
    files = list(files)
    for file in files:
        for origin, offsets, _ in _batches(store, file, columns, found):
            seen.add(origin, offsets)
            found.counts[origin] += len(offsets)
            found.highest[origin] = max(int(offsets.max()), found.highest.get(origin, -1))
            lowest = int(offsets.min())
            found.lowest[origin] = min(lowest, found.lowest.get(origin, lowest))
    for window in seen.windows():
        _count_repeated(store, files, columns, seen, window, found)
    return found


Block = tuple[Origin, int]


class _Seen:
    """Which offsets have been met, and which of them again: a bit for each, in blocks made when needed."""

    def __init__(self) -> None:
        self._met: dict[Block, npt.NDArray[np.uint8]] = {}
        self._again: dict[Block, npt.NDArray[np.uint8]] = {}
        self._copies: Counter[Block] = Counter()

    def add(self, origin: Origin, offsets: npt.NDArray[np.int64]) -> None:
        """Note the offsets of some rows."""
        once, counts = np.unique(offsets, return_counts=True)
        for number in np.unique(once >> _BLOCK_BITS).tolist():
            here = (once >> _BLOCK_BITS) == number
            inside, copies = once[here], counts[here]
            block = self._met.setdefault((origin, number), _empty_block())
            again = (copies > 1) | _bits(block, inside)
            if again.any():
                # One more for what came before, which may have been met once: too many does no harm.
                self._copies[origin, number] += int((copies[again] + 1).sum())
                _set(self._again.setdefault((origin, number), _empty_block()), inside[again])
            _set(block, inside)

    def windows(self) -> Iterator[set[Block]]:
        """The blocks with offsets that were met again, so many at a time as memory has room for."""
        window: set[Block] = set()
        room = _MOST_AT_ONCE
        for block in sorted(self._copies, key=str):
            if window and self._copies[block] > room:
                yield window
                window, room = set(), _MOST_AT_ONCE
            window.add(block)
            room -= self._copies[block]
        if window:
            yield window

    def again(
        self, origin: Origin, offsets: npt.NDArray[np.int64], window: set[Block]
    ) -> npt.NDArray[np.bool_]:
        """Whether each offset is one that was met again, in the blocks of the window."""
        found = np.zeros(len(offsets), np.bool_)
        numbers = offsets >> _BLOCK_BITS
        for number in np.unique(numbers).tolist():
            if (origin, number) in window:
                here = numbers == number
                found[here] = _bits(self._again[origin, number], offsets[here])
        return found


def _empty_block() -> npt.NDArray[np.uint8]:
    return np.zeros(1 << (_BLOCK_BITS - 3), np.uint8)


def _bits(block: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    bits = offsets & ((1 << _BLOCK_BITS) - 1)
    found: npt.NDArray[np.bool_] = (block[bits >> 3] >> (bits & 7).astype(np.uint8)) & 1 == 1
    return found


def _set(block: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> None:
    bits = offsets & ((1 << _BLOCK_BITS) - 1)
    np.bitwise_or.at(block, bits >> 3, np.left_shift(1, bits & 7).astype(np.uint8))


def _batches(
    store: pafs.FileSystem, file: DataFile, columns: OriginColumns, found: Scan
) -> Iterator[tuple[Origin, npt.NDArray[np.int64], pa.Array]]:
    """The offsets and timestamps of one file, by partition of the source; counts what it passes."""
    with store_errors(store_path(store)):
        parquet = pq.ParquetFile(store.open_input_file(file.path))
        rows_there = parquet.metadata.num_rows - file.deleted
        found.lengths[file.path] = rows_there
        found.rows += rows_there
        names = [*columns.partition, columns.offset, columns.timestamp]
        if not set(names) <= set(parquet.schema_arrow.names):
            found.without_origin += rows_there
            return
        for batch in map(without_views, undeleted(store, file, parquet.iter_batches(columns=names))):
            rows = batch.filter(pc.is_valid(batch.column(columns.offset)))
            found.without_origin += batch.num_rows - rows.num_rows
            yield from _by_partition(rows, columns)


def _by_partition(
    rows: pa.RecordBatch, columns: OriginColumns
) -> Iterator[tuple[Origin, npt.NDArray[np.int64], pa.Array]]:
    parts = [rows.column(name) for name in columns.partition]
    for origin in set(zip(*(part.to_pylist() for part in parts), strict=True)):
        here = rows
        for name, value in zip(columns.partition, origin, strict=True):
            part = here.column(name)
            here = here.filter(pc.is_null(part) if value is None else pc.equal(part, value))
        offsets = here.column(columns.offset).to_numpy(zero_copy_only=False)
        yield origin, offsets, here.column(columns.timestamp).cast(pa.int64())


def _count_repeated(
    store: pafs.FileSystem,
    files: list[DataFile],
    columns: OriginColumns,
    seen: _Seen,
    window: set[Block],
    found: Scan,
) -> None:
    """Compare the timestamps of offsets that were met again: the same is the same event."""
    met: dict[Origin, list[npt.NDArray[np.int64]]] = {}
    for file in files:
        for origin, offsets, moments in _batches(store, file, columns, Scan()):
            again = seen.again(origin, offsets, window)
            if again.any():
                times = moments.fill_null(_NO_TIME).to_numpy(zero_copy_only=False)
                met.setdefault(origin, []).append(np.stack([offsets[again], times[again]]))
    for origin, parts in met.items():
        events, copies = np.unique(np.concatenate(parts, axis=1), axis=1, return_counts=True)
        more = copies > 1
        if more.any():
            found.repeated.setdefault(origin, Repeated()).add(events[0][more], int((copies[more] - 1).sum()))
