"""Every file of a ledger in some 25 bytes of memory: its weight, its state, hashes of path and content."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.sources.files.offset import MOST_RECORDS, numbers_of
from lakefeed.tables.write.keyed.tombstones.key_hashes import Hashes, key_hashes

WAITING, SKIPPED, READ, UNREADABLE = "waiting", "skipped", "read", "unreadable"
DELETED, MOVED, REPLACED, FORGOTTEN = "deleted", "moved", "replaced", "forgotten"
STATES = (WAITING, SKIPPED, READ, UNREADABLE, DELETED, MOVED, REPLACED, FORGOTTEN)
"""What may have become of a file, in the order in which it happens."""
GONE = (REPLACED, FORGOTTEN)
"""States of numbers that are not read any more."""
TAKEN_AWAY = (DELETED, MOVED)
"""States of files that every table had when they were taken away."""
FREE = (FORGOTTEN, *TAKEN_AWAY)
"""States in which a path means nothing any more: what comes there is another file."""
INDEXED = ("number", "path", "size", "modified", "etag", "state")
"""The columns of the ledger that this is made of."""

Numbers = npt.NDArray[np.int64]
Ranks = npt.NDArray[np.uint8]
EXPANDS = 5
"""How many times larger a compressed file is thought to be, before it is read."""
_EXPANDING = r"(?i)\.(gz|gzip|zst|zstd|bz2|xz|sz|snappy|parquet|avro)$"
_NO_FILE, _PART_OF_A_LARGE_ONE = 0, 255
_SPARE = 65_536
_SHARES = 64
_SHARE_BITS = np.uint64(58)
_NOT_MERGED = 1024
_HASHED = 256
"""Bytes of a path that are hashed at a time: all of them count."""


class KnownFiles:
    """The files of a ledger, by number and by path. Rows may be added in any order, and again.

    By number there are the bytes that are read of the file and its state; by path two hashes of 64 bits, one
    of the path and one of the content that was found, and the last number. What both hashes know is known:
    of ten million files, one in 10^24 might be another. Of all else the rows of the ledger decide.
    """

    def __init__(self, first: int = 1) -> None:
        self.first = first
        """The lowest number that the ledger has."""
        self.next_number = first
        self.last = 0
        """The highest number; 0 without a file."""
        self._weights = np.zeros(0, np.float32)
        self._ranks: Ranks = np.zeros(0, np.uint8)
        self._paths = _Paths()
        self._seen: npt.NDArray[np.bool_] | None = None

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Learn what rows of the ledger say."""
        if not rows.num_rows:
            return
        numbers = rows.column("number").to_numpy()
        sizes = rows.column("size").to_numpy()
        large = np.flatnonzero(sizes >= MOST_RECORDS)
        spans = np.ones(len(numbers), np.int64)
        spans[large] = [numbers_of(int(sizes[at])) for at in large]
        self._grow(int((numbers + spans).max()) - self.first)
        places = numbers - self.first
        new = self._ranks[places] == _NO_FILE
        np.maximum.at(self._ranks, places, ranks(rows.column("state")))
        for at in large:
            self._ranks[places[at] + 1 : places[at] + spans[at]] = _PART_OF_A_LARGE_ONE
        self.next_number = max(self.next_number, int((numbers + spans).max()))
        self.last = max(self.last, int(numbers.max()))
        if new.any():
            found = rows.filter(pa.array(new))
            expands = np.asarray(pc.match_substring_regex(found.column("path"), _EXPANDING))
            self._weights[places[new]] = np.maximum(sizes[new] * np.where(expands, EXPANDS, 1), 1)
            self._paths.add(_path_hashes(found), _content_hashes(found), numbers[new].astype(np.int32))

    def is_as_known(self, listed: pa.Table) -> npt.NDArray[np.bool_]:
        """Which of some listed files are as they were found. Those that are new or changed are not."""
        known, content, numbers = self._paths.find(_path_hashes(listed))
        if self._seen is not None:
            places = numbers[known].astype(np.int64) - self.first
            self._seen[places[places < len(self._seen)]] = True
        known &= content == _content_hashes(listed)
        known[known] = ~np.isin(self.ranks_of(numbers[known]), _FREE_RANKS)
        return known

    def watch(self) -> None:
        """From now on, note which of the files that are known by now are among listed ones."""
        self._seen = np.zeros(self.next_number - self.first, np.bool_)

    def unwatch(self) -> None:
        """Nothing is missing: what was listed since `watch` is not everything."""
        self._seen = None

    def is_missing(self, numbers: Numbers) -> npt.NDArray[np.bool_]:
        """Which numbers were not among listed files since `watch`; of others nobody knows."""
        found = np.zeros(len(numbers), np.bool_)
        if self._seen is not None:
            watched = np.flatnonzero(numbers - self.first < len(self._seen))
            found[watched] = ~self._seen[numbers[watched] - self.first]
        return found

    def has_path(self, files: pa.Table) -> npt.NDArray[np.bool_]:
        """Whether the path of each file is known, whatever became of it."""
        return self._paths.find(_path_hashes(files))[0]

    def last_numbers(self, files: pa.Table) -> Numbers:
        """The last number of the path of each file that has one."""
        known, _, numbers = self._paths.find(_path_hashes(files))
        return numbers[known].astype(np.int64)

    def newest(self, states: tuple[str, ...]) -> Numbers:
        """The last number of each path, where it is in one of these states."""
        numbers = np.sort(self._paths.numbers()).astype(np.int64)
        return numbers[self.are_in(states, numbers)]

    def superseded(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Whether what a number stood for is gone: its path has another content, or was cleared."""
        known, content, numbers = self._paths.find(_path_hashes(rows))
        same = known & (content == _content_hashes(rows))
        same[same] = ~np.isin(self.ranks_of(numbers[same]), _TAKEN_AWAY_RANKS)
        gone: npt.NDArray[np.bool_] = ~same
        return gone

    def weights(self, first: int, end: int) -> npt.NDArray[np.float32]:
        """The bytes that are read of each number from `first` up to and without `end`; perhaps 0."""
        span = self._slice(first, end)
        return np.where(_IS_READ[self._ranks[span]], self._weights[span], np.float32(0))

    def numbers_in(self, states: tuple[str, ...], first: int, end: int) -> Numbers:
        """The numbers from `first` up to and without `end` that are in one of these states."""
        span = self._slice(first, end)
        found: Numbers = np.flatnonzero(np.isin(self._ranks[span], _ranks_of(states)))
        found += span.start + self.first
        return found

    def are_in(self, states: tuple[str, ...], numbers: Numbers) -> npt.NDArray[np.bool_]:
        """Which of some numbers are in one of these states."""
        there = (numbers >= self.first) & (numbers < self.next_number)
        there[there] = np.isin(self.ranks_of(numbers[there]), _ranks_of(states))
        return there

    def span(self, first: int, end: int) -> tuple[int, int]:
        """The same numbers, without those below and above all that there are."""
        low = min(max(first, self.first), self.next_number)
        return low, max(low, min(end, self.next_number))

    def ranks_of(self, numbers: npt.NDArray[Any]) -> Ranks:
        """The rank of the state of each number; 0 where there is no file."""
        return self._ranks[numbers.astype(np.int64) - self.first]

    def left_out(self, first: int, end: int) -> int:
        """How many numbers between are in the ledger no more."""
        span = self._slice(first, end)
        before = max(0, min(end, self.first) - max(first, 1))
        return before + int(np.count_nonzero(self._ranks[span] == _NO_FILE))

    def first_of(self, numbers: Numbers) -> Numbers:
        """The number that each file has, of which these are numbers: a large one has several."""
        found = numbers.copy()
        while len(parts := np.flatnonzero(self._is_part(found))):
            found[parts] -= 1
        return found

    def _is_part(self, numbers: Numbers) -> npt.NDArray[np.bool_]:
        inside = (numbers >= self.first) & (numbers < self.next_number)
        inside[inside] = self.ranks_of(numbers[inside]) == _PART_OF_A_LARGE_ONE
        return inside

    def _slice(self, first: int, end: int) -> slice:
        first, end = self.span(first, end)
        return slice(first - self.first, end - self.first)

    def _grow(self, count: int) -> None:
        if count > len(self._ranks):
            more = count - len(self._ranks) + _SPARE + count // 16
            self._weights = np.concatenate([self._weights, np.zeros(more, np.float32)])
            self._ranks = np.concatenate([self._ranks, np.zeros(more, np.uint8)])


class _Paths:
    """The hash of the content and the last number of each path, shared out by the hash of the path.

    Each share is small, so that what a share needs to grow is little memory too.
    """

    def __init__(self) -> None:
        self._shares = [_Share() for _ in range(_SHARES)]

    def add(self, hashes: Hashes, contents: Hashes, numbers: npt.NDArray[np.int32]) -> None:
        """Take paths, perhaps such as are there: the highest number of each counts."""
        order = np.argsort(hashes)
        for share, rows in self._shared_out(hashes, order):
            share.add(_Part(hashes[rows], contents[rows], numbers[rows]))

    def find(self, hashes: Hashes) -> tuple[npt.NDArray[np.bool_], Hashes, npt.NDArray[np.int32]]:
        """Whether each path is there, and then its content and its number."""
        order = np.argsort(hashes)
        known = np.zeros(len(hashes), np.bool_)
        contents, numbers = np.zeros(len(hashes), np.uint64), np.zeros(len(hashes), np.int32)
        for share, rows in self._shared_out(hashes, order):
            for part in share.parts():
                at = np.minimum(np.searchsorted(part.hashes, hashes[rows]), len(part.hashes) - 1)
                there = (part.hashes[at] == hashes[rows]) & (part.numbers[at] > numbers[rows])
                chosen, at = rows[there], at[there]
                known[chosen], contents[chosen], numbers[chosen] = True, part.contents[at], part.numbers[at]
        return known, contents, numbers

    def numbers(self) -> npt.NDArray[np.int32]:
        """The last number of each path, in no order."""
        parts = [part for share in self._shares for part in share.united()]
        return np.concatenate([np.zeros(0, np.int32), *(part.numbers for part in parts)])

    def _shared_out(
        self, hashes: Hashes, order: npt.NDArray[np.int64]
    ) -> Iterator[tuple[_Share, npt.NDArray[np.int64]]]:
        """Each share with the rows that are in it, in the order of their hashes."""
        edges = np.searchsorted((hashes >> _SHARE_BITS)[order], np.arange(_SHARES + 1))
        for at in np.flatnonzero(np.diff(edges)).tolist():
            yield self._shares[at], order[edges[at] : edges[at + 1]]


class _Part(NamedTuple):
    """Hashes of paths, and of each the hash of its content and its number."""

    hashes: Hashes
    contents: Hashes
    numbers: npt.NDArray[np.int32]


class _Share:
    """Hashes of paths in their order, with the content and the number of each; and what is not merged yet."""

    def __init__(self) -> None:
        self._merged = _Part(np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.int32))
        self._new: list[_Part] = []
        self._new_count = 0
        self._new_is_one = True
        """Whether what is new has each path once."""

    def add(self, part: _Part) -> None:
        """Take paths, in any order."""
        self._new.append(part)
        self._new_count += len(part.hashes)
        self._new_is_one = False
        if self._new_count > _NOT_MERGED + len(self._merged.hashes) // 8:
            self._merge()

    def parts(self) -> list[_Part]:
        """All that is there, in one or two parts that are in order, with each path once."""
        if not self._new_is_one:
            self._new, self._new_is_one = [_last_of_each(self._new)], True
        return [part for part in (self._merged, *self._new) if len(part.hashes)]

    def united(self) -> list[_Part]:
        """All that is there in one part, with each path once."""
        if self._new:
            self._merge()
        return self.parts()

    def _merge(self) -> None:
        new, known = self.parts()[-1], self._merged
        at = np.searchsorted(known.hashes, new.hashes)
        there = np.zeros(len(new.hashes), np.bool_)
        inside = at < len(known.hashes)
        there[inside] = known.hashes[at[inside]] == new.hashes[inside]
        later = there.copy()
        later[there] = new.numbers[there] > known.numbers[at[there]]
        known.contents[at[later]], known.numbers[at[later]] = new.contents[later], new.numbers[later]
        at, other = at[~there], ~there
        self._merged = _Part(
            np.insert(known.hashes, at, new.hashes[other]),
            np.insert(known.contents, at, new.contents[other]),
            np.insert(known.numbers, at, new.numbers[other]),
        )
        self._new, self._new_count, self._new_is_one = [], 0, True


def _last_of_each(parts: list[_Part]) -> _Part:
    """Hashes in order, each once, with the content of the highest number."""
    hashes = np.concatenate([part.hashes for part in parts])
    contents = np.concatenate([part.contents for part in parts])
    numbers = np.concatenate([part.numbers for part in parts])
    order = np.lexsort((numbers, hashes))
    order = order[np.append(np.diff(hashes[order]) != 0, True)]
    return _Part(hashes[order], contents[order], numbers[order])


def ranks(states: pa.Array | pa.ChunkedArray) -> Ranks:
    """The ranks of states, by which the later of two counts, from 1 on."""
    found: Ranks = np.asarray(pc.index_in(states, value_set=pa.array(STATES))).astype(np.uint8) + np.uint8(1)
    return found


def _ranks_of(states: tuple[str, ...]) -> Ranks:
    return ranks(pa.array(states))


_FREE_RANKS, _TAKEN_AWAY_RANKS = _ranks_of(FREE), _ranks_of(TAKEN_AWAY)
_IS_READ = np.zeros(256, np.bool_)
_IS_READ[_ranks_of(tuple(state for state in STATES if state not in (*GONE, *TAKEN_AWAY)))] = True


def _path_hashes(files: pa.Table | pa.RecordBatch) -> Hashes:
    """64 bits of each path, of which every byte counts."""
    paths = files.column("path").cast(pa.binary())
    longest = pc.max(pc.binary_length(paths)).as_py() or 0
    parts = [pc.binary_slice(paths, at, at + _HASHED) for at in range(0, max(longest, 1), _HASHED)]
    names = [str(at) for at in range(len(parts))]
    return key_hashes(pa.table(parts, names), names)


def _content_hashes(files: pa.Table | pa.RecordBatch) -> Hashes:
    """64 bits of what tells one content of a path from the next: its size, and its etag or else its time."""
    etags, times = files.column("etag"), files.column("modified")
    marks = pc.if_else(pc.is_valid(etags), pa.scalar(None, times.type), times)
    columns = {"size": files.column("size"), "etag": etags, "modified": marks}
    return key_hashes(pa.table(columns), list(columns))
