"""Files that wait behind a position: how much they weigh, where a batch of them ends, what its tasks read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.events import OffsetRange, Reload, Split
from lakefeed.sources import Allowance
from lakefeed.sources.files.known import (
    FREE,
    GONE,
    READ,
    REPLACED,
    TAKEN_AWAY,
    UNREADABLE,
    WAITING,
    KnownFiles,
)
from lakefeed.sources.files.ledger import Ledger
from lakefeed.sources.files.offset import file_number, file_start, numbers_of
from lakefeed.sources.files.piece import FoundFile, Work, found_files, shared_out

_WORTH_A_TASK = 8 * 2**20
_MOST_OF_A_TASK = 128 * 2**20
FIRST_GUESS = 200.0
"""Bytes of a record, until some have shown how large they are."""
_ALL = file_start(1) - 1
_AT_A_TIME = 65_536

Weigh = Callable[[FoundFile], Work]
"""How much a file weighs when it is read, and where it can be cut."""


class WaitingFiles:
    """The files of a ledger in the order of their numbers, each with the bytes that are read of it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def bytes_between(self, start: int, end: int) -> int:
        """The bytes that wait between two offsets."""
        return int(self._weights(start, end).sum(dtype=np.float64))

    def files_between(self, start: int, end: int) -> int:
        """How many files are to be read between two offsets."""
        return int(np.count_nonzero(self._weights(start, end)))

    def rows_guessed(self, start: int, end: int, per_record: float) -> int:
        """About how many records are to be read between two offsets; one of each file at least."""
        return max(self.files_between(start, end), int(self.bytes_between(start, end) / per_record))

    def oldest(self, start: int, end: int) -> float | None:
        """When the first file between two offsets was found, in seconds since 1970."""
        there = np.flatnonzero(self._weights(start, end))
        if not len(there):
            return None
        rows = self._ledger.rows_of(there[:1] + self._first(start))
        times = rows["discovered_at"].cast(pa.int64()).to_pylist()
        return float(times[0]) / 1_000_000 if times else None

    def next_end(self, start: int, end: int, allowed: Allowance, per_record: float, most: int) -> int:
        """Behind as many files as fit, one at least: no batch ends inside of a file."""
        at, last = self._first(start), self._known.span(*_numbers(start, end))[1]
        limit, files = min(allowed.bytes, int(allowed.rows * per_record)), 0
        while at < last:
            weights = self._known.weights(at, min(last, at + _AT_A_TIME)).astype(np.int64)
            read = np.cumsum(weights > 0) + files
            until = np.cumsum(weights)
            # Files before the first that is to be read cost nothing, and the first always comes along.
            beyond = (weights > 0) & (read > 1) & ((until > limit) | (read > most))
            if beyond.any():
                return file_start(at + int(np.argmax(beyond)))
            at, files, limit = at + len(weights), int(read[-1]), limit - int(until[-1])
        return end

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
        numbers = np.flatnonzero(self._weights(start, end)) + self._first(start)
        part = self._ledger.rows_of(numbers)
        return found_files(part.filter(pa.array(~self._known.superseded(part))))

    def read_again(self, numbers: Iterable[int], holds: Callable[[FoundFile], bool]) -> set[int]:
        """Those of some numbers whose files, or newer ones in their place, are read by a table that begins.

        `holds` says whether a file is as it was found.
        """
        asked = np.unique(np.fromiter(numbers, np.int64))
        heads = dict(zip(asked.tolist(), self._known.first_of(asked).tolist(), strict=True))
        rows = self._ledger.rows_of(np.unique(np.array(list(heads.values()), np.int64)))
        last = dict(zip(rows["number"].to_pylist(), self._known.last_numbers(rows).tolist(), strict=True))
        gone = pc.is_in(rows["state"], value_set=pa.array(GONE)).to_pylist()
        reads = {one: last[one] if is_gone else one for one, is_gone in zip(last, gone, strict=True)}
        now = self._ledger.rows_of(np.unique(np.array(list(reads.values()), np.int64)))
        now = now.filter(pc.invert(pc.is_in(now["state"], value_set=pa.array([*GONE, *TAKEN_AWAY]))))
        now = now.filter(pa.array(~self._known.superseded(now)))
        there = {file.number for file in found_files(now) if holds(file)}
        return {number for number, head in heads.items() if reads.get(head) in there}

    def reloads(self, start: int, end: int, *, takes_away: bool) -> list[Reload]:
        """The files between two offsets whose rows replace those of numbers that they had before."""
        numbers = np.flatnonzero(self._weights(start, end)) + self._first(start)
        part = self._ledger.rows_of(numbers)
        part = part.filter(part["replaces"].is_valid())
        rows = part.select(["path", "number", "replaces"]).to_pylist()
        return self.as_reloads(
            [(row["path"], file_start(row["number"]), row["replaces"]) for row in rows], takes_away=takes_away
        )

    def as_reloads(self, files: Sequence[tuple[str, int, int]], *, takes_away: bool) -> list[Reload]:
        """Files by their path, the first offset of their new rows and the number that they replace.

        Where `takes_away`, the source deletes or moves files, and names are used again for others.
        """
        former = [self.former(number) for *_, number in files]
        unread = [self.former(number, was_read=False) for *_, number in files]
        oldest = {
            path: min(start for start, _ in (*spans, *others))
            for (path, *_), spans, others in zip(files, former, unread, strict=True)
        }
        reused = self._reused(oldest, takes_away=takes_away)
        return [
            Reload(path, start, spans, self._ledger.base, path in reused, others)
            for (path, start, _), spans, others in zip(files, former, unread, strict=True)
        ]

    def _reused(self, oldest: Mapping[str, int], *, takes_away: bool) -> set[str]:
        """Those of some paths that were the path of another file, with an offset before the given one."""
        if not oldest:
            return set()
        end = file_number(max(oldest.values()))
        if self._known.left_out(0, end):
            # Which paths these files had is not in the ledger any more.
            return set(oldest)
        states = (*FREE, READ, UNREADABLE) if takes_away else FREE
        numbers = self._known.numbers_in(states, 0, end)
        paths, found = pa.array(list(oldest)), set[str]()
        for at in range(0, len(numbers), _AT_A_TIME):
            rows = self._ledger.rows_of(numbers[at : at + _AT_A_TIME]).select(["number", "path"])
            for row in rows.filter(pc.is_in(rows["path"], value_set=paths)).to_pylist():
                found |= {row["path"]} if file_start(row["number"]) < oldest[row["path"]] else set()
        return found

    def former(self, number: int | None, *, was_read: bool = True) -> tuple[tuple[int, int], ...]:
        """The offsets of a number, and of those that it has replaced itself, newest first.

        Those that a table may have read; without `was_read`, those that were replaced before.
        """
        found = []
        while number is not None:
            columns = ["size", "replaces", "state", "read_at"]
            (row,) = self._ledger.rows_of(np.array([number])).select(columns).to_pylist() or [{}]
            is_unread = row.get("state") == REPLACED and row["read_at"] is None
            if is_unread != was_read:
                found.append((file_start(number), file_start(number + numbers_of(row.get("size", 0)))))
            number = row.get("replaces")
        return tuple(found)

    def taken_away(self, start: int, end: int) -> int:
        """How many files between two offsets were deleted or moved when every table of that time had them."""
        return len(self._known.numbers_in(TAKEN_AWAY, *_numbers(start, end)))

    def left_out(self, start: int, end: int) -> int:
        """How many numbers between two offsets are in the ledger no more."""
        return self._known.left_out(*_numbers(start, end))

    def records(self, start: int, end: int) -> int | None:
        """The records of the files between two offsets; None where they are not all counted."""
        if self.left_out(start, end):
            return None
        counts = _counted(self._ledger.rows, *_numbers(start, end))["rows"]
        return None if counts.null_count else pc.sum(counts).as_py() or 0

    def missed(self, start: int, end: int, made: int) -> int:
        """The records between that a table could not read as it was made after they were gone.

        `made` is when, in microseconds since 1970. A file that was replaced is gone.
        """
        rows = self._ledger.rows
        part = _counted(rows, *_numbers(start, end))
        part = part.filter(pc.less(part["read_at"].cast(pa.int64()), made))
        then = rows.filter(pc.less(rows["discovered_at"].cast(pa.int64()), made))
        gone = pc.or_(_superseded(part, then), pc.is_in(part["state"], value_set=pa.array(GONE)))
        return pc.sum(part["rows"].filter(gone)).as_py() or 0

    def lost(self, start: int, end: int) -> int:
        """How many files between are read no more, and no newer content in place of theirs."""
        rows = self._ledger.rows
        part = _counted(rows, *_numbers(start, end))
        gone = pc.or_(_superseded(part, rows), pc.is_in(part["state"], value_set=pa.array(GONE)))
        part = part.filter(gone)
        now = _newest(part, rows)
        is_read = pc.is_in(now["state"], value_set=pa.array((WAITING, READ)))
        is_replaced = pc.and_(pc.equal(part["state"], REPLACED), is_read)
        lost: int = part.num_rows - (pc.sum(is_replaced).as_py() or 0)
        return lost

    @property
    def _known(self) -> KnownFiles:
        return self._ledger.known

    def _first(self, start: int) -> int:
        return self._known.span(*_numbers(start, start))[0]

    def _weights(self, start: int, end: int) -> npt.NDArray[np.float32]:
        return self._known.weights(*_numbers(start, end))


def _numbers(start: int, end: int) -> tuple[int, int]:
    # A position within a file does not exist: a number counts from its first offset on.
    return file_number(start + _ALL), file_number(end + _ALL)


def _counted(rows: pa.Table, first: int, end: int) -> pa.Table:
    """The rows from a number up to and without another whose records are in tables."""
    part = rows.filter(pc.and_(pc.greater_equal(rows["number"], first), pc.less(rows["number"], end)))
    gone = pc.is_in(part["state"], value_set=pa.array(GONE))
    # A file that was forgotten or replaced after it was read is in the tables of that time.
    was_read = pc.and_(gone, part["read_at"].is_valid())
    return part.filter(pc.or_(pc.invert(gone), was_read))


def _newest(part: pa.Table, among: pa.Table) -> pa.Table:
    """What is known of the paths of some rows by their last numbers, in the same order."""
    rows = among.filter(pc.is_in(among["path"], value_set=part["path"].combine_chunks()))
    newest = rows.group_by("path").aggregate([("number", "max")])
    last = newest["number_max"].take(pc.index_in(part["path"], value_set=newest["path"]))
    return rows.take(pc.index_in(last, value_set=rows["number"]))


def _superseded(part: pa.Table, among: pa.Table) -> pa.ChunkedArray:
    """Whether what a number stood for is gone: its path has another content, or was cleared."""
    now = _newest(part, among)
    same = pc.and_(pc.equal(now["size"], part["size"]), pc.equal(now["modified"], part["modified"]))
    same = pc.and_(same, pc.fill_null(pc.equal(now["etag"], part["etag"]), True))
    return pc.or_(pc.invert(same), pc.is_in(now["state"], value_set=pa.array(TAKEN_AWAY)))
