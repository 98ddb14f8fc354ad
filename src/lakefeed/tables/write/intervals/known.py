"""The history of some keys as one version of a table has it, and what is remembered beside the table.

Only intervals that end at the first change of a key or behind it are read: what was over before stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakefeed.columns.staged import DELETE, OFFSET, OP, PARTITION, TRUNCATE
from lakefeed.tables.data_files import data_files, read_rows
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.intervals.points import IMPLIED, IN_TABLE, NEW, REMEMBERED, Points, joined_points
from lakefeed.tables.write.keyed import HistoryRules
from lakefeed.tables.write.keyed.fold import ops
from lakefeed.tables.write.keyed.keys import KeyIndex, Mask, Numbers, joined, one_array, ranks, taken
from lakefeed.tables.write.keyed.lookup import Found, find, held, matched, rows_at
from lakefeed.tables.write.keyed.tombstones import DELETED_AT
from lakefeed.tables.write.spread import Spread, in_threads

_NOBODY = np.iinfo(np.int64).max


@dataclass
class KnownRows:
    """Rows of the table that the changes may be about."""

    numbers: Numbers
    begins: Numbers
    ends: Numbers
    """-1 for an open interval."""
    match: Numbers
    indexes: Numbers


@dataclass
class Known:
    """What the changes of a batch are to be compared with."""

    table: LakeTable
    changes: pa.Table
    rules: HistoryRules
    remembered: pa.Table
    """Rows of the table without the columns of the interval, what each does, and when it was told."""
    spread: Spread = in_threads
    hold: bool = False
    """Whether files that rows leave are written again, and so better held than read twice."""
    index: KeyIndex = field(init=False)
    found: Found = field(init=False)
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
        keys = self.new.select(names)
        if self.truncations.num_rows:
            own = pa.schema([self.table.schema.field(name).with_nullable(True) for name in names])
            there = pa.Table.from_batches(read_rows(self.table, data_files(self.table), own), own)
            keys = pa.concat_tables([keys.cast(own), there]).combine_chunks()
        self.index = KeyIndex(keys, names)
        self.found = find(self.table, keys, self.index, spread=self.spread)

    def _read(self) -> None:
        """Read the intervals of these keys, rank all times, and read the rows that matter in full."""
        rules, matches = self.rules, self.found.matches
        schema = pa.schema(
            [self.table.schema.field(rules.valid_from), self.table.schema.field(rules.valid_to)]
        )
        spans = matched(self.table, matches, schema).combine_chunks()
        at, stones = self._remembered()
        known = taken(self.remembered.select([*dict.fromkeys((*rules.keys, *rules.sequence_by)), OP]), at)
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
        self.rows = KnownRows(numbers[kept], ranked[0][kept], ends[kept], which[kept], indexes[kept])
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
        self.values = pa.concat_tables(
            [nullable.empty_table(), *(_as(one, nullable) for one in bodies)]
        ).combine_chunks()

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
        first = np.full(len(self.index), truncations.min(initial=_NOBODY), np.int64)
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
        (order,) = ranks(self.new.select([PARTITION, OFFSET]))
        deletes = ops(self.new) == DELETE
        at = count + known + np.arange(self.new.num_rows)
        new = _of(self.index.find(self.new), self._new_times, NEW, deletes, at, order)
        floors = self._floor_points()
        old = joined_points([table, memory, floors])
        # Where another interval begins, nothing was deleted.
        implied = implied.chosen(~np.isin(self.pairs(implied), self.pairs(old)))
        every = joined_points([table, implied, memory, floors, new])
        return every.chosen(every.times >= self._since[every.numbers])

    def _floor_points(self) -> Points:
        """A truncation deletes every key."""
        keys, floors = len(self.index), self._floors
        numbers, times = np.repeat(np.arange(keys), len(floors)), np.tile(floors, keys)
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


def _as(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays([rows.column(one.name).cast(one.type) for one in schema], schema=schema)
