"""What changes make of the history that one version of a table has: which rows leave and which come.

A key's history is known from its rows, and from what is remembered beside the table: deletions, and changes
that are part of an interval with others. Only intervals that end at the first change or behind it are read:
what was over before stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakefeed.columns.staged import DELETE, OFFSET, OP, PARTITION, TRUNCATE, UPSERT
from lakefeed.tables.data_files import data_files, read_rows
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed import HistoryRules
from lakefeed.tables.write.keyed.decision import Decision
from lakefeed.tables.write.keyed.fold import ops, silences
from lakefeed.tables.write.keyed.intervals import (
    IMPLIED,
    IN_TABLE,
    NEW,
    REMEMBERED,
    Points,
    continues,
    equal,
    joined,
    runs,
    sources,
)
from lakefeed.tables.write.keyed.keys import KeyIndex, Mask, Numbers, one_array, ranks, taken
from lakefeed.tables.write.keyed.layout import Edit
from lakefeed.tables.write.keyed.lookup import Found, find, rows_at

_NOBODY = np.iinfo(np.int64).max


def decide(
    table: LakeTable, changes: pa.Table, rules: HistoryRules, remembered: pa.Table, *, replayed: bool
) -> Decision:
    """Put each change where it belongs in the history of its key."""
    return _Deciding(table, changes, rules, remembered, replayed).run()


@dataclass
class _Rows:
    """Rows of the table that the changes may be about."""

    numbers: Numbers
    begins: Numbers
    ends: Numbers
    """-1 for an open interval."""
    match: Numbers
    places: Numbers


@dataclass
class _Deciding:
    table: LakeTable
    changes: pa.Table
    rules: HistoryRules
    remembered: pa.Table
    """Rows of the table without the columns of the interval, and what each does; the newest last."""
    replayed: bool
    index: KeyIndex = field(init=False)
    found: Found = field(init=False)
    times: pa.Table = field(init=False)
    """The time of every rank that an interval may have."""
    values: pa.Table = field(init=False)
    """All rows that have values of points: those of the table, remembered ones, changes."""

    def run(self) -> Decision:
        self.body = self.rules.body(self.table.schema)
        kinds = ops(self.changes)
        self.new = taken(self.changes, np.flatnonzero(kinds != TRUNCATE))
        self.truncations = taken(self.changes, np.flatnonzero(kinds == TRUNCATE))
        self._find()
        self._read()
        points = self._points()
        columns, points = self._complete(points.sorted())
        stale = self._stale(points, columns)
        counts = self._counts(points, stale)
        keep = ~stale
        points, columns = points.chosen(keep), _filtered(columns, keep)
        before = self._times_with(points, REMEMBERED)
        counting = points.last
        points, columns = points.chosen(counting), _filtered(columns, counting)
        same = continues(points, columns, self.rules.tracked(self.body))
        rows, edits = self._outcome(points, columns, same)
        told = self._to_remember(points, columns, same, before)
        touched = sum(len(edit.gone) for edit in edits) + rows.num_rows
        return Decision(edits, rows, told, counts, touched, self.found.looked_at)

    # What is known

    def _find(self) -> None:
        """The keys that the changes are about, of which a truncation makes all, and where they lie."""
        names = list(self.rules.keys)
        keys = self.new.select(names)
        if self.truncations.num_rows:
            own = pa.schema([self.table.schema.field(name).with_nullable(True) for name in names])
            there = pa.Table.from_batches(read_rows(self.table, data_files(self.table), own), own)
            keys = pa.concat_tables([keys.cast(own), there]).combine_chunks()
        self.index = KeyIndex(keys, names)
        self.found = find(self.table, keys, self.index)

    def _read(self) -> None:
        """Read the intervals of these keys, rank all times, and read the rows that matter in full."""
        rules, matches = self.rules, self.found.matches
        schema = pa.schema(
            [self.table.schema.field(rules.valid_from), self.table.schema.field(rules.valid_to)]
        )
        parts = [rows_at(self.table, match.file, match.places, schema) for match in matches]
        spans = pa.concat_tables([schema.empty_table(), *parts]).combine_chunks()
        known, stones = self._remembered()
        begin, end = (rules.times(spans.column(at)) for at in (0, 1))
        everything = [begin, end, *map(rules.sequence, (known, stones, self.truncations, self.new))]
        self.times = pa.concat_tables(everything).combine_chunks()
        ranked = ranks(*everything)
        open_ended = one_array(spans.column(1)).is_null().to_numpy(zero_copy_only=False)
        numbers = _concat([match.numbers for match in matches])
        first = self._first(ranked[5], ranked[4])
        ends = np.where(open_ended, -1, ranked[1])
        kept = open_ended | (ends >= first[numbers])
        which = np.repeat(np.arange(len(matches)), [len(match.places) for match in matches])
        places = _concat([match.places for match in matches])
        self.rows = _Rows(numbers[kept], ranked[0][kept], ends[kept], which[kept], places[kept])
        self._known, self._known_times = known, ranked[2]
        self._floors = np.unique(np.concatenate([ranked[3], ranked[4]]))
        self._new_times, self._first_times = ranked[5], first
        self._known_floors, self._own_floors = ranked[3], ranked[4]
        full = [
            rows_at(self.table, match.file, self.rows.places[self.rows.match == at], self.body)
            for at, match in enumerate(matches)
        ]
        bodies = [*full, known.select(self.body.names), self.new.select(self.body.names)]
        nullable = pa.schema([one.with_nullable(True) for one in self.body])
        self.values = pa.concat_tables(
            [nullable.empty_table(), *(_as(one, nullable) for one in bodies)]
        ).combine_chunks()

    def _remembered(self) -> tuple[pa.Table, pa.Table]:
        """What is remembered of these keys, and truncations."""
        truncates = ops(self.remembered) == TRUNCATE
        own = (self.index.find(self.remembered) >= 0) & ~truncates
        return taken(self.remembered, np.flatnonzero(own)), taken(self.remembered, np.flatnonzero(truncates))

    def _first(self, times: Numbers, truncations: Numbers) -> Numbers:
        """By key: the time of the first change."""
        first = np.full(len(self.index), truncations.min(initial=_NOBODY), np.int64)
        np.minimum.at(first, self.index.find(self.new), times)
        return first

    def _points(self) -> Points:
        rows = self.rows
        count, known = len(rows.numbers), self._known.num_rows
        table = _of(rows.numbers, rows.begins, IN_TABLE, np.zeros(count, np.bool_), np.arange(count))
        closed = rows.ends >= 0
        implied = _of(rows.numbers[closed], rows.ends[closed], IMPLIED, np.ones(closed.sum(), np.bool_))
        place = np.arange(known)
        memory = _of(
            self.index.find(self._known),
            self._known_times,
            REMEMBERED,
            ops(self._known) == DELETE,
            count + place,
            place,
        )
        (order,) = ranks(self.new.select([PARTITION, OFFSET]))
        deletes = ops(self.new) == DELETE
        at = count + known + np.arange(self.new.num_rows)
        new = _of(self.index.find(self.new), self._new_times, NEW, deletes, at, order)
        floors = self._floor_points()
        old = joined([table, memory, floors])
        # Where another interval begins, nothing was deleted.
        implied = implied.chosen(~np.isin(self._pairs(implied), self._pairs(old)))
        since = self._first_times.copy()
        np.minimum.at(since, rows.numbers, rows.begins)
        every = joined([table, implied, memory, floors, new])
        return every.chosen(every.times >= since[every.numbers])

    def _floor_points(self) -> Points:
        """A truncation deletes every key."""
        keys, floors = len(self.index), self._floors
        numbers, times = np.repeat(np.arange(keys), len(floors)), np.tile(floors, keys)
        own = np.isin(times, self._own_floors) & ~np.isin(times, self._known_floors)
        points = _of(numbers, times, REMEMBERED, np.ones(len(times), np.bool_))
        # Nobody has to remember it key by key.
        return Points(
            points.numbers, points.times, np.where(own, NEW, REMEMBERED), points.deleted, points.values,
            np.full(len(times), -1, np.int64),
        )  # fmt: skip

    def _pairs(self, points: Points) -> Numbers:
        pairs: Numbers = points.numbers * (self.times.num_rows + 1) + points.times
        return pairs

    # What becomes of it

    def _complete(self, points: Points) -> tuple[dict[str, pa.Array], Points]:
        """The values of each sorted point, in which silent changes have those of the point before."""
        begin = self.values.num_rows - self.new.num_rows
        silent = silences(self.new, self.rules)
        own = pa.array(np.maximum(points.values, 0), mask=points.values < 0)
        columns: dict[str, pa.Array] = {}
        for name in self.body.names:
            chosen = own
            if name in silent:
                said = np.ones(self.values.num_rows, np.bool_)
                said[begin:] = silent[name]
                places = sources(points, said)
                chosen = pa.array(np.maximum(places, 0), mask=places < 0)
            columns[name] = one_array(self.values.column(name)).take(chosen)
        wrong = np.zeros(len(points), np.bool_)
        for one in self.body:
            if not one.nullable:
                wrong |= columns[one.name].is_null().to_numpy(zero_copy_only=False)
        self._partial = ~points.deleted & (points.layers == NEW) & wrong
        return columns, points

    def _stale(self, points: Points, columns: dict[str, pa.Array]) -> Mask:
        """Which new points say nothing new: the same is known already, or something that counts more."""
        stale: Mask = self._partial.copy()
        new = points.layers == NEW
        # The point before it of the same key and time that was known before.
        place = np.where(new, -1, np.arange(len(points)))
        known = np.maximum.accumulate(place) if len(place) else place
        pairs = self._pairs(points)
        at = np.flatnonzero(new & points.last & (known >= 0) & (points.layers[known] != IMPLIED))
        at = at[pairs[known[at]] == pairs[at]]
        both = at[points.deleted[at] == points.deleted[known[at]]]
        # What is sent again is behind everything of its time that has been read.
        older = at[~points.deleted[at]] if self.replayed else at[:0]
        for name in self.body.names:
            upserts = ~points.deleted[both]
            if not upserts.any():
                break
            mine, theirs = (columns[name].take(pa.array(some)) for some in (both, known[both]))
            both = both[equal(mine, theirs) | ~upserts]
        stale |= new & np.isin(pairs, pairs[np.union1d(both, older)])
        return stale

    def _counts(self, points: Points, stale: Mask) -> dict[str, int]:
        """Changes = applied + stale + folded."""
        new = (points.layers == NEW) & (points.order >= 0)
        left = points.chosen(~stale)
        counting = left.last & (left.layers == NEW) & (left.order >= 0)
        # What another change of the same batch has taken the place of.
        pairs = self._pairs(left)
        winners = pairs[left.last & (left.layers == NEW)]
        beaten = (left.layers == NEW) & (left.order >= 0) & ~left.last & np.isin(pairs, winners)
        floors = len(np.setdiff1d(self._own_floors, self._known_floors))
        total = self.changes.num_rows
        applied, folded = int(counting.sum()) + floors, int(beaten.sum())
        folded += self.truncations.num_rows - len(np.unique(self._own_floors))
        deleted = int((counting & left.deleted).sum())
        # Changes before the first interval that is read are none: there is no such change.
        assert int(new.sum()) == self.new.num_rows
        return {
            "changes": total,
            "applied": applied,
            "stale": total - applied - folded,
            "folded": folded,
            "deleted": deleted,
        }

    def _outcome(
        self, points: Points, columns: dict[str, pa.Array], same: Mask
    ) -> tuple[pa.Table, list[Edit]]:
        """The rows that come, and those that leave."""
        found = runs(points, same)
        begins = points.times[found.first]
        ends = np.where(found.ends < 0, -1, points.times[np.maximum(found.ends, 0)])
        numbers = points.numbers[found.last]
        stays, kept = self._unchanged(numbers, begins, ends, found.last, points, columns)
        come = np.flatnonzero(~stays)
        rows = self._rows(found.last[come], begins[come], ends[come], columns)
        return rows, self._edits(~kept, numbers[come])

    def _unchanged(
        self,
        numbers: Numbers,
        begins: Numbers,
        ends: Numbers,
        last: Numbers,
        points: Points,
        columns: dict[str, pa.Array],
    ) -> tuple[Mask, Mask]:
        """Which intervals are rows of the table already, and which of its rows they are."""
        rows, width = self.rows, self.times.num_rows + 1
        stays, kept = np.zeros(len(numbers), np.bool_), np.zeros(len(rows.numbers), np.bool_)
        if not len(rows.numbers) or not len(numbers):
            return stays, kept
        pairs = rows.numbers * width + rows.begins
        order = np.argsort(pairs, kind="stable")
        wanted = numbers * width + begins
        place = np.minimum(np.searchsorted(pairs[order], wanted), len(order) - 1)
        row = order[place]
        at = np.flatnonzero((pairs[row] == wanted) & (rows.ends[row] == ends))
        moved = at[points.values[last[at]] != row[at]]
        alike = np.ones(len(moved), np.bool_)
        for name in self.body.names:
            if alike.any():
                mine = columns[name].take(pa.array(last[moved]))
                alike &= equal(mine, one_array(self.values.column(name)).take(pa.array(row[moved])))
        at = np.setdiff1d(at, moved[~alike])
        stays[at] = True
        kept[row[at]] = True
        return stays, kept

    def _rows(self, last: Numbers, begins: Numbers, ends: Numbers, columns: dict[str, pa.Array]) -> pa.Table:
        place = self._place_of_rank()
        rules, schema = self.rules, self.table.schema
        made: dict[str, pa.Array] = {
            rules.valid_from: rules.moments(self.times, pa.array(place[begins])),
            rules.valid_to: rules.moments(self.times, pa.array(place[np.maximum(ends, 0)], mask=ends < 0)),
        }
        if rules.is_current:
            made[rules.is_current] = pa.array(ends < 0)
        arrays = [
            (made[one.name] if one.name in made else columns[one.name].take(pa.array(last))).cast(one.type)
            for one in schema
        ]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _edits(self, leaves: Mask, come: Numbers) -> list[Edit]:
        """By file: which rows leave it, and which new rows are of the same keys."""
        edits = []
        for at, match in enumerate(self.found.matches):
            mine = leaves & (self.rows.match == at)
            if mine.any():
                own = np.flatnonzero(np.isin(come, self.rows.numbers[mine]))
                gone = np.sort(self.rows.places[mine])
                edits.append(Edit(match.file, gone, own, match.span, match.is_sorted))
        return edits

    # What is to be remembered

    def _times_with(self, points: Points, layer: int) -> Numbers:
        return np.unique(self._pairs(points.chosen(points.layers == layer)))

    def _to_remember(
        self, points: Points, columns: dict[str, pa.Array], same: Mask, known: Numbers
    ) -> pa.Table:
        """Deletions, changes within an interval of several, and what corrects something remembered."""
        follows = np.append(same[1:], False) if len(same) else same
        new = points.layers == NEW
        wanted = new & points.deleted & (points.order >= 0)
        wanted |= (same | follows) & (points.layers != REMEMBERED)
        wanted |= new & ~points.deleted & np.isin(self._pairs(points), known)
        at = np.flatnonzero(wanted)
        kinds = np.where(points.deleted[at], DELETE, UPSERT).astype(np.int8)
        arrays = [columns[name].take(pa.array(at)) for name in self.body.names]
        told = pa.table(arrays, names=self.body.names).append_column(OP, pa.array(kinds))
        told = self._with_deleted(told, points, at)
        return _with_position(pa.concat_tables([told, self._new_truncations(told.schema)]))

    def _with_deleted(self, told: pa.Table, points: Points, at: Numbers) -> pa.Table:
        """Deletions have no values: only a key and a time."""
        rows = points.values[at]
        moments = taken(self.times, self._place_of_rank()[points.times[at]])
        for name in (*self.rules.keys, *self.rules.sequence_by):
            place = told.schema.get_field_index(name)
            own = one_array(self.values.column(name)).take(pa.array(np.maximum(rows, 0)))
            if name in self.rules.sequence_by:
                # A row of several changes has the last one's, and begins with the first.
                own = one_array(moments.column(name))
            told = told.set_column(place, told.schema.field(place), own)
        return told

    def _place_of_rank(self) -> Numbers:
        """By rank: a place in `times` that has it."""
        (every,) = ranks(self.times)
        place = np.zeros(len(every) + 1, np.int64)
        place[every] = np.arange(len(every))
        return place

    def _new_truncations(self, schema: pa.Schema) -> pa.Table:
        own = self._own_floors
        places = np.unique(own, return_index=True)[1]
        places = places[~np.isin(own[places], self._known_floors)]
        rows = taken(self.truncations, places)
        arrays = [
            rows.column(one.name)
            if one.name in self.rules.sequence_by
            else pa.array(np.full(rows.num_rows, TRUNCATE, np.int8))
            if one.name == OP
            else pa.nulls(rows.num_rows, one.type)
            for one in schema
        ]
        return pa.Table.from_arrays(arrays, schema=schema)


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


def _filtered(columns: dict[str, pa.Array], mask: Mask) -> dict[str, pa.Array]:
    return {name: column.filter(pa.array(mask)) for name, column in columns.items()}


def _concat(parts: list[Numbers]) -> Numbers:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _as(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays([rows.column(one.name).cast(one.type) for one in schema], schema=schema)


def _with_position(rows: pa.Table) -> pa.Table:
    rows = rows.append_column(PARTITION, pa.nulls(rows.num_rows, pa.string()))
    return rows.append_column(OFFSET, pa.nulls(rows.num_rows, pa.int64()))
