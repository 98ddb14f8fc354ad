"""Deduplicate: rows whose key is in the table already are left out; of several in a batch, the first stays.

Which keys are there is read from the table right before the commit, which stands right behind the version
that was read. So no second writer can bring a key in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from lakefeed.columns.staged import STAGED, staged_schema
from lakefeed.errors import TableError
from lakefeed.files.parquet import FileTarget, write_files
from lakefeed.pipeline.options.changes import column_problems
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed.keys import KeyIndex, Mask, Numbers, by_position, one_array, taken
from lakefeed.tables.write.keyed.lookup import Found, find, holds_any, rows_at
from lakefeed.tables.write.keyed.ranges import (
    RANGE_BYTES,
    KeyRanges,
    range_count,
    spilled,
    staged_batches,
)
from lakefeed.tables.write.keyed.staged import read_staged
from lakefeed.tables.write.mode import Change, NewEntry
from lakefeed.tables.write.spread import Spread, in_threads

_ANY = int(np.iinfo(np.int64).max // 2)
"""The moment of a row without one."""


@dataclass(frozen=True)
class DedupeRules:
    """By which rows are the same, and how far back a row with the same key counts."""

    keys: tuple[str, ...]
    column: str | None = None
    age: float = 0.0
    """Seconds."""


class DeduplicateMode:
    """Adds rows of new keys. One object for one table and process."""

    kind = "deduplicate"
    spread: Spread = staticmethod(in_threads)
    """How work on many files is done; the engine may have more cores for it."""
    range_bytes = RANGE_BYTES
    """Bytes of rows that are compared at a time; a larger batch is done in ranges of its keys."""

    def __init__(self, rules: DedupeRules, targets: Callable[[Shape], FileTarget]) -> None:
        self._rules, self._targets = rules, targets
        self._staged: tuple[str, pa.Table] | None = None

    def check(self, shape: Shape, path: str) -> None:
        """Raise TableError for a table that cannot have these keys."""
        named = {"keys": self._rules.keys, "within": (self._rules.column,) if self._rules.column else ()}
        for option, problem in column_problems(named, {field.name: field for field in shape.schema}):
            raise TableError(f"{path}: `{option}`: {problem}")

    def entry(self, table: LakeTable, change: Change) -> NewEntry:
        """The rows of a batch whose keys are new at the version that the table stands at."""
        if not change.files:
            return NewEntry((), change.transactions, change.commit_info)
        self.check(table.shape, table.path)
        ranges = range_count(table, change.files, self.range_bytes)
        looked_at: list[int] = []
        index: KeyIndex | None = None
        if ranges > 1:
            parts = self._ranges(table, change, ranges, looked_at)
        else:
            rows = self._in_order(table, change)
            index = KeyIndex(rows, self._rules.keys)
            parts = iter([self._kept(table, rows, index, looked_at)])
        added = write_files(table.store, self._targets(table.shape), parts)
        changes, come = sum(file.rows for file in change.files), sum(file.rows for file in added)
        told = {**change.commit_info, "mode": self.kind, "changes": changes, "rows": come}
        told |= {"duplicates": changes - come, "looked_at": sum(looked_at)}
        if not change.replayed:
            told["kind"] = self.kind
        return NewEntry(
            added,
            change.transactions,
            told,
            blind=False,
            made=[file.path for file in added],
            meets=partial(self._meets, table, index),
            used=[file.path for file in change.files],
        )

    def _kept(self, table: LakeTable, rows: pa.Table, index: KeyIndex, looked_at: list[int]) -> pa.Table:
        """The rows of new keys; notes how many files were looked at."""
        keys = rows.select(list(self._rules.keys))
        found = find(table, keys, index, self._since(rows), self.spread)
        looked_at.append(found.looked_at)
        new = self._new(table, rows, index, found)
        kept = taken(rows.drop_columns(STAGED.names), np.flatnonzero(new))
        return pa.Table.from_arrays(kept.columns, schema=table.schema)

    def _ranges(
        self, table: LakeTable, change: Change, count: int, looked_at: list[int]
    ) -> Iterator[pa.Table]:
        """The same of a large batch, of one range of keys after the other."""
        self._staged = None
        with spilled(staged_schema(table.schema)) as changes:
            ranges = KeyRanges(table, change.files, self._rules.keys, count)
            ranges.split(staged_batches(table, change.files), changes)
            changes.close()
            for number in range(len(ranges)):
                rows = _by_position(changes.rows(number))
                yield self._kept(table, rows, KeyIndex(rows, self._rules.keys), looked_at)

    def _meets(self, table: LakeTable, index: KeyIndex | None, files: Sequence[DataFile]) -> bool:
        """Whether files that were added since hold rows that may make some of these duplicates."""
        return index is None or holds_any(table, files, self._rules.keys, index)

    def landed(self, entry: NewEntry) -> None:
        """The staged rows are of no use any more."""
        self._staged = None

    def _in_order(self, table: LakeTable, change: Change) -> pa.Table:
        """The rows of the batch in the order of their positions; the same for every try."""
        if self._staged is None or self._staged[0] != change.token:
            self._staged = change.token, _by_position(read_staged(table, change.files))
        return self._staged[1]

    def _since(self, rows: pa.Table) -> tuple[str, int] | None:
        """Rows from before this moment cannot make any row of the batch a duplicate."""
        if self._rules.column is None or rows.column(self._rules.column).null_count:
            return None
        oldest = int(_microseconds(rows.column(self._rules.column)).min())
        return self._rules.column, oldest - int(self._rules.age * 1_000_000)

    def _new(self, table: LakeTable, rows: pa.Table, index: KeyIndex, found: Found) -> Mask:
        if self._rules.column is None:
            there = np.zeros(len(index), np.bool_)
            for match in found.matches:
                there[match.numbers] = True
            first = np.zeros(rows.num_rows, np.bool_)
            first[np.unique(index.numbers, return_index=True)[1]] = True
            return first & ~there[index.numbers]
        return self._new_within(table, rows, index, found)

    def _new_within(self, table: LakeTable, rows: pa.Table, index: KeyIndex, found: Found) -> Mask:
        """A row is new where no row of its key, in the table or before it, is as young as `within` allows.

        Every round takes the first row of each key that is left, and leaves out those that it makes old.
        """
        column = self._rules.column
        assert column is not None
        schema = pa.schema([table.schema.field(column)])
        youngest = np.full(len(index), -_ANY, np.int64)
        for match in found.matches:
            there = _microseconds(rows_at(table, match.file, match.indexes, schema).column(0))
            np.maximum.at(youngest, match.numbers, there)
        moments = _microseconds(rows.column(column))
        oldest = np.where(moments == _ANY, -_ANY + 1, moments - int(self._rules.age * 1_000_000))
        new = np.zeros(rows.num_rows, np.bool_)
        left = np.arange(rows.num_rows)
        while True:
            left = left[youngest[index.numbers[left]] < oldest[left]]
            if not len(left):
                return new
            first = left[np.unique(index.numbers[left], return_index=True)[1]]
            new[first] = True
            np.maximum.at(youngest, index.numbers[first], moments[first])
            left = left[~new[left]]


def _by_position(rows: pa.Table) -> pa.Table:
    return taken(rows, np.argsort(by_position(rows), kind="stable"))


def _microseconds(column: pa.ChunkedArray) -> Numbers:
    """Times as numbers. One that is missing is as young as any: its key counts whatever its age."""
    kind = pa.timestamp("us", column.type.tz) if pa.types.is_timestamp(column.type) else pa.timestamp("us")
    numbers = one_array(column.cast(kind).cast(pa.int64()))
    result: Numbers = numbers.fill_null(_ANY).to_numpy(zero_copy_only=False)
    return result
