"""Folding: the changes of each key in a batch become one change, or keep the order that they are to have.

A change is behind another of its key when its sequence is larger; of the same sequence, when it is a deletion
and the other is none; then by its position. In a change stream, the position within a partition decides
before the kind of change. Of a change feed, the deletion comes first. Where there is no sequence, the
position alone decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.staged import DELETE, OFFSET, OP, ORDINAL, PARTITION, STAGED, TIME, TRUNCATE, UNCHANGED
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.keys import (
    KeyIndex,
    Mask,
    Numbers,
    by_position,
    one_array,
    ranks,
    taken,
    values_at,
)

_POSITION = [PARTITION, OFFSET, ORDINAL]


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
    leaves_out: dict[str, Mask]
    """By column: of which keys some change leaves it out."""
    unknown: dict[str, Mask]
    """By column: of which keys no change of the batch has it, and some leave it out."""
    partial: tuple[pa.Table, Numbers]
    """The positions of all changes that leave out columns, and the numbers of their keys."""

    def __len__(self) -> int:
        """How many keys there are."""
        return int(self.rows.num_rows)


def fold(rows: pa.Table, rules: KeyRules) -> Folded:
    """Make one change of all changes of a key, whatever order they came in."""
    changes = rows.num_rows
    truncation, undone = truncation_in(rows, rules)
    if undone is not None:
        rows = rows.filter(pa.array(~undone))
    index = KeyIndex(rows, rules.keys)
    order = _order(rows, rules, index.numbers)
    numbers, deletes = index.numbers[order], np.equal(ops(rows), DELETE)[order]
    # Number by number, as the keys are numbered without gaps.
    last = np.searchsorted(numbers, np.arange(len(index)), side="right") - 1
    columns, kept, said_by = {}, {}, {}
    said = {name: mask[order] for name, mask in silences(rows, rules).items()}
    listed = {name: mask[order] for name, mask in listings(rows, rules).items()}
    leaves_out: dict[str, Mask] = {}
    unknown: dict[str, Mask] = {}
    ordinals = np.arange(len(deletes))
    # An upsert that follows a deletion knows nothing of what was before it.
    fresh = np.maximum.accumulate(np.where(deletes, ordinals, -1))[last] if len(ordinals) else last
    first = np.searchsorted(numbers, np.arange(len(index)))
    for field in rows.schema:
        column = rows.column(field.name)
        if field.name not in said:
            columns[field.name] = values_at(column, order[last])
            continue
        newest = np.maximum.accumulate(np.where(said[field.name] & ~deletes, ordinals, -1))[last]
        begin = np.maximum(first, fresh)
        known = newest >= begin
        said_by[field.name] = np.where(known, newest, np.where(fresh >= first, fresh, -1))
        columns[field.name] = values_at(column, order[np.where(known, newest, 0)], ~known)
        if field.name in listed:
            counts = np.concatenate([[0], np.cumsum(listed[field.name] & ~deletes)])
            leaves_out[field.name] = ~deletes[last] & (counts[last + 1] > counts[begin])
            unknown[field.name] = ~known & leaves_out[field.name]
        silent = ~known & ~deletes[last] & (fresh < first)
        if silent.any():
            kept[field.name] = silent
    table = pa.Table.from_pydict(columns, schema=rows.schema)
    sequence = taken(rows.select(list(rules.sequence_by)), order)
    partial = np.flatnonzero(np.logical_or.reduce([np.zeros(len(deletes), np.bool_), *listed.values()]))
    positions = taken(rows.select(_POSITION), order[partial]), numbers[partial]
    return Folded(
        table, deletes[last], kept, said_by, sequence, index, truncation, changes,
        leaves_out, unknown, positions,
    )  # fmt: skip


def _order(rows: pa.Table, rules: KeyRules, numbers: Numbers) -> Numbers:
    """The indexes of changes by key, and of one key in the order that they are to have."""
    sequence, position = _orders(rows, rules)
    if not rules.sequence_by:
        return np.lexsort((position, numbers))
    return np.lexsort((position, winning_kinds(rows, rules, numbers, sequence), sequence, numbers))


def winning_kinds(rows: pa.Table, rules: KeyRules, numbers: Numbers, sequence: Numbers) -> Mask:
    """Which changes win over others of their key and sequence by what they do, whatever their positions."""
    deletes: Mask = np.equal(ops(rows), DELETE)
    if rules.deletions_first:
        return ~deletes
    if not rules.ties_by_position or not deletes.any():
        return deletes
    (partition,) = ranks(rows.select([PARTITION]))
    pairs = numbers * (int(sequence.max(initial=0)) + 1) + sequence
    groups = np.unique(pairs, return_inverse=True)[1]
    lowest, highest = np.full(len(pairs), len(pairs)), np.full(len(pairs), -1)
    np.minimum.at(lowest, groups, partition)
    np.maximum.at(highest, groups, partition)
    # Positions of several partitions have no order.
    several: Mask = (lowest != highest)[groups]
    return deletes & several


def ops(rows: pa.Table) -> Numbers:
    """What each change does."""
    return one_array(rows.column(OP)).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _orders(rows: pa.Table, rules: KeyRules) -> tuple[Numbers, Numbers]:
    (sequence,) = ranks(rows.select(list(rules.sequence_by)))
    return sequence, by_position(rows)


def truncation_in(rows: pa.Table, rules: KeyRules) -> tuple[pa.Table | None, Mask | None]:
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
    if rules.ties_by_position:
        (partition,) = ranks(rows.select([PARTITION]))
        undone &= (age < age[newest]) | (partition != partition[newest]) | (position < position[newest])
    told = rows.select([*rules.sequence_by, *_POSITION, TIME])
    return taken(told, indexes[indexes == newest]), undone | truncates


def newest_truncation(truncations: pa.Table, rules: KeyRules) -> pa.Table:
    """The one of some truncations that comes after the others."""
    sequence, position = _orders(truncations, rules)
    return taken(truncations, np.lexsort((position, sequence))[-1:])


def undone_by(truncation: pa.Table, rows: pa.Table, rules: KeyRules) -> Mask:
    """Which changes of its batch the newest truncation undoes."""
    undone = truncation_in(pa.concat_tables([rows, truncation]), rules)[1]
    assert undone is not None
    return undone[:-1]


def silences(rows: pa.Table, rules: KeyRules) -> dict[str, Mask]:
    """By column that some change says nothing about: which changes say something about it."""
    never = {*rules.keys, *rules.sequence_by, *STAGED.names}
    names = [name for name in rows.schema.names if name not in never]
    silent = listings(rows, rules)
    if rules.ignore_nulls:
        for name in names:
            column = rows.column(name)
            if column.null_count:
                nulls = one_array(column.is_null()).to_numpy(zero_copy_only=False)
                silent[name] = nulls | silent.get(name, False)
    return {name: ~mask for name, mask in silent.items()}


def listings(rows: pa.Table, rules: KeyRules) -> dict[str, Mask]:
    """By column that some change leaves out: which changes do."""
    never = {*rules.keys, *rules.sequence_by, *STAGED.names}
    found = {}
    unchanged = one_array(rows.column(UNCHANGED))
    if unchanged.null_count < len(unchanged):
        parents = pc.list_parent_indices(unchanged).to_numpy(zero_copy_only=False)
        flat = unchanged.flatten()
        for name in rows.schema.names:
            indexes = parents[pc.equal(flat, name).to_numpy(zero_copy_only=False)]
            if len(indexes) and name not in never:
                found[name] = np.zeros(rows.num_rows, np.bool_)
                found[name][indexes] = True
    return found


def positions_of(changes: pa.Table) -> frozenset[tuple[str, int, int]]:
    """The positions of changes: their partition, offset and ordinal."""
    columns = (changes.column(name).to_pylist() for name in _POSITION)
    return frozenset(zip(*columns, strict=True))
