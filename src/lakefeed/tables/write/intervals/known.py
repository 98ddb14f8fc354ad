"""The history of some keys as one version of a table has it, and what is remembered beside the table.

Only intervals that end at the first change of a key or behind it are read: what was over before stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.staged import DELETE, OP, TRUNCATE
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.intervals.points import IMPLIED, IN_TABLE, NEW, REMEMBERED, Points, joined_points
from lakefeed.tables.write.keyed import HistoryRules
from lakefeed.tables.write.keyed.fold import ops, winning_kinds
from lakefeed.tables.write.keyed.keys import (
    KeyIndex,
    Mask,
    Numbers,
    by_position,
    joined,
    one_array,
    ranks,
    taken,
)
from lakefeed.tables.write.keyed.lookup import (
    Found,
    Lasting,
    find,
    find_all,
    held,
    lasting_keys,
    matched,
    rows_at,
)
from lakefeed.tables.write.keyed.tombstones import DELETED_AT, Remembered
from lakefeed.tables.write.spread import Spread, in_threads

_NOBODY = np.iinfo(np.int64).max
NO_TIME = np.iinfo(np.int64).min
"""Stands for a time that is not known."""


@dataclass
class KnownRows:
    """Rows of the table that the changes may be about."""

    numbers: Numbers
    begins: Numbers
    ends: Numbers
    """-1 for an open interval."""
    match: Numbers
    indexes: Numbers
    clocks: tuple[Numbers, Numbers]
    """The times of their begins and ends, as they are stored."""


@dataclass(frozen=True)
class KeyRange:
    """One of the ranges of keys that a large batch is decided in."""

    has: Callable[[pa.Table], Mask]
    """Which rows have keys of the range."""
    is_first: bool
    """Whether it also stands for rows without a key of now, and for truncations where they are told."""


@dataclass
class Known:
    """What the changes of a batch are to be compared with."""

    table: LakeTable
    changes: pa.Table
    rules: HistoryRules
    tombstones: Remembered
    spread: Spread = in_threads
    hold: bool = False
    """Whether files that rows leave are written again, and so better held than read twice."""
    within: KeyRange | None = None
    """The range of keys that the changes are of; None for all keys."""
    remembered: pa.Table = field(init=False)
    """Rows of the table without the columns of the interval, what each does, and when it was told."""
    index: KeyIndex = field(init=False)
    found: Found = field(init=False)
    count: int = field(init=False)
    """How many keys there are, with rows that have a key of their own: see `find_all`."""
    times: pa.Table = field(init=False)
    """The time of every rank that an interval may have."""
    values: pa.Table = field(init=False)
    """All rows that have values of points: those of the table, remembered ones, changes."""

    def __post_init__(self) -> None:
        """Read all that matters."""
        self.body = self.rules.body(self.table.schema)
        kinds = ops(self.changes)
        self.new = taken(self.changes, np.flatnonzero(kinds != TRUNCATE))
        self.truncations = taken(self.changes, np.flatnonzero(kinds == TRUNCATE))
        self._find()
        self._read()

    def _find(self) -> None:
        """The keys that the changes are about, of which a truncation makes all, and where they lie."""
        names = list(self.rules.keys)
        keys, lasting = self.new.select(names), self._lasting()
        if self.truncations.num_rows:
            own = pa.schema([self.table.schema.field(name).with_nullable(True) for name in names])
            there = lasting_keys(self.table, own, lasting)
            if self.within is not None:
                there = there.filter(pa.array(self.within.has(there)))
            keys = pa.concat_tables([keys.cast(own), there]).combine_chunks()
        self.index = KeyIndex(keys, names)
        if self.truncations.num_rows:
            # It ends rows as well that have a null in their key by now: they had another key before.
            nameless = self.tells_truncations
            self.found = find_all(self.table, self.index, names, self.spread, lasting, nameless=nameless)
        else:
            self.found = find(self.table, keys, self.index, spread=self.spread, lasting=lasting)
        self.count = max(len(self.index), int(self.found.numbers.max(initial=-1)) + 1)
        self.remembered = self.tombstones.of(keys)

    @property
    def tells_truncations(self) -> bool:
        """Whether truncations are counted and remembered here, and end rows without a key of now."""
        return self.within is None or self.within.is_first

    def _lasting(self) -> Lasting | None:
        """The rows that held at the oldest change or after it; None, for all rows, where it has no moment."""
        moments = self.changes.column(self.rules.sequence_by[0])
        if moments.null_count or not len(moments):
            return None
        return Lasting(self.table.schema.field(self.rules.valid_to), pc.min(moments))

    def _read(self) -> None:
        """Read the intervals of these keys, rank all times, and read the rows that matter in full."""
        rules, matches = self.rules, self.found.matches
        names = (rules.valid_from, rules.valid_to, *rules.time_columns)
        schema = pa.schema([self.table.schema.field(name) for name in names])
        spans = matched(self.table, matches, schema).combine_chunks()
        at, stones = self._remembered()
        timed = [rules.time_by] if rules.time_by else []
        columns = [*dict.fromkeys((*rules.keys, *rules.sequence_by, *timed)), OP]
        known = taken(self.remembered.select(columns), at)
        begin, end = (rules.times(spans.column(at)) for at in (0, 1))
        everything = [begin, end, *map(rules.sequence, (known, stones, self.truncations, self.new))]
        self.times = pa.concat_tables(everything).combine_chunks()
        ranked = ranks(*everything)
        open_ended = one_array(spans.column(1)).is_null().to_numpy(zero_copy_only=False)
        numbers = self.found.numbers
        first = self._first(ranked[5], ranked[4])
        ends = np.where(open_ended, -1, ranked[1])
        kept = open_ended | (ends >= first[numbers])
        which = np.repeat(np.arange(len(matches)), [len(match.indexes) for match in matches])
        indexes = joined([match.indexes for match in matches])
        stored = _clocks(spans, 2, len(kept)), _clocks(spans, 3, len(kept))
        clocks = stored[0][kept], stored[1][kept]
        self.rows = KnownRows(numbers[kept], ranked[0][kept], ends[kept], which[kept], indexes[kept], clocks)
        if rules.time_by:
            self._note_clocks(stored, ranked, known, stones)
        self._since = first.copy()
        np.minimum.at(self._since, self.rows.numbers, self.rows.begins)
        of_use = self._of_use(known, ranked[2], first)
        self._known, self._known_times = taken(self.remembered, at[of_use]), ranked[2][of_use]
        self._floors = np.unique(np.concatenate([ranked[3], ranked[4]]))
        self._new_times = ranked[5]
        self.known_floors, self.own_floors = ranked[3], ranked[4]
        full = self._full()
        bodies = [*full, self._known.select(self.body.names), self.new.select(self.body.names)]
        nullable = pa.schema([one.with_nullable(True) for one in self.body])
        self.values = pa.concat_tables([nullable.empty_table(), *(_as(one, nullable) for one in bodies)])

    def _note_clocks(
        self, stored: tuple[Numbers, Numbers], ranked: list[Numbers], known: pa.Table, stones: pa.Table
    ) -> None:
        """Keep the time of each change that is known, by its key and its rank; of truncations by rank."""
        name, numbers, width = self.rules.time_by, self.found.numbers, self.times.num_rows + 1
        parts = [
            (numbers, ranked[0], stored[0]),
            (numbers, ranked[1], stored[1]),
            (self.index.find(known), ranked[2], _clocks(known, name)),
            (self.index.find(self.new), ranked[5], _clocks(self.new, name)),
        ]
        pairs = np.concatenate([keys * width + ranks_ for keys, ranks_, _ in parts])
        clocks = np.concatenate([clocks for _, _, clocks in parts])
        self._clocks = _newest(pairs, clocks)
        floors = np.concatenate([_clocks(stones, name), _clocks(self.truncations, name)])
        self._floor_clocks = _newest(np.concatenate([ranked[3], ranked[4]]), floors)

    def clocks(self, points: Points) -> Numbers:
        """The time of the change that each point is, in microseconds; `NO_TIME` where it is not known."""
        found = _looked_up(self._floor_clocks, points.times)
        own = _looked_up(self._clocks, self.pairs(points))
        return np.where(own == NO_TIME, found, own)

    def _full(self) -> list[pa.Table]:
        """The rows that matter of each file."""
        files = [match.file for match in self.found.matches]
        indexes = [self.rows.indexes[self.rows.match == at] for at in range(len(files))]
        read = [file for file, some in zip(files, indexes, strict=True) if len(some)]
        self.held = held(self.table, read) if self.hold else {}
        return [
            taken(self.held[file.path].select(self.body.names), some)
            if file.path in self.held
            else rows_at(self.table, file, some, self.body)
            for file, some in zip(files, indexes, strict=True)
        ]

    def _remembered(self) -> tuple[Numbers, pa.Table]:
        """What is remembered of these keys, by its indexes, and truncations."""
        truncates = ops(self.remembered) == TRUNCATE
        own = (self.index.find(self.remembered) >= 0) & ~truncates
        return np.flatnonzero(own), taken(self.remembered, np.flatnonzero(truncates))

    def _of_use(self, known: pa.Table, times: Numbers, first: Numbers) -> Numbers:
        """Which remembered changes may make a difference, by their indexes.

        What is remembered between the begin of the interval in which the first change of a key falls and that
        change is part of that interval, all of it: the first and the last of it tell the same as all. There
        may be thousands, of a key that is told again and again to be as it was.
        """
        numbers = self.index.find(known)
        before = (times < first[numbers]) & (ops(known) != DELETE)
        at = np.flatnonzero(before & (times >= self._since[numbers]))
        pairs = numbers[at] * (self.times.num_rows + 1) + times[at]
        lowest, highest = np.full(len(self.index), _NOBODY), np.full(len(self.index), -1)
        np.minimum.at(lowest, numbers[at], pairs)
        np.maximum.at(highest, numbers[at], pairs)
        edges = at[(pairs == lowest[numbers[at]]) | (pairs == highest[numbers[at]])]
        found: Numbers = np.union1d(np.flatnonzero(~before), edges)
        return found

    def _first(self, times: Numbers, truncations: Numbers) -> Numbers:
        """By key: the time of the first change."""
        first = np.full(self.count, truncations.min(initial=_NOBODY), np.int64)
        np.minimum.at(first, self.index.find(self.new), times)
        return first

    def points(self) -> Points:
        """All that is known of these keys, and the changes."""
        rows = self.rows
        count, known = len(rows.numbers), self._known.num_rows
        table = _of(rows.numbers, rows.begins, IN_TABLE, np.zeros(count, np.bool_), np.arange(count))
        closed = rows.ends >= 0
        implied = _of(rows.numbers[closed], rows.ends[closed], IMPLIED, np.ones(closed.sum(), np.bool_))
        ordinals = np.arange(known)
        memory = _of(
            self.index.find(self._known),
            self._known_times,
            REMEMBERED,
            ops(self._known) == DELETE,
            count + ordinals,
            # Of the same key and time, what was told last counts.
            one_array(self._known.column(DELETED_AT)).to_numpy(zero_copy_only=False),
        )
        position = by_position(self.new)
        deletes, numbers = ops(self.new) == DELETE, self.index.find(self.new)
        order = np.empty(len(position), np.int64)
        winning = winning_kinds(self.new, self.rules, numbers, self._new_times)
        order[np.lexsort((position, winning))] = np.arange(len(order))
        at = count + known + np.arange(self.new.num_rows)
        new = _of(numbers, self._new_times, NEW, deletes, at, order)
        floors = self._floor_points(joined_points([table, implied, memory, new]))
        old = joined_points([table, memory, floors])
        # Where another interval begins, nothing was deleted.
        implied = implied.chosen(~np.isin(self.pairs(implied), self.pairs(old)))
        every = joined_points([table, implied, memory, floors, new])
        return every.chosen(every.times >= self._since[every.numbers])

    def _floor_points(self, others: Points) -> Points:
        """A truncation deletes every key.

        Of each key, only truncations at the time of another point count, and the first one after each point:
        between two of them nothing is left to delete. So there are no more of them than other points.
        """
        floors, width = self._floors, self.times.num_rows + 1
        at, after = (np.searchsorted(floors, others.times, side) for side in ("left", "right"))
        pairs = [
            others.numbers[there] * width + floors[found[there]]
            for found in (at, after)
            for there in [np.flatnonzero(found < len(floors))]
        ]
        numbers, times = np.divmod(np.unique(np.concatenate(pairs)), width)
        own = np.isin(times, self.own_floors) & ~np.isin(times, self.known_floors)
        points = _of(numbers, times, REMEMBERED, np.ones(len(times), np.bool_))
        # Nobody has to remember it key by key.
        return Points(
            points.numbers, points.times, np.where(own, NEW, REMEMBERED), points.deleted, points.values,
            np.full(len(times), -1, np.int64),
        )  # fmt: skip

    def pairs(self, points: Points) -> Numbers:
        """One number for the key and the time of each point."""
        pairs: Numbers = points.numbers * (self.times.num_rows + 1) + points.times
        return pairs


def _of(
    numbers: Numbers,
    times: Numbers,
    layer: int,
    deleted: Mask,
    values: Numbers | None = None,
    order: Numbers | None = None,
) -> Points:
    count = len(numbers)
    return Points(
        numbers,
        times,
        np.full(count, layer, np.int64),
        deleted,
        np.full(count, -1, np.int64) if values is None else values,
        np.zeros(count, np.int64) if order is None else order,
    )


def _clocks(rows: pa.Table, column: int | str | None, count: int = 0) -> Numbers:
    """A column of times as numbers; where the table has none, as many as there are rows."""
    if column is None or (isinstance(column, int) and column >= rows.num_columns):
        return np.full(count, NO_TIME)
    numbers = one_array(rows.column(column)).cast(pa.int64())
    return pc.fill_null(numbers, NO_TIME).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _newest(keys: Numbers, clocks: Numbers) -> tuple[Numbers, Numbers]:
    """The times by key, in order: of several for one key, the last that is known."""
    known = np.flatnonzero(clocks != NO_TIME)[::-1]
    names, at = np.unique(keys[known], return_index=True)
    return names, clocks[known][at]


def _looked_up(known: tuple[Numbers, Numbers], wanted: Numbers) -> Numbers:
    names, clocks = known
    if not len(names):
        return np.full(len(wanted), NO_TIME)
    at = np.minimum(np.searchsorted(names, wanted), len(names) - 1)
    return np.where(names[at] == wanted, clocks[at], NO_TIME)


def _as(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays([rows.column(one.name).cast(one.type) for one in schema], schema=schema)
