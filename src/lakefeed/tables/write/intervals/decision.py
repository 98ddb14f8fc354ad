"""What changes make of the history that one version of a table has: which rows leave and which come.

A key's history is known from its rows, and from what is remembered beside the table: deletions, and changes
that are part of an interval with others. Only intervals that end at the first change or behind it are read:
what was over before stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from lakefeed.columns.staged import DELETE, OFFSET, OP, PARTITION, TIME, TRUNCATE, UPSERT
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.intervals.known import NO_TIME, KeyRange, Known
from lakefeed.tables.write.intervals.points import (
    IMPLIED,
    NEW,
    REMEMBERED,
    Points,
    Runs,
    Values,
    continues,
    runs,
    sources,
)
from lakefeed.tables.write.keyed import HistoryRules
from lakefeed.tables.write.keyed.decision import Decision
from lakefeed.tables.write.keyed.fold import listings, positions_of, silences
from lakefeed.tables.write.keyed.keys import Mask, Numbers, equal, one_array, ranks, taken, values_at
from lakefeed.tables.write.keyed.layout import Edit
from lakefeed.tables.write.keyed.tombstones import Remembered
from lakefeed.tables.write.spread import Spread, in_threads


def decide(
    table: LakeTable,
    changes: pa.Table,
    rules: HistoryRules,
    remembered: Remembered,
    *,
    replayed: bool,
    spread: Spread = in_threads,
    hold: bool = False,
    within: KeyRange | None = None,
) -> Decision:
    """Put each change where it belongs in the history of its key.

    With `hold`, files that rows leave come with their rows where these are few: they are written again. With
    `within`, the changes are those of one range of keys, besides all truncations of the batch.
    """
    return _Deciding(Known(table, changes, rules, remembered, spread, hold, within), rules, replayed).run()


@dataclass
class _Deciding:
    known: Known
    rules: HistoryRules
    replayed: bool

    def run(self) -> Decision:
        points = self.known.points()
        values, points = self._complete(points.sorted(self.rules))
        stale = self._stale(points, values)
        counts = self._counts(points, stale)
        keep = ~stale
        points, values = points.chosen(keep), values.chosen(keep)
        before = self._times_with(points, REMEMBERED)
        counting = points.last
        points, values = points.chosen(counting), values.chosen(counting)
        same = continues(points, values, self.rules.tracked(self.known.body))
        rows, edits = self._outcome(points, values, same)
        told = self._to_remember(points, values, same, before)
        touched = sum(len(edit.gone) for edit in edits) + rows.num_rows
        index = None if self.known.truncations.num_rows else self.known.index
        looked_at = self.known.found.looked_at
        return Decision(edits, rows, told, counts, touched, looked_at, index, self._unknown)

    def _complete(self, points: Points) -> tuple[Values, Points]:
        """The values of each sorted point, in which silent changes have those of the point before."""
        begin = self.known.values.num_rows - self.known.new.num_rows
        silent, listed = silences(self.known.new, self.rules), listings(self.known.new, self.rules)
        lacking = np.zeros(self.known.new.num_rows, np.bool_)
        other: dict[str, Numbers] = {}
        for name in self.known.body.names:
            if name in silent:
                said = np.ones(self.known.values.num_rows, np.bool_)
                said[begin:] = silent[name]
                indexes = sources(points, said)
                if name in listed:
                    at = points.values[(indexes < 0) & (points.layers == NEW) & ~points.deleted] - begin
                    lacking[at[listed[name][at]]] = True
                other[name] = indexes
        values = Values(self.known.values, points.values, other)
        self._unknown = positions_of(taken(self.known.new, np.flatnonzero(lacking)))
        wrong = np.zeros(len(points), np.bool_)
        for one in self.known.body:
            if not one.nullable:
                wrong |= values.lacking(one.name)
        self._partial = ~points.deleted & (points.layers == NEW) & wrong
        return values, points

    def _stale(self, points: Points, values: Values) -> Mask:
        """Which new points say nothing new: the same is known already, or something that counts more."""
        stale: Mask = self._partial.copy()
        new = points.layers == NEW
        # The point before it of the same key and time that was known before.
        ordinals = np.where(new, -1, np.arange(len(points)))
        known = np.maximum.accumulate(ordinals) if len(ordinals) else ordinals
        pairs = self.known.pairs(points)
        at = np.flatnonzero(new & points.last & (known >= 0) & (points.layers[known] != IMPLIED))
        at = at[pairs[known[at]] == pairs[at]]
        both = at[points.deleted[at] == points.deleted[known[at]]]
        # What is sent again is behind everything of its time that has been read.
        older = at[~points.deleted[at] | self.rules.ties_by_position] if self.replayed else at[:0]
        if self.rules.deletions_first:
            older = older[~points.deleted[known[older]]]
        for name in self.known.body.names:
            upserts = ~points.deleted[both]
            if not upserts.any():
                break
            mine, theirs = (values.at(name, some) for some in (both, known[both]))
            both = both[equal(mine, theirs) | ~upserts]
        stale |= new & np.isin(pairs, pairs[np.union1d(both, older)])
        return stale

    def _counts(self, points: Points, stale: Mask) -> dict[str, int]:
        """Changes = applied + stale + folded."""
        new = (points.layers == NEW) & (points.order >= 0)
        left = points.chosen(~stale)
        counting = left.last & (left.layers == NEW) & (left.order >= 0)
        # What another change of the same batch has taken the place of.
        pairs = self.known.pairs(left)
        winners = pairs[left.last & (left.layers == NEW)]
        beaten = pairs[(left.layers == NEW) & (left.order >= 0) & ~left.last]
        total = self.known.changes.num_rows
        applied, folded = int(counting.sum()), int(np.isin(beaten, winners).sum())
        if self.known.tells_truncations:
            applied += len(np.setdiff1d(self.known.own_floors, self.known.known_floors))
            folded += self.known.truncations.num_rows - len(np.unique(self.known.own_floors))
        else:
            total -= self.known.truncations.num_rows
        deleted = int((counting & left.deleted).sum())
        # Changes before the first interval that is read are none: there is no such change.
        assert int(new.sum()) == self.known.new.num_rows
        return {
            "changes": total,
            "applied": applied,
            "stale": total - applied - folded,
            "folded": folded,
            "deleted": deleted,
        }

    def _outcome(self, points: Points, values: Values, same: Mask) -> tuple[pa.Table, list[Edit]]:
        """The rows that come, and those that leave."""
        found = runs(points, same)
        begins = points.times[found.first]
        ends = np.where(found.ends < 0, -1, points.times[np.maximum(found.ends, 0)])
        numbers = points.numbers[found.last]
        clocks = self._clocks(points, found)
        stays, kept = self._unchanged(numbers, begins, ends, clocks, found.last, points, values)
        come = np.flatnonzero(~stays)
        times = clocks[0][come], clocks[1][come]
        rows = self._rows(found.last[come], begins[come], ends[come], times, values)
        return rows, self._edits(~kept, numbers[come])

    def _unchanged(
        self,
        numbers: Numbers,
        begins: Numbers,
        ends: Numbers,
        clocks: tuple[Numbers, Numbers],
        last: Numbers,
        points: Points,
        values: Values,
    ) -> tuple[Mask, Mask]:
        """Which intervals are rows of the table already, and which of its rows they are."""
        rows, width = self.known.rows, self.known.times.num_rows + 1
        stays, kept = np.zeros(len(numbers), np.bool_), np.zeros(len(rows.numbers), np.bool_)
        if not len(rows.numbers) or not len(numbers):
            return stays, kept
        pairs = rows.numbers * width + rows.begins
        order = np.argsort(pairs, kind="stable")
        wanted = numbers * width + begins
        nearest = np.minimum(np.searchsorted(pairs[order], wanted), len(order) - 1)
        row = order[nearest]
        same = (pairs[row] == wanted) & (rows.ends[row] == ends)
        for stored, clock in zip(rows.clocks, clocks, strict=True):
            same &= stored[row] == clock
        at = np.flatnonzero(same)
        moved = at[points.values[last[at]] != row[at]]
        alike = np.ones(len(moved), np.bool_)
        for name in self.known.body.names:
            if alike.any():
                theirs = values_at(self.known.values.column(name), row[moved])
                alike &= equal(values.at(name, last[moved]), theirs)
        at = np.setdiff1d(at, moved[~alike])
        stays[at] = True
        kept[row[at]] = True
        return stays, kept

    def _clocks(self, points: Points, found: Runs) -> tuple[Numbers, Numbers]:
        """When the changes were made that begin and end each interval."""
        if not self.rules.time_by:
            return np.full(len(found.first), NO_TIME), np.full(len(found.first), NO_TIME)
        clocks = self.known.clocks(points)
        ends = np.where(found.ends < 0, NO_TIME, clocks[np.maximum(found.ends, 0)])
        return clocks[found.first], ends

    def _rows(
        self,
        last: Numbers,
        begins: Numbers,
        ends: Numbers,
        clocks: tuple[Numbers, Numbers],
        values: Values,
    ) -> pa.Table:
        time_of = self._index_of_rank
        rules, schema = self.rules, self.known.table.schema
        made: dict[str, pa.Array] = {
            rules.valid_from: rules.moments(self.known.times, pa.array(time_of[begins])),
            rules.valid_to: rules.moments(
                self.known.times, pa.array(time_of[np.maximum(ends, 0)], mask=ends < 0)
            ),
        }
        if rules.is_current:
            made[rules.is_current] = pa.array(ends < 0)
        for name, times in zip(rules.time_columns, clocks, strict=False):
            made[name] = pa.array(times, pa.int64(), mask=times == NO_TIME)
        arrays = [
            (made[one.name] if one.name in made else values.at(one.name, last)).cast(one.type)
            for one in schema
        ]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _edits(self, leaves: Mask, come: Numbers) -> list[Edit]:
        """By file: which rows leave it, and which new rows are of the same keys."""
        edits = []
        for at, match in enumerate(self.known.found.matches):
            mine = leaves & (self.known.rows.match == at)
            if mine.any():
                left = np.zeros(self.known.count, np.bool_)
                left[self.known.rows.numbers[mine]] = True
                own = np.flatnonzero(left[come])
                gone = np.sort(self.known.rows.indexes[mine])
                rows = self.known.held.get(match.file.path)
                edits.append(Edit(match.file, gone, own, match.span, match.is_sorted, rows))
        return edits

    def _times_with(self, points: Points, layer: int) -> Numbers:
        return np.unique(self.known.pairs(points.chosen(points.layers == layer)))

    def _to_remember(self, points: Points, values: Values, same: Mask, known: Numbers) -> pa.Table:
        """Deletions, changes within an interval of several, and what corrects something remembered."""
        follows = np.append(same[1:], False) if len(same) else same
        new = points.layers == NEW
        wanted = new & points.deleted & (points.order >= 0)
        wanted |= (same | follows) & (points.layers != REMEMBERED)
        wanted |= new & ~points.deleted & np.isin(self.known.pairs(points), known)
        at = np.flatnonzero(wanted)
        kinds = np.where(points.deleted[at], DELETE, UPSERT).astype(np.int8)
        arrays = [values.at(name, at) for name in self.known.body.names]
        told = pa.Table.from_arrays(arrays, self.known.body.names).append_column(OP, pa.array(kinds))
        told = self._with_times(self._with_deleted(told, points, at), points, at)
        if not self.known.tells_truncations:
            return told
        return pa.concat_tables([told, self._new_truncations(told.schema)])

    def _with_times(self, told: pa.Table, points: Points, at: Numbers) -> pa.Table:
        """When the event of each happened; what was a row of the table has the time of one of its key."""
        begin = self.known.values.num_rows - self.known.new.num_rows
        new = points.layers == NEW
        own = new & (points.values >= begin)
        source = np.full(self.known.count, -1, np.int64)
        source[points.numbers[own]] = points.values[own] - begin
        chosen = np.where(own[at], points.values[at] - begin, source[points.numbers[at]])
        for name in (PARTITION, OFFSET, TIME):
            column = one_array(self.known.new.column(name))
            told = told.append_column(name, column.take(pa.array(chosen, mask=chosen < 0)))
        return told

    def _with_deleted(self, told: pa.Table, points: Points, at: Numbers) -> pa.Table:
        """Deletions have no values: only a key and a time."""
        rows = points.values[at]
        moments = taken(self.known.times, self._index_of_rank[points.times[at]])
        for name in (*self.rules.keys, *self.rules.sequence_by):
            ordinal = told.schema.get_field_index(name)
            own = values_at(self.known.values.column(name), np.maximum(rows, 0))
            if name in self.rules.sequence_by:
                # A row of several changes has the last one's, and begins with the first.
                own = one_array(moments.column(name))
            told = told.set_column(ordinal, told.schema.field(ordinal), own)
        if self.rules.time_by:
            ordinal = told.schema.get_field_index(self.rules.time_by)
            clocks = self.known.clocks(points)[at]
            times = pa.array(clocks, pa.int64(), mask=clocks == NO_TIME).cast(told.schema.field(ordinal).type)
            told = told.set_column(ordinal, told.schema.field(ordinal), times)
        return told

    @cached_property
    def _index_of_rank(self) -> Numbers:
        """By rank: an index in `times` that has it."""
        (every,) = ranks(self.known.times)
        index_of = np.zeros(len(every) + 1, np.int64)
        index_of[every] = np.arange(len(every))
        return index_of

    def _new_truncations(self, schema: pa.Schema) -> pa.Table:
        own = self.known.own_floors
        indexes = np.unique(own, return_index=True)[1]
        indexes = indexes[~np.isin(own[indexes], self.known.known_floors)]
        rows = taken(self.known.truncations, indexes)
        arrays = [
            rows.column(one.name)
            if one.name in (*self.rules.sequence_by, self.rules.time_by, PARTITION, OFFSET, TIME)
            else pa.array(np.full(rows.num_rows, TRUNCATE, np.int8))
            if one.name == OP
            else pa.nulls(rows.num_rows, one.type)
            for one in schema
        ]
        return pa.Table.from_arrays(arrays, schema=schema)
