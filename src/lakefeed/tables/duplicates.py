"""Events that a table holds twice, found in its data: each position of a source may be there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefeed.stores import store_errors, store_path
from lakefeed.tables.log import LoggedFile

Origin = tuple[Any, ...]
"""The values of the columns that say which partition an offset is of."""


@dataclass(frozen=True)
class OriginColumns:
    """The columns that say where a row came from."""

    partition: tuple[str, ...]
    offset: str
    timestamp: str


OF_ROWS = OriginColumns(("_topic", "_partition"), "_offset", "_timestamp")
OF_LETTERS = OriginColumns(("pipeline", "source", "table", "topic", "partition"), "offset", "timestamp")

_BLOCK_BITS = 23
_MOST_LOOKED_INTO = 1_000


@dataclass
class Scan:
    """What a look into every file has shown."""

    rows: int = 0
    without_origin: int = 0
    """Rows in files that have no metadata columns."""
    repeated: dict[Origin, list[int]] = field(default_factory=dict)
    """Offsets whose event is there more than once, by partition; the first thousand of each."""
    highest: dict[Origin, int] = field(default_factory=dict)
    counts: Counter[Origin] = field(default_factory=Counter)
    lengths: dict[str, int] = field(default_factory=dict)
    """Rows by file, as the files themselves say."""


def scan(store: pafs.FileSystem, files: Iterable[LoggedFile], columns: OriginColumns) -> Scan:
    """Read those columns of every file. Memory: a bit for each offset, and one batch of rows.

    The same offset with another timestamp is another event: a topic that was made anew counts from 0 again.
    """
    found, seen = Scan(), _Seen()
    files = list(files)
    for file in files:
        for origin, offsets, _ in _batches(store, file, columns, found):
            seen.add(origin, offsets)
            found.counts[origin] += len(offsets)
            found.highest[origin] = max(int(offsets.max()), found.highest.get(origin, -1))
    candidates = {origin: set(offsets) for origin, offsets in seen.again.items()}
    if candidates:
        found.repeated = _repeated(store, files, columns, candidates)
    return found


class _Seen:
    """Which offsets have been met, a bit for each, in blocks that are made when they are needed."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[Origin, int], npt.NDArray[np.uint8]] = {}
        self.again: dict[Origin, list[int]] = {}

    def add(self, origin: Origin, offsets: npt.NDArray[np.int64]) -> None:
        once, counts = np.unique(offsets, return_counts=True)
        self._note(origin, once[counts > 1])
        for number in np.unique(once >> _BLOCK_BITS).tolist():
            inside = once[(once >> _BLOCK_BITS) == number]
            places = inside & ((1 << _BLOCK_BITS) - 1)
            bits = np.left_shift(1, places & 7).astype(np.uint8)
            block = self._blocks.setdefault((origin, number), np.zeros(1 << (_BLOCK_BITS - 3), np.uint8))
            self._note(origin, inside[(block[places >> 3] & bits) != 0])
            np.bitwise_or.at(block, places >> 3, bits)

    def _note(self, origin: Origin, offsets: npt.NDArray[np.int64]) -> None:
        if len(offsets):
            known = self.again.setdefault(origin, [])
            known += offsets[: _MOST_LOOKED_INTO - len(known)].tolist()


def _batches(
    store: pafs.FileSystem, file: LoggedFile, columns: OriginColumns, found: Scan
) -> Iterator[tuple[Origin, npt.NDArray[np.int64], pa.Array]]:
    """The offsets and timestamps of one file, by partition of the source; counts what it passes."""
    with store_errors(store_path(store)):
        parquet = pq.ParquetFile(store.open_input_file(file.path))
        found.lengths[file.path] = parquet.metadata.num_rows
        found.rows += parquet.metadata.num_rows
        names = [*columns.partition, columns.offset, columns.timestamp]
        if not set(names) <= set(parquet.schema_arrow.names):
            found.without_origin += parquet.metadata.num_rows
            return
        for batch in map(_plain, parquet.iter_batches(columns=names)):
            rows = batch.filter(pc.is_valid(batch.column(columns.offset)))
            found.without_origin += batch.num_rows - rows.num_rows
            yield from _by_partition(rows, columns)


def _plain(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Files that delta-rs has rewritten say that their texts are views, with which Arrow cannot do much."""
    columns = [
        column.cast(pa.string()) if pa.types.is_string_view(column.type) else column
        for column in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


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


def _repeated(
    store: pafs.FileSystem,
    files: list[LoggedFile],
    columns: OriginColumns,
    candidates: dict[Origin, set[int]],
) -> dict[Origin, list[int]]:
    counts: Counter[tuple[Origin, int, int | None]] = Counter()
    for file in files:
        for origin, offsets, moments in _batches(store, file, columns, Scan()):
            wanted = candidates.get(origin)
            if wanted:
                places = np.flatnonzero(np.isin(offsets, list(wanted)))
                times = moments.take(pa.array(places)).to_pylist()
                met = zip(offsets[places].tolist(), times, strict=True)
                counts.update((origin, offset, moment) for offset, moment in met)
    found: dict[Origin, list[int]] = {}
    for origin, offset, moment in sorted(counts, key=lambda one: (str(one[0]), one[1])):
        if counts[origin, offset, moment] > 1:
            found.setdefault(origin, []).append(offset)
    return found
