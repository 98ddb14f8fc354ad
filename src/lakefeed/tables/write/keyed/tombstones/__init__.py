"""Tombstones: which keys were deleted and when, so that a late older change does not bring a row back.

They are in files that no reader of the table sees, one for each commit with deletions. A `txn` of that commit
names the newest file of its pipeline, which names the older ones that still count. So tombstones come and go
with the version that they belong to. Ten files of about one size become one, with one tombstone of each key;
a file goes once all of it has expired. A tombstone without a key is a truncation: it stands for every key.

Two clocks must say that a tombstone has expired: that of this machine, by when it was written, and that of
its events, unless that has stopped (see `event_times`).
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import PurePosixPath
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefeed.columns.staged import OFFSET, PARTITION, STAGED, TIME
from lakefeed.errors import TableError
from lakefeed.stores import parallel_map
from lakefeed.tables.positions import tombstone_heads, tombstones_at, tombstones_id
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.keys import KeyIndex, Mask, Numbers, one_array, ranks, taken
from lakefeed.tables.write.keyed.tombstones.event_times import (
    CLOCK,
    DELETED_AT,
    Activity,
    Clocks,
    Expiry,
    newest_of,
    with_clocks,
)
from lakefeed.tables.write.keyed.tombstones.key_hashes import key_hashes
from lakefeed.tables.write.keyed.tombstones.segments import (
    TOMBSTONES_FOLDER,
    Columns,
    Retype,
    Segment,
    in_memory,
    merged,
    path_of,
    read_segment,
    write_names,
    write_segment,
)
from lakefeed.tables.write.spread import good, in_threads

__all__ = [
    "DELETED_AT",
    "TOLD",
    "TOMBSTONES_FOLDER",
    "Remembered",
    "TombstoneWriter",
    "Tombstones",
    "counted_for",
    "go_back",
    "referenced",
    "refuse_forgotten",
]

TOLD = pa.schema(
    [
        *(STAGED.field(name) for name in (PARTITION, OFFSET, TIME)),
        (CLOCK, pa.string()),
        (DELETED_AT, pa.int64()),
    ]
)
"""What is told of every tombstone: position, time and clock of its event, and when it was applied."""

_OLDER = b"lakefeed.older"
_REPLACED = b"lakefeed.replaced"
"""The files that counted until this one was written."""
_REPLACING = b"lakefeed.replacing"
"""Of the files that a file names, those that have replaced others: for each the oldest file that it, and
those that it has replaced, have replaced."""
_ACTIVITY = b"lakefeed.activity"
_AGE = b"lakefeed.tombstones"
"""For how many seconds tombstones count, by the file that was in force when they were written."""
_MOST_SEGMENTS = 10
"""So many files of about one size become one."""
_FEW_ROWS = 1_000
"""Files with fewer rows are of one size, as are those with fewer than ten, a hundred, ... times as many."""
_HELD_BYTES = 32 * 2**20
"""Bytes of rows that stay in memory, of the newest files."""
_NUMBERS = 1_000_000
"""A file gets one of so many numbers, which begin with the microseconds of now."""
_CLOCKS_APART = 3_600_000_000
"""Microseconds by which the clocks of a store and of a writer may differ."""
_NEVER = 2**63 - 1
_WAITING_BYTES = 32 * 2**20
"""Bytes of new tombstones that wait in memory for others."""


class Tombstones:
    """The tombstones of one table, as one process knows them. Used by one thread at a time."""

    most_optional: int | None = None
    """For so many bytes of tombstones that may be forgotten there is room; None: none may."""

    def __init__(self, rules: KeyRules, age: float, pipeline: str, retype: Retype) -> None:
        self._rules, self._age, self._id = rules, age, tombstones_id(pipeline)
        self._columns = Columns(pa.schema([]), rules.keys, rules.sequence_by, retype)
        self._segments: dict[int, Segment] = {}
        """What is known of files, by their numbers. No file ever changes."""
        self._activity = Activity(int(age * 1e6))

    def schema(self, table: LakeTable) -> pa.Schema:
        """Keys, the sequence, and what is told of every tombstone."""
        names = dict.fromkeys([*self._rules.keys, *self._rules.sequence_by])
        own = [table.schema.field(name).with_nullable(True) for name in names]
        return pa.schema([*own, *TOLD])

    def optional(self, rows: pa.Table) -> Mask:
        """Which tombstones may be forgotten where there are too many."""
        return np.zeros(rows.num_rows, np.bool_)

    def load(self, table: LakeTable, oldest: Mapping[str, int] = MappingProxyType({})) -> Remembered:
        """What counts at the version of the table for a batch with these oldest events."""
        schema = self.schema(table)
        if not self._columns.schema.equals(schema):
            # The table has got a column since, or another type.
            optional = self.optional if self.most_optional is not None else None
            self._columns = replace(self._columns, schema=schema, optional=optional)
            self._segments = {}
        known, self._segments = self._segments, {}
        chains = {head: self._chain(table, head, known) for head in tombstone_heads(table.transactions)}
        own = chains.get(table.transactions.get(self._id, 0), [])
        if own:
            self._activity.begin(self._segments[own[-1]].told.get(_ACTIVITY))
        clocks: Clocks = {}
        for segment in self._segments.values():
            clocks = newest_of(clocks, segment.clocks)
        self._activity.go_on(_now(), oldest, clocks)
        expiry = Expiry.of(int(self._age * 1e6), _now(), clocks, oldest, self._activity.stopped())
        every = sorted(self._segments.values(), key=lambda one: -one.number)
        mine = [self._segments[number] for number in own]
        return Remembered(self, table, self._columns, every, mine, expiry)

    def note(self, segment: Segment) -> None:
        """Know a file that the log may name next."""
        self._segments[segment.number] = segment

    def _chain(self, table: LakeTable, head: int, known: Mapping[int, Segment]) -> list[int]:
        """The numbers of all files of one pipeline that count, the newest last; they are known then."""
        self._know(table, head, known)
        # What a file names is all there is: those that it names need not be asked.
        older = _named(self._segments[head].told, _OLDER)
        for number in reversed(older):
            self._know(table, number, known)
        return sorted([*older, head])

    def _know(self, table: LakeTable, number: int, known: Mapping[int, Segment]) -> None:
        if number in self._segments:
            return
        room = _HELD_BYTES - sum(one.size for one in self._segments.values() if one.rows is not None)
        segment = known.get(number)
        if segment is None:
            segment = read_segment(table, number, self._columns, room)
        self._segments[number] = segment if segment.size <= room else replace(segment, rows=None)

    def forgotten(self, segments: Iterable[Segment]) -> frozenset[int]:
        """Those of some files, the newest first, of which only what must not be forgotten counts."""
        total, found = 0, set()
        for segment in segments if self.most_optional is not None else ():
            total += segment.optional
            if total > (self.most_optional or 0):
                found.add(segment.number)
        return frozenset(found)

    def distinct(self, rows: pa.Table) -> pa.Table:
        """One tombstone of each key: the newest, whichever pipeline wrote it."""
        rows = rows.combine_chunks()
        (sequence,) = ranks(rows.select(list(self._rules.sequence_by)))
        group = KeyIndex(rows, self._rules.keys).numbers + 1
        if (within_key := self._apart(rows, sequence)) is not None:
            group = group * (int(within_key.max(initial=0)) + 1) + within_key
        written, offset = (
            one_array(rows.column(name)).fill_null(-1).to_numpy(zero_copy_only=False)
            for name in (DELETED_AT, OFFSET)
        )
        order = np.lexsort((offset, written, sequence, group))
        last = np.append(np.diff(group[order]) != 0, True)[: len(order)]
        return rows if last.all() else taken(rows, np.sort(order[last]))

    def _apart(self, rows: pa.Table, sequence: Numbers) -> Numbers | None:
        """What else tombstones of one key are told apart by: without a sequence, their partitions."""
        return None if self._rules.sequence_by else ranks(rows.select([PARTITION]))[0]

    def newest(self, rows: pa.Table) -> pa.Table:
        """New tombstones without those that there is no room for."""
        if self.most_optional is None:
            return rows
        optional = np.flatnonzero(self.optional(rows))
        size = rows.nbytes * len(optional) / max(rows.num_rows, 1)
        if size <= self.most_optional:
            return rows
        keep = np.ones(rows.num_rows, np.bool_)
        keep[optional[: int(len(optional) * (1 - self.most_optional / size)) + 1]] = False
        return rows.filter(pa.array(keep))

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """What every file says, whatever it holds."""
        return {_AGE: json.dumps(self._age).encode(), _ACTIVITY: self._activity.to_json().encode()}


@dataclass(frozen=True)
class Remembered:
    """The tombstones that one version of a table has, as far as they count for a batch."""

    tombstones: Tombstones
    table: LakeTable
    columns: Columns
    segments: Sequence[Segment]
    """All files, the newest first."""
    mine: Sequence[Segment]
    """Those of the own pipeline, the oldest first."""
    expiry: Expiry

    def of(self, keys: pa.Table | None = None) -> pa.Table:
        """The truncations, and the tombstones of these keys; a few may be of others."""
        found = [one.truncations.filter(self._counts(one.truncations)) for one in self.segments]
        if keys is not None and keys.num_rows:
            hashes = np.unique(key_hashes(keys, self.columns.keys))
            asked = [(one, one.among(hashes)) for one in self.segments]
            found += self._read([(one, indexes) for one, indexes in asked if len(indexes)])
        return self._distinct(found)

    def optional(self) -> pa.Table:
        """All that may be forgotten, which there is room for."""
        found = self._read([(one, np.arange(len(one))) for one in self.segments if one.optional])
        return self._distinct([rows.filter(pa.array(self.tombstones.optional(rows))) for rows in found])

    def kept(self, segment: Segment, rows: pa.Table, forgotten: frozenset[int]) -> pa.Table:
        """Rows of a file that still count."""
        if segment.number in forgotten:
            rows = rows.filter(pa.array(~self.tombstones.optional(rows)))
        return rows.filter(self._counts(rows))

    def has_ended(self, segment: Segment) -> bool:
        """Whether nothing of a file counts any more."""
        forgotten = segment.has_optional_only and segment.number in self.tombstones.forgotten(self.segments)
        return forgotten or self.expiry.has_ended(segment.clocks)

    def _counts(self, rows: pa.Table) -> pa.Array:
        return pa.array(self.expiry.counting(rows))

    def _read(self, asked: Sequence[tuple[Segment, Numbers]]) -> list[pa.Table]:
        forgotten = self.tombstones.forgotten(self.segments)

        def read(_: pafs.FileSystem, one: tuple[Segment, Numbers]) -> pa.Table:
            segment, indexes = one
            return self.kept(segment, segment.taken(self.table, self.columns, indexes), forgotten)

        return good(in_threads(self.table.store, read, asked, 0)) if asked else []

    def _distinct(self, parts: Sequence[pa.Table]) -> pa.Table:
        rows = pa.concat_tables([self.columns.schema.empty_table(), *parts])
        return self.tombstones.distinct(rows) if rows.num_rows else rows


class TombstoneWriter:
    """Writes new tombstones of a batch, which count once the log names the last file."""

    def __init__(self, remembered: Remembered, source: str | None) -> None:
        self._known, self._source = remembered, source
        self._number = _new_number(remembered.table)
        self._waiting: list[pa.Table] = []
        self._written: list[Segment] = []

    def write(self, new: pa.Table) -> None:
        """Take new ones, with the columns of `Tombstones.schema` up to `TIME`."""
        if not new.num_rows:
            return
        if sum(rows.nbytes for rows in self._waiting) > _WAITING_BYTES:
            self._write([self._gathered()], {})
        stamped = with_clocks(new, self._source)
        stamped = stamped.append_column(DELETED_AT, pa.array(np.full(new.num_rows, _now()), pa.int64()))
        self._waiting.append(stamped.cast(self._known.columns.schema))

    def close(self) -> tuple[int, list[str]] | None:
        """The number that the log is to name, and all files; None where there are no new ones."""
        if not self._waiting:
            return None
        known, last = self._known, self._gathered()
        mine = [one for one in known.mine if not known.has_ended(one)]
        # Many at once have files of their own.
        small = [] if self._written else _of_one_size(mine, len(last))
        merged_now = {one.number for one in small}
        left = [one.number for one in mine if one.number not in merged_now]
        replaced = [one.number for one in known.mine if one.number not in left]
        replacing = {one.number: _oldest(one.told) for one in known.mine if _named(one.told, _REPLACED)}
        older = [*left, *(one.number for one in self._written)]
        self._write([*small, last], _names(older, replaced, replacing))
        return self._written[-1].number, [path_of(one.number) for one in self._written]

    def abort(self) -> None:
        """Delete what was written; what cannot be deleted stays for vacuum."""
        for segment in self._written:
            with suppress(Exception):
                self._known.table.store.delete_file(path_of(segment.number))

    def _gathered(self) -> Segment:
        """What waits, in memory."""
        tombstones = self._known.tombstones
        rows = tombstones.newest(tombstones.distinct(pa.concat_tables(self._waiting)))
        self._waiting = []
        return in_memory(self._number, rows, self._known.columns)

    def _write(self, segments: Sequence[Segment], told: Mapping[bytes, bytes]) -> None:
        """Write a file that takes the place of these."""
        known, tombstones = self._known, self._known.tombstones
        number = self._number
        self._number += 1
        forgotten = tombstones.forgotten([segments[-1], *known.segments])
        windows = merged(
            known.table, known.columns, segments,
            lambda segment, rows: known.kept(segment, rows, forgotten), tombstones.distinct,
        )  # fmt: skip
        whole = {_OLDER: b"[]", _REPLACED: b"[]", **tombstones.metadata, **told}
        written = write_segment(known.table, number, known.columns, windows, whole, _HELD_BYTES)
        tombstones.note(written)
        self._written.append(written)


def _of_one_size(segments: Sequence[Segment], count: int) -> list[Segment]:
    """The newest of these files, if they and one with so many more rows are to become one."""
    found: list[Segment] = []
    ordered = [one for one in segments if one.is_ordered]
    for limit in (_FEW_ROWS * 10**power for power in range(9)):
        last = list(takewhile(lambda one: len(one) < limit, reversed(ordered)))  # noqa: B023
        if count < limit and len(last) + 1 >= _MOST_SEGMENTS:
            found = last[::-1]
    return found


def referenced(store: pafs.FileSystem, heads: tuple[int, ...], since: float | None = None) -> set[str]:
    """The paths of all files of tombstones that count where these are the newest.

    With `since`, in seconds since 1970, also of those that were written before and counted at any time from
    then on.
    """
    found: set[int] = set()
    left: dict[int, int] = {}
    for head, told in zip(heads, _all_told(store, heads), strict=True):
        named = [*_named(told, _OLDER), head]
        found.update(named)
        left |= _replacing(told, named) | {head: _oldest(told)}
    edge = 0.0 if since is None else since * 1e6
    while since is not None and left:
        # What a file has replaced counted until it was written. If all of that is younger, so is its age.
        wanted = [
            number for number, oldest in left.items() if number > edge and oldest <= edge + _CLOCKS_APART
        ]
        left = {}
        for told in _all_told(store, wanted):
            replaced = {*_named(told, _REPLACED)} - found
            found |= replaced
            left |= _replacing(told, replaced)
    return {path_of(number) for number in found}


def _replacing(told: Mapping[bytes, bytes], numbers: Collection[int]) -> dict[int, int]:
    """Which of the files that a file names have replaced others, each with the oldest of these."""
    known = json.loads(told[_REPLACING]) if _REPLACING in told else None
    if isinstance(known, dict):
        return {int(number): oldest for number, oldest in known.items() if int(number) in numbers}
    # By earlier releases: some, or the first, which was made of all before it.
    some = sorted(numbers)[:1] if known is None else sorted({*known} & {*numbers})
    return dict.fromkeys(some, 0)


def _oldest(told: Mapping[bytes, bytes]) -> int:
    """The oldest file that a file, and those that it has replaced, have replaced."""
    replaced = _named(told, _REPLACED)
    return min([*replaced, *_replacing(told, replaced).values()], default=_NEVER)


def go_back(table: LakeTable, then: Mapping[str, int]) -> dict[str, int]:
    """The transactions by which a table has the tombstones again that it had at a version with these.

    A file that holds none names those of then, and those of now as replaced: versions from before may be gone
    back to as well, for as long as they are kept.
    """
    now, number = table.transactions, _new_number(table)
    found = {}
    for at, name in enumerate(tombstones_at(then, now)):
        heads = [then.get(name, 0), now[name]]
        tolds = list(_all_told(table.store, heads))
        older, before = (
            [*_named(told, _OLDER), head] if head else [] for head, told in zip(heads, tolds, strict=True)
        )
        replacing: dict[int, int] = {}
        for head, told in zip(heads, tolds, strict=True):
            replacing |= _replacing(told, [*older, *before]) | {head: _oldest(told)}
        told = {name: one for name, one in tolds[1].items() if name in (_AGE, _ACTIVITY)}
        told |= _names(
            older, sorted({*before} - {*older}), {n: at for n, at in replacing.items() if at < _NEVER}
        )
        write_names(table, number + at, told)
        found[name] = number + at
    return found


def _names(older: Sequence[int], replaced: Sequence[int], replacing: Mapping[int, int]) -> dict[bytes, bytes]:
    told = {_OLDER: older, _REPLACED: replaced, _REPLACING: replacing}
    return {name: json.dumps(numbers).encode() for name, numbers in told.items()}


def _new_number(table: LakeTable) -> int:
    """A number for a file. Others may write at the same time, and files are never written twice."""
    newest = max(tombstone_heads(table.transactions), default=0)
    return max(_now(), newest + 1) + secrets.randbelow(_NUMBERS)


def refuse_forgotten(store: pafs.FileSystem, transactions: Mapping[str, int], version: int) -> None:
    """Raise TableError where files of tombstones are gone that the version with these transactions names."""
    paths = sorted(referenced(store, tombstone_heads(transactions)))
    infos = store.get_file_info(paths) if paths else []
    if gone := [info.path for info in infos if info.type != pafs.FileType.File]:
        raise TableError(
            f"version {version} cannot be restored: {gone[0]} is gone, which holds the rows that were "
            "deleted by then. Late changes would bring them back.\n"
            "A vacuum has removed it; choose a newer version."
        )


def counted_for(store: pafs.FileSystem, heads: tuple[int, ...], paths: Iterable[str]) -> float:
    """For how many seconds tombstones count, by the newest file of each pipeline and the newest of all.

    Older versions of the table may name files that the newest one does not name any more. After a restore, it
    may name none at all.
    """
    names = (PurePosixPath(path).stem for path in paths)
    newest = max((int(name) for name in names if name.isdecimal()), default=None)
    files = [path_of(number) for number in {*heads, *([] if newest is None else [newest])}]
    return max((float(_told(store, path).get(_AGE, 0)) for path in files), default=0.0)


def _named(told: Mapping[bytes, bytes], key: bytes) -> list[int]:
    """The files that a file names."""
    numbers: list[int] = json.loads(told.get(key, b"[]"))
    return numbers


def _all_told(store: pafs.FileSystem, numbers: Iterable[int]) -> Iterator[dict[bytes, bytes]]:
    """What files say about themselves."""
    return parallel_map(store, lambda number: _told(store, path_of(number)), numbers)


def _told(store: pafs.FileSystem, path: str) -> dict[bytes, bytes]:
    """What a file says about itself; nothing where there is none."""
    with suppress(FileNotFoundError), store.open_input_file(path) as one:
        return dict(pq.ParquetFile(one).metadata.metadata or {})
    return {}


def _now() -> int:
    return time.time_ns() // 1_000
