"""Rows that have moved to another key: what the change says nothing about, they had under the key before.

A move is a deletion and, at the position right behind it, an upsert. The database has not sent values that
were not changed, and the table has them under the other key, or an earlier change of the batch does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakefeed.columns.staged import DELETE, MOVED, OFFSET, OP, ORDINAL, PARTITION, UNCHANGED, UPSERT
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.fold import ops
from lakefeed.tables.write.keyed.keys import KeyIndex, Numbers, one_array, ranks, taken, values_at
from lakefeed.tables.write.keyed.lookup import find, matched


def with_values_before_moves(table: LakeTable, changes: pa.Table, rules: KeyRules) -> pa.Table:
    """The changes of a batch, where every row that has moved has what it had under the key before."""
    before = ops(changes)
    moved = np.flatnonzero(before == MOVED)
    if not len(moved):
        return changes
    plain = np.where(before == MOVED, UPSERT, before).astype(np.int8)
    changes = _with_column(changes, OP, pa.array(plain))
    moves = _moves(changes, moved)
    return _filled(table, changes, rules, moves) if moves else changes


@dataclass(frozen=True)
class _Move:
    change: int
    deletion: int
    silent: list[str]


def _moves(changes: pa.Table, moved: Numbers) -> list[_Move]:
    """The moves in their order, each with the deletion that it began with."""
    indexes = _positions(changes, moved)
    wanted = {(name, number - 1, offset): at for at, (name, number, offset) in indexes.items()}
    deleted = np.flatnonzero(ops(changes) == DELETE)
    halves = {
        wanted[position]: at for at, position in _positions(changes, deleted).items() if position in wanted
    }
    lists = one_array(changes.column(UNCHANGED)).take(pa.array(moved)).to_pylist()
    silent = dict(zip(moved.tolist(), lists, strict=True))
    order = sorted(halves, key=lambda at: (indexes[at][2], indexes[at][1]))
    return [_Move(at, halves[at], silent[at]) for at in order if silent[at]]


def _positions(changes: pa.Table, at: Numbers) -> dict[int, tuple[str, int, int]]:
    """The position of each of these changes: the partition, the ordinal, and the offset."""
    columns = taken(changes.select([PARTITION, ORDINAL, OFFSET]), at).columns
    positions = zip(*(column.to_pylist() for column in columns), strict=True)
    return dict(zip(at.tolist(), positions, strict=True))


def _filled(table: LakeTable, changes: pa.Table, rules: KeyRules, moves: list[_Move]) -> pa.Table:
    names = sorted({name for move in moves for name in move.silent} & set(table.schema.names))
    there = _there(table, changes, rules, moves, names)
    origin = _Origins(changes, rules, there[0])
    left: list[list[str]] = []
    sources = {name: np.arange(changes.num_rows) for name in names}
    for move in moves:
        unknown = []
        for name in move.silent:
            found = origin.of(move, name)
            if found is None or name not in sources:
                unknown.append(name)
            else:
                sources[name][move.change] = found
        origin.settle(move, unknown)
        left.append(unknown)
    for name, source in sources.items():
        column = changes.column(name)
        both = pa.chunked_array([*column.chunks, *there[1].column(name).chunks], column.type)
        changes = _with_column(changes, name, values_at(both, source))
    return _with_column(changes, UNCHANGED, _lists(changes, moves, left))


def _there(
    table: LakeTable, changes: pa.Table, rules: KeyRules, moves: list[_Move], names: list[str]
) -> tuple[dict[int, int], pa.Table]:
    """The newest row that the table has of each key before a move: by deletion its index, and the rows."""
    deletions = np.array([move.deletion for move in moves])
    asked = taken(changes.select(list(rules.keys)), deletions)
    index = KeyIndex(asked, rules.keys)
    found = find(table, asked, index)
    schema = pa.schema([table.schema.field(name) for name in dict.fromkeys([*names, *rules.sequence_by])])
    rows, numbers = matched(table, found.matches, schema), found.numbers
    (rank,) = ranks(rows.select(list(rules.sequence_by)))
    newest: dict[int, int] = {}
    for at in np.argsort(rank, kind="stable").tolist():
        newest[int(numbers[at])] = at
    own = zip(deletions.tolist(), index.numbers.tolist(), strict=True)
    return {deletion: newest[number] for deletion, number in own if number in newest}, rows


class _Origins:
    """Finds where the value of a column is that a row had right before it moved."""

    def __init__(self, changes: pa.Table, rules: KeyRules, there: dict[int, int]) -> None:
        self._there, self._count = there, int(changes.num_rows)
        self._ops = ops(changes)
        self._numbers = KeyIndex(changes, rules.keys).numbers
        (sequence,) = ranks(changes.select(list(rules.sequence_by)))
        (position,) = ranks(changes.select([OFFSET, ORDINAL]))
        self._order = np.lexsort((position, sequence, self._numbers))
        self._rank = np.empty(self._count, np.int64)
        self._rank[self._order] = np.arange(self._count)
        self._silent: pa.Array = one_array(changes.column(UNCHANGED))
        self._settled: dict[int, list[str]] = {}
        self._found: dict[tuple[int, str], int] = {}

    def of(self, move: _Move, name: str) -> int | None:
        """Its index among the changes and, behind them, the rows of the table; None where it is nowhere."""
        number, at = self._numbers[move.deletion], self._rank[move.deletion] - 1
        while at >= 0 and self._numbers[self._order[at]] == number:
            change = int(self._order[at])
            if self._ops[change] == DELETE:
                return None
            if name not in self._silences(change):
                found = self._found.get((change, name), change)
                self._found[move.change, name] = found
                return found
            at -= 1
        row = self._there.get(move.deletion)
        if row is None:
            return None
        self._found[move.change, name] = self._count + row
        return self._count + row

    def settle(self, move: _Move, unknown: list[str]) -> None:
        """Keep what a move still says nothing about."""
        self._settled[move.change] = unknown

    def _silences(self, change: int) -> list[str]:
        given: list[str] | None = self._silent[change].as_py()
        return self._settled.get(change, given or [])


def _lists(changes: pa.Table, moves: list[_Move], left: list[list[str]]) -> pa.Array:
    column = one_array(changes.column(UNCHANGED))
    order = np.arange(len(column))
    order[[move.change for move in moves]] = len(column) + np.arange(len(moves))
    own = pa.array([one or None for one in left], column.type)
    return pa.concat_arrays([column, own]).take(pa.array(order))


def _with_column(changes: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    at = changes.schema.get_field_index(name)
    return changes.set_column(at, changes.schema.field(at), column)
