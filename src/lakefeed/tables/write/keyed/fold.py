"""Folding: the changes of each key in a batch become one change, or keep the order that they are to have.

A change is behind another of its key when its sequence is larger; of the same sequence, when it is a deletion
and the other is none; then by its position. Of a change feed, the deletion comes first. Where there is no
sequence, the position alone decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.staged import CLOCK, DELETE, OFFSET, OP, PARTITION, STAGED, TIME, TRUNCATE, UNCHANGED
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.keys import KeyIndex, Mask, Numbers, one_array, ranks, taken

_POSITION = [PARTITION, OFFSET]


@dataclass(frozen=True)
class Ordered:
    """Changes of a batch by key, and of one key by their order; those that a truncation undid are gone."""

    rows: pa.Table
    """The columns of the table and those of staged changes."""
    numbers: Numbers
    """The number of the key of each."""
    index: KeyIndex
    truncation: pa.Table | None
    """The newest truncation: one row with the columns of the sequence, of the position and of the time."""
    changes: int
    """All that there were, truncations included."""

    @property
    def deleted(self) -> Mask:
        """Which of them delete."""
        return np.equal(ops(self.rows), DELETE)


@dataclass(frozen=True)
class Folded:
    """One change for each key of a batch; the number of a key is the index of its change."""

    rows: pa.Table
    """The columns of the table, then those of staged changes."""
    deleted: Mask
    kept: dict[str, Mask]
    """By column: which changes leave the value that a row of the table has. None of a column not named."""
    said_by: dict[str, Numbers]
    """By column that some change is silent about: the index in `sequence` of the change that decides on it.

    That change, a deletion perhaps, may be older than the row of the table, though the newest of its key is
    not. -1: none says anything about it.
    """
    sequence: pa.Table
    """The sequence of every change that was folded."""
    index: KeyIndex
    truncation: pa.Table | None
    changes: int

    def __len__(self) -> int:
        """How many keys there are."""
        return int(self.rows.num_rows)


def ordered(rows: pa.Table, rules: KeyRules) -> Ordered:
    """The changes of a batch in the order that they are to have, whatever order they came in."""
    truncation, before = _truncation(rows, rules)
    kept = rows if before is None else rows.filter(pa.array(~before))
    index = KeyIndex(kept, rules.keys)
    sequence, position = _orders(kept, rules)
    deletes = ops(kept) == DELETE
    last = ~deletes if rules.deletions_first else deletes
    order = np.lexsort((position, last, sequence, index.numbers))
    if not rules.sequence_by:
        order = np.lexsort((position, index.numbers))
    return Ordered(taken(kept, order), index.numbers[order], index, truncation, rows.num_rows)


def fold(rows: pa.Table, rules: KeyRules) -> Folded:
    """Make one change of all changes of a key."""
    found = ordered(rows, rules)
    # Number by number, as the keys are numbered without gaps.
    last = np.searchsorted(found.numbers, np.arange(len(found.index)), side="right") - 1
    deleted = found.deleted
    columns, kept, said_by = {}, {}, {}
    said = silences(found.rows, rules)
    ordinals = np.arange(len(deleted))
    # An upsert that follows a deletion knows nothing of what was before it.
    fresh = np.maximum.accumulate(np.where(deleted, ordinals, -1))[last] if len(ordinals) else last
    first = np.searchsorted(found.numbers, np.arange(len(found.index)))
    for field in found.rows.schema:
        column = found.rows.column(field.name)
        if field.name not in said:
            columns[field.name] = column.take(pa.array(last))
            continue
        newest = np.maximum.accumulate(np.where(said[field.name] & ~deleted, ordinals, -1))[last]
        begin = np.maximum(first, fresh)
        known = newest >= begin
        said_by[field.name] = np.where(known, newest, np.where(fresh >= first, fresh, -1))
        columns[field.name] = column.take(pa.array(np.where(known, newest, 0), mask=~known))
        silent = ~known & ~deleted[last] & (fresh < first)
        if silent.any():
            kept[field.name] = silent
    table = pa.table(columns, schema=found.rows.schema)
    sequence = found.rows.select(list(rules.sequence_by))
    return Folded(table, deleted[last], kept, said_by, sequence, found.index, found.truncation, found.changes)


def ops(rows: pa.Table) -> Numbers:
    """What each change does."""
    return one_array(rows.column(OP)).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _orders(rows: pa.Table, rules: KeyRules) -> tuple[Numbers, Numbers]:
    (sequence,) = ranks(rows.select(list(rules.sequence_by)))
    (position,) = ranks(rows.select(_POSITION))
    return sequence, position


def _truncation(rows: pa.Table, rules: KeyRules) -> tuple[pa.Table | None, Mask | None]:
    """The newest truncation of the batch, and which changes it undoes, truncations among them."""
    truncates = ops(rows) == TRUNCATE
    if not truncates.any():
        return None, None
    sequence, position = _orders(rows, rules)
    indexes = np.flatnonzero(truncates)
    newest = indexes[np.lexsort((position[indexes], sequence[indexes]))[-1]]
    # At the same sequence a truncation wins, as a deletion does.
    age = sequence if rules.sequence_by else position
    undone = age <= age[newest]
    told = rows.select([*rules.sequence_by, *_POSITION, TIME, CLOCK])
    return taken(told, indexes[indexes == newest]), undone | truncates


def silences(rows: pa.Table, rules: KeyRules) -> dict[str, Mask]:
    """By column that some change says nothing about: which changes say something about it."""
    never = {*rules.keys, *rules.sequence_by, *STAGED.names}
    names = [name for name in rows.schema.names if name not in never]
    silent = {}
    unchanged = one_array(rows.column(UNCHANGED))
    if unchanged.null_count < len(unchanged):
        parents = pc.list_parent_indices(unchanged).to_numpy(zero_copy_only=False)
        flat = unchanged.flatten()
        for name in names:
            indexes = parents[pc.equal(flat, name).to_numpy(zero_copy_only=False)]
            if len(indexes):
                silent[name] = np.zeros(rows.num_rows, np.bool_)
                silent[name][indexes] = True
    if rules.ignore_nulls:
        for name in names:
            column = rows.column(name)
            if column.null_count:
                nulls = one_array(column.is_null()).to_numpy(zero_copy_only=False)
                silent[name] = nulls | silent.get(name, False)
    return {name: ~mask for name, mask in silent.items()}
