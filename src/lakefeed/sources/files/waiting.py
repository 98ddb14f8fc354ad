"""Files that wait behind a position: how much they weigh, where a batch of them ends, what its tasks read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.events import OffsetRange, Split
from lakefeed.sources import Allowance
from lakefeed.sources.files.ledger import FORGOTTEN, GONE, TAKEN_AWAY
from lakefeed.sources.files.offset import file_number, file_start
from lakefeed.sources.files.piece import FoundFile, Work, shared_out

_WORTH_A_TASK = 8 * 2**20
_MOST_OF_A_TASK = 128 * 2**20
FIRST_GUESS = 200.0
"""Bytes of a record, until some have shown how large they are."""
_ALL = file_start(1) - 1

Weigh = Callable[[FoundFile], Work]
"""How much a file weighs when it is read, and where it can be cut."""


class WaitingFiles:
    """The files of a ledger in the order of their numbers, each with the bytes that are read of it."""

    def __init__(self, rows: pa.Table, expansion: Callable[[pa.ChunkedArray], pa.Array]) -> None:
        self._rows = rows
        self._numbers = rows["number"].to_numpy()
        gone, self._taken_away = _is_in(rows["state"], GONE), _is_in(rows["state"], TAKEN_AWAY)
        # A file that was forgotten after it was read is in the tables of that time.
        was_read = np.asarray(rows["read_at"].is_valid().to_numpy())
        self._counted = ~gone | (_is_in(rows["state"], (FORGOTTEN,)) & was_read)
        weights = rows["size"].to_numpy() * np.asarray(expansion(rows["path"]))
        self._weights = np.where(gone | self._taken_away, 0, np.maximum(weights, 1)).astype(np.int64)
        self._until = np.concatenate([[0], np.cumsum(self._weights)])

    def bytes_between(self, start: int, end: int) -> int:
        """The bytes that wait between two offsets."""
        first, last = self._indexes(start, end)
        return int(self._until[last] - self._until[first])

    def files_between(self, start: int, end: int) -> int:
        """How many files are to be read between two offsets."""
        first, last = self._indexes(start, end)
        return int(np.count_nonzero(self._weights[first:last]))

    def rows_guessed(self, start: int, end: int, per_record: float) -> int:
        """About how many records are to be read between two offsets; one of each file at least."""
        return max(self.files_between(start, end), int(self.bytes_between(start, end) / per_record))

    def oldest(self, start: int, end: int) -> float | None:
        """When the first file between two offsets was found, in seconds since 1970."""
        first, last = self._indexes(start, end)
        there = np.flatnonzero(self._weights[first:last])
        if not len(there):
            return None
        at = self._rows["discovered_at"][first + int(there[0])]
        return float(at.cast(pa.int64()).as_py()) / 1_000_000

    def next_end(self, start: int, end: int, allowed: Allowance, per_record: float, most: int) -> int:
        """Behind as many files as fit, one at least: no batch ends inside of a file."""
        first, last = self._indexes(start, end)
        limit = min(allowed.bytes, int(allowed.rows * per_record))
        fitting = int(np.searchsorted(self._until, self._until[first] + limit, side="right")) - 1
        read = np.cumsum(self._weights[first:last] > 0)
        within = first + int(np.searchsorted(read, most, side="right"))
        # Files before the first that is to be read cost nothing, and the first always comes along.
        least = first + int(np.searchsorted(read, 1)) + 1
        chosen = min(last, max(least, min(fitting, within)))
        return end if chosen >= last else file_start(int(self._numbers[chosen]))

    def splits(self, span: OffsetRange, cores: int, weigh: Weigh) -> list[Split]:
        """Tasks of about equal weight. The range of each ends where the next one begins."""
        works = [weigh(file) for file in self.files(span.start, span.end)]
        weight = sum(work.weight for work in works)
        # Not more than cores, unless each would be too large.
        count = max(1, min(cores, weight // _WORTH_A_TASK), -(-weight // _MOST_OF_A_TASK))
        groups = list(shared_out(works, -(-weight // count))) or [[]]
        edges = [span.start, *(group[0].start for group in groups[1:]), span.end]
        return [
            (OffsetRange(span.partition, start, end, [piece.payload() for piece in group]),)
            for start, end, group in zip(edges, edges[1:], groups, strict=False)
        ]

    def files(self, start: int, end: int) -> list[FoundFile]:
        """The files that are to be read between two offsets."""
        first, last = self._indexes(start, end)
        part = self._rows.slice(first, last - first)
        part = part.filter(pa.array(self._weights[first:last] > 0))
        part = part.filter(pc.invert(_superseded(part, self._rows)))
        times = part["modified"].cast(pa.int64())
        columns = (part["number"], part["path"], part["size"], times, part["etag"])
        return [FoundFile(*row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]

    def taken_away(self, start: int, end: int) -> int:
        """How many files between two offsets were deleted or moved when every table of that time had them."""
        first, last = self._indexes(start, end)
        return int(np.count_nonzero(self._taken_away[first:last]))

    def counts(self, start: int, end: int) -> pa.ChunkedArray:
        """The records of each file that is read between two offsets; null where nobody has counted them."""
        first, last = self._indexes(start, end)
        return self._rows["rows"].slice(first, last - first).filter(pa.array(self._counted[first:last]))

    def missed(self, start: int, end: int, made: int) -> int:
        """The records between that a table could not read as it was made after they were gone.

        `made` is when, in microseconds since 1970.
        """
        first, last = self._indexes(start, end)
        part = self._rows.slice(first, last - first).filter(pa.array(self._counted[first:last]))
        part = part.filter(pc.less(part["read_at"].cast(pa.int64()), made))
        then = self._rows.filter(pc.less(self._rows["discovered_at"].cast(pa.int64()), made))
        gone = pc.or_(_superseded(part, then), pc.is_in(part["state"], value_set=pa.array(GONE)))
        return pc.sum(part["rows"].filter(gone)).as_py() or 0

    def _indexes(self, start: int, end: int) -> tuple[int, int]:
        # A position within a file does not exist: a number counts from its first offset on.
        numbers = [file_number(start + _ALL), file_number(end + _ALL)]
        first, last = np.searchsorted(self._numbers, numbers)
        return int(first), max(int(first), int(last))


def _superseded(part: pa.Table, among: pa.Table) -> pa.ChunkedArray:
    """Whether what a number stood for is gone: its path has another content, or was cleared."""
    rows = among.filter(pc.is_in(among["path"], value_set=part["path"].combine_chunks()))
    newest = rows.group_by("path").aggregate([("number", "max")])
    last = newest["number_max"].take(pc.index_in(part["path"], value_set=newest["path"]))
    now = rows.take(pc.index_in(last, value_set=rows["number"]))
    same = pc.and_(pc.equal(now["size"], part["size"]), pc.equal(now["modified"], part["modified"]))
    same = pc.and_(same, pc.fill_null(pc.equal(now["etag"], part["etag"]), True))
    return pc.or_(pc.invert(same), pc.is_in(now["state"], value_set=pa.array(TAKEN_AWAY)))


def _is_in(states: pa.ChunkedArray, some: tuple[str, ...]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray(pc.is_in(states, value_set=pa.array(some)).to_numpy(zero_copy_only=False), np.bool_)
