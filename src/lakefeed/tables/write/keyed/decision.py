"""What folded changes make of one version of a table: which rows leave, which come, and what was too old."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.staged import OFFSET, PARTITION, STAGED, TIME
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.binlogs import without_misread
from lakefeed.tables.write.keyed.fold import Folded, positions_of
from lakefeed.tables.write.keyed.keys import (
    KeyIndex,
    Mask,
    Numbers,
    equal,
    one_array,
    ranks,
    taken,
    values_at,
)
from lakefeed.tables.write.keyed.layout import Edit
from lakefeed.tables.write.keyed.lookup import Found, find, matched, rows_at
from lakefeed.tables.write.keyed.truncation import leaving, truncation_of
from lakefeed.tables.write.spread import Spread, in_threads


@dataclass(frozen=True)
class Decision:
    """What happens to the rows of a version."""

    edits: list[Edit]
    rows: pa.Table
    """The rows that come, with all columns of the table."""
    tombstones: pa.Table
    counts: dict[str, int]
    """changes = applied + stale + folded."""
    touched: int
    looked_at: int
    index: KeyIndex | None = None
    """The keys that were looked for; None where all rows of the table were looked at."""
    unknown: frozenset[tuple[str, int, int]] = frozenset()
    """The positions of changes that leave out what neither the table nor the batch has."""
    repeated: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    """The keys, by their numbers, whose rows say already what their changes say."""


def decide(
    table: LakeTable,
    folded: Folded,
    rules: KeyRules,
    tombstones: pa.Table,
    *,
    replayed: bool,
    spread: Spread = in_threads,
    truncated: Mapping[str, tuple[DataFile, Numbers]] | None = None,
) -> Decision:
    """Compare each change with the row and the tombstones of its key. Newer wins.

    `truncated` are rows, by the path of their file, that a truncation before these changes has removed.
    """
    return _Deciding(table, folded, rules, tombstones, replayed, spread, truncated).run()


@dataclass
class _Deciding:
    table: LakeTable
    folded: Folded
    rules: KeyRules
    tombstones: pa.Table
    replayed: bool
    spread: Spread
    before: Mapping[str, tuple[DataFile, Numbers]] | None
    found: Found = field(init=False)
    numbers: Numbers = field(init=False)
    """The key of each row that was found, over all files."""
    truncated: dict[str, tuple[DataFile, Numbers]] = field(init=False)

    def run(self) -> Decision:
        folded, rules = self.folded, self.rules
        keys = folded.rows.select(list(rules.keys))
        self.found = find(self.table, keys, folded.index, spread=self.spread)
        self.numbers = self.found.numbers
        truncation = self._newer_truncation()
        self.truncated = {} if truncation is None else leaving(self.table, truncation, rules)
        if self.before is not None:
            self.truncated = dict(self.before)
        present = self._present()
        stale, tied = self._stale(present)
        repeated = self._repeated(tied & ~stale)
        applied = ~stale & ~repeated
        rows, whole = self._rows(applied, present)
        applied &= whole
        come = np.flatnonzero(applied & ~folded.deleted)
        rows = taken(rows, np.flatnonzero(applied[self._upserted]))
        rows = pa.Table.from_arrays(rows.columns, schema=self.table.schema)
        edits = self._edits(applied, come)
        gone = sum(len(edit.gone) for edit in edits)
        told = 0 if folded.truncation is None else 1
        counts = {
            "changes": folded.changes,
            "applied": int(applied.sum()) + (0 if truncation is None else 1),
            "stale": int((~applied).sum()) + (told if truncation is None else 0),
            "folded": folded.changes - len(folded) - told,
            "deleted": int((applied & folded.deleted).sum()),
        }
        stones = self._tombstones(applied & folded.deleted, truncation)
        touched, unknown = gone + rows.num_rows, self._unknown_changes()
        index = folded.index if folded.truncation is None else None
        looked_at = self.found.looked_at
        same = np.flatnonzero(repeated)
        return Decision(edits, rows, stones, counts, touched, looked_at, index, unknown, same)

    def _unknown_changes(self) -> frozenset[tuple[str, int, int]]:
        positions, numbers = self.folded.partial
        return positions_of(taken(positions, np.flatnonzero(self._lacking[numbers])))

    def _sequence(self, rows: pa.Table) -> pa.Table:
        times = rows.select(list(self.rules.sequence_by))
        return without_misread(times) if self.rules.ties_by_position else times

    def _newer_truncation(self) -> pa.Table | None:
        """The truncation of the batch, unless one that is known is as new."""
        newest = self.folded.truncation
        known = self._truncations()
        if newest is None or not known.num_rows:
            return newest
        if not self.rules.sequence_by:
            return None if self.replayed else newest
        own, others = ranks(self._sequence(newest), self._sequence(known))
        again = self.rules.ties_by_position and not self.replayed and own[0] == others.max()
        return newest if own[0] > others.max() or again else None

    def _truncations(self) -> pa.Table:
        return truncation_of(self.tombstones, self.rules)

    def _present(self) -> Mask:
        """Which of the rows that were found are there once a truncation has had its effect."""
        masks = [np.zeros(0, np.bool_)]
        for match in self.found.matches:
            _, indexes = self.truncated.get(match.file.path, (None, np.zeros(0, np.int64)))
            masks.append(~np.isin(match.indexes, indexes))
        return np.concatenate(masks)

    def _stale(self, present: Mask) -> tuple[Mask, Mask]:
        """Which changes are too old, and which are as old as the row that is there."""
        folded, count = self.folded, len(self.folded)
        has_row = np.zeros(count, np.bool_)
        has_row[self.numbers[present]] = True
        buried = folded.index.find(self.tombstones)
        if not self.rules.sequence_by:
            return self._stale_by_position(has_row, buried), np.zeros(count, np.bool_)
        schema = pa.schema([self.table.schema.field(name) for name in self.rules.sequence_by])
        self.values = matched(self.table, self.found.matches, schema)
        own, stones, rows, floors, self._said = ranks(
            *map(
                self._sequence,
                (folded.rows, self.tombstones, self.values, self._truncations(), folded.sequence),
            )
        )
        newest = np.full(count, -1, np.int64)
        np.maximum.at(newest, self.numbers[present], rows[present])
        grave = np.full(count, floors.max(initial=-1), np.int64)
        np.maximum.at(grave, buried[buried >= 0], stones[buried >= 0])
        as_new = has_row & (own == newest)
        tied = as_new & ~folded.deleted
        # What is sent again is behind everything of its sequence that has been read.
        stale = (own <= grave) | (own < newest) | (tied & self.replayed)
        self._after = np.zeros(count, np.bool_)
        if self.rules.ties_by_position:
            self._after = (own == grave) & self._later_than(buried, stones, grave, floors)
            # A deletion that follows one of its sequence changes something only if a row has come between.
            repeats = folded.deleted & ~as_new
            stale = (own < grave) | ((own == grave) & (repeats | ~self._after)) | (own < newest)
            stale |= as_new & self.replayed
        if self.rules.deletions_first:
            # A deletion takes away what was there before its sequence, and an upsert of it follows.
            older = (own < grave) | (own < newest) | (tied & self.replayed)
            stale = np.where(folded.deleted, own <= np.maximum(grave, newest), older)
        self._newest, self._grave = newest, grave
        return stale, tied

    def _later_than(self, buried: Numbers, stones: Numbers, grave: Numbers, floors: Numbers) -> Mask:
        """Which changes come later, in one partition, than every deletion of the newest sequence."""
        later = np.ones(len(self.folded), np.bool_)
        at = np.flatnonzero(buried >= 0)
        at = at[stones[at] == grave[buried[at]]]
        later[buried[at[~self._follows(buried[at], taken(self.tombstones, at))]]] = False
        for row in np.flatnonzero(floors == floors.max(initial=-1)).tolist():
            same = np.flatnonzero(grave == floors[row])
            truncation = taken(self._truncations(), np.full(len(same), row))
            later[same[~self._follows(same, truncation)]] = False
        return later

    def _follows(self, changes: Numbers, tombstones: pa.Table) -> Mask:
        """Whether each of these changes has a later position in the partition of its tombstone."""
        own = taken(self.folded.rows.select([PARTITION, OFFSET]), changes)
        later = pc.and_(
            pc.equal(own.column(PARTITION), tombstones.column(PARTITION)),
            pc.greater(own.column(OFFSET), tombstones.column(OFFSET)),
        )
        result: Mask = one_array(later.fill_null(False)).to_numpy(zero_copy_only=False)
        return result

    def _stale_by_position(self, has_row: Mask, buried: Numbers) -> Mask:
        """Batches come in the order of positions, so only what is sent again can be too old.

        Where the row came from is not known; it is taken to be newer.
        """
        count = len(self.folded)
        if not self.replayed:
            return np.zeros(count, np.bool_)
        stale = has_row | bool(self._truncations().num_rows)
        at = np.flatnonzero(buried >= 0)
        own = taken(self.folded.rows.select([PARTITION, OFFSET]), buried[at])
        stones = taken(self.tombstones.select([PARTITION, OFFSET]), at)
        later = pc.or_(
            pc.not_equal(own.column(PARTITION), stones.column(PARTITION)),
            pc.less(own.column(OFFSET), stones.column(OFFSET)),
        )
        stale[buried[at[one_array(later).to_numpy(zero_copy_only=False)]]] = True
        return stale

    def _repeated(self, tied: Mask) -> Mask:
        """Which changes say what the row says already: the same change came once more."""
        repeated = np.zeros(len(self.folded), np.bool_)
        single = np.bincount(self.numbers, minlength=len(repeated)) == 1
        if not (tied & single).any():
            return repeated
        for match in self.found.matches:
            at = np.flatnonzero((tied & single)[match.numbers])
            if len(at) and match.file.path not in self.truncated:
                there = rows_at(self.table, match.file, match.indexes[at], self.table.schema)
                own = taken(self.folded.rows, match.numbers[at])
                same = np.ones(len(at), np.bool_)
                for name in there.schema.names:
                    kept = self.folded.kept.get(name)
                    alike = equal(own.column(name), there.column(name))
                    same &= alike if kept is None else alike | kept[match.numbers[at]]
                repeated[match.numbers[at[same]]] = True
        return repeated

    def _rows(self, applied: Mask, present: Mask) -> tuple[pa.Table, Mask]:
        """The rows of upserts, with what they keep of the rows before; which keys have one that may be."""
        folded, schema = self.folded, self.table.schema
        self._lacking = np.zeros(len(folded), np.bool_)
        self._upserted = np.flatnonzero(applied & ~folded.deleted)
        rows = taken(folded.rows.drop_columns(STAGED.names), self._upserted)
        if folded.said_by:
            rows = self._completed(rows, present)
        whole = np.ones(len(folded), np.bool_)
        for field_ in schema:
            if not field_.nullable and rows.column(field_.name).null_count:
                nulls = one_array(rows.column(field_.name).is_null()).to_numpy(zero_copy_only=False)
                whole[self._upserted[nulls]] = False
        return rows, whole

    def _completed(self, rows: pa.Table, present: Mask) -> pa.Table:
        """The rows with the values that changes say nothing about, from the rows that are there."""
        kept, buried = self._silent()
        schema = pa.schema([self.table.schema.field(name) for name in kept])
        indexes = np.full(len(self.folded), -1, np.int64)
        indexes[self.numbers[present]] = np.flatnonzero(present)
        if self.rules.sequence_by and len(self.numbers):
            (rank,) = ranks(self._sequence(self.values))
            order = np.lexsort((rank, self.numbers))
            order = order[present[order]]
            # Of several rows of one key, the newest is assigned last.
            indexes[self.numbers[order]] = order
        there = matched(self.table, self.found.matches, schema)
        own = indexes[self._upserted]
        for name, mask in kept.items():
            known = mask[self._upserted] & (own >= 0)
            column = rows.column(name)
            both = pa.chunked_array([*column.chunks, *there.column(name).chunks], column.type)
            chosen = np.where(known, rows.num_rows + own, np.arange(rows.num_rows))
            gone = buried[name][self._upserted] & ~known
            if name in self.folded.unknown:
                unknown, leaves_out = self.folded.unknown[name], self.folded.leaves_out[name]
                lacking = (unknown[self._upserted] & ~known) | (leaves_out[self._upserted] & gone)
                self._lacking[self._upserted[lacking]] = True
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), values_at(both, chosen, gone))
        return rows

    def _silent(self) -> tuple[dict[str, Mask], dict[str, Mask]]:
        """By column: which changes take its value from the row, and which of them have none by a deletion.

        A batch may hold changes that are older than the row. What they say does not count, though they were
        folded with a newer one that is silent about it.
        """
        nobody = np.zeros(len(self.folded), np.bool_)
        kept, buried = {}, {}
        for name, indexes in self.folded.said_by.items():
            kept[name], buried[name] = self.folded.kept.get(name, nobody), nobody
            if self.rules.sequence_by:
                said = np.where(indexes < 0, -1, self._said[indexes])
                kept[name] = kept[name] | ((indexes >= 0) & (said < self._newest))
                buried[name] = (indexes >= 0) & (
                    (said < self._grave) | ((said == self._grave) & ~self._after)
                )
        return kept, buried

    def _edits(self, applied: Mask, come: Numbers) -> list[Edit]:
        row_of = np.full(len(self.folded), -1, np.int64)
        row_of[come] = np.arange(len(come))
        none = np.zeros(0, np.int64)
        left = dict(self.truncated)
        edits = []
        for match in self.found.matches:
            _, more = left.pop(match.file.path, (None, none))
            touched = applied[match.numbers]
            if self.before is None:
                gone = np.union1d(match.indexes[touched], more)
            else:
                gone = np.setdiff1d(match.indexes[touched], more)
            own = np.unique(row_of[match.numbers[touched]])
            if len(gone):
                edits.append(Edit(match.file, gone, own[own >= 0], match.span, match.is_sorted))
        if self.before is None:
            edits += [Edit(file, gone, none) for file, gone in left.values() if len(gone)]
        return edits

    def _tombstones(self, deleted: Mask, truncation: pa.Table | None) -> pa.Table:
        own = dict.fromkeys([*self.rules.keys, *self.rules.sequence_by])
        names = [*own, PARTITION, OFFSET, TIME]
        stones = taken(self.folded.rows.select(names), np.flatnonzero(deleted))
        if truncation is None:
            return stones
        empty = [
            truncation.column(field.name).combine_chunks()
            if field.name in truncation.schema.names and field.name not in self.rules.keys
            else pa.nulls(1, field.type)
            for field in stones.schema
        ]
        return pa.concat_tables([stones, pa.Table.from_arrays(empty, schema=stones.schema)])
