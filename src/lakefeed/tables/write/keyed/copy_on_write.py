"""Copy on write: files that hold a changed row are written again, each within its own range of keys.

So a table that is sorted by its key stays so, and the next lookup opens few files. Every engine can read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from lakefeed.files import WrittenFile
from lakefeed.files.parquet import FileTarget, write_files
from lakefeed.files.partitions import combinations
from lakefeed.stores import drop_files
from lakefeed.tables.data_files import read_file, without_rows
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.log.vector import read_vector, union
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed.keys import Mask, Numbers, ranks, taken
from lakefeed.tables.write.keyed.layout import Edit, Written
from lakefeed.tables.write.spread import Spread, good, in_threads

_ROW_GROUP_BYTES = 32 * 2**20
"""Smaller row groups than others have: several files are written at once, and each holds one in memory."""
_PIECE_BYTES = 16 * 2**20
"""So many bytes of new rows are put in order at a time."""
_SORTED_WHOLE = 16 * 2**20
"""A file without order is put in order if it is no larger than this, as that takes all of it in memory."""


class CopyOnWrite:
    """Writes files again without the rows that leave them, with those that take their place."""

    copies: ClassVar[bool] = True

    def write(
        self,
        table: LakeTable,
        target: FileTarget,
        keys: Sequence[str],
        edits: Sequence[Edit],
        rows: pa.Table,
        spread: Spread = in_threads,
    ) -> Written:
        """Rewrite each file that a row leaves; rows that fit into none of them get files of their own."""
        target = replace(target, sort_by=(), row_group_bytes=_ROW_GROUP_BYTES)
        homes = _homes(table, keys, edits, rows)
        order = _order(rows, keys)
        jobs = [
            _Rewriting(table.schema, list(keys), edit, taken(rows, order[homes[order] == at]))
            for at, edit in enumerate(edits)
        ]
        size = sum(edit.file.size for edit in edits)
        results = spread(table.store, partial(_rewrite, target), jobs, size)
        done = [one for one in results if not isinstance(one, Exception)]
        added: list[WrittenFile] = [file for files, _ in done for file in files]
        try:
            good(results)
            apart = order[homes[order] < 0]
            step = max(1, _PIECE_BYTES * rows.num_rows // max(1, rows.nbytes))
            parts = (taken(rows, apart[at : at + step]) for at in range(0, len(apart), step))
            added += write_files(table.store, target, parts)
        except BaseException:
            drop_files(table.store, (file.path for file in added))
            raise
        removed: list[DataFile] = [edit.file for edit in edits]
        return Written(added, removed, copied=sum(copied for _, copied in done))


def _homes(table: LakeTable, keys: Sequence[str], edits: Sequence[Edit], rows: pa.Table) -> Numbers:
    """Which file each of the new rows goes back into, by the number of its edit; -1 for a file of its own.

    A row stays where it was as long as its partition is the same. One of a new key goes where its key fits.
    """
    homes = np.full(rows.num_rows, -1, np.int64)
    if not edits or not rows.num_rows:
        return homes
    fits = _partitions(table, edits, rows)
    for at, edit in enumerate(edits):
        own = edit.own[fits(at)[edit.own]]
        homes[own] = at
    settled = np.zeros(rows.num_rows, np.bool_)
    for edit in edits:
        settled[edit.own] = True
    spans = [edit.span for edit in edits]
    kind = rows.column(keys[0]).type
    bounds = [pa.array([None if span is None else span[side] for span in spans], kind) for side in (0, 1)]
    ranked, low, high = ranks(rows.select([keys[0]]), *(pa.Table.from_arrays([one], [""]) for one in bounds))
    for at, edit in enumerate(edits):
        if edit.span is not None:
            new = ~settled & (homes < 0) & fits(at) & (ranked >= low[at]) & (ranked <= high[at])
            homes[new] = at
    return homes


def _partitions(table: LakeTable, edits: Sequence[Edit], rows: pa.Table) -> Callable[[int], Mask]:
    """Which rows belong to the partition of the file of an edit, by its number."""
    values, codes = combinations(rows, table.partition_columns)
    indexes = {value: at for at, value in enumerate(values)}
    wanted = [indexes.get(tuple(value for _, value in edit.file.partition), -1) for edit in edits]
    codes = codes.astype(np.int64)
    return lambda at: np.equal(codes, wanted[at])


@dataclass(frozen=True)
class _Rewriting:
    """The rewriting of one file, which may be done elsewhere: some rows leave it and others come."""

    schema: pa.Schema
    keys: list[str]
    edit: Edit
    come: pa.Table
    """In the order of their keys."""

    def rows(self, store: pafs.FileSystem) -> Iterator[pa.Table]:
        """Piece by piece, in the order of their keys where the file has it."""
        return self._merged(store) if self.edit.is_sorted else self._appended(store)

    def _kept(self, store: pafs.FileSystem) -> Iterator[pa.Table]:
        """The rows of the file that stay, piece by piece."""
        gone, file, held = self.edit.gone, self.edit.file, self.edit.rows
        if file.vector is not None:
            # Positions are counted through the whole file, so rows that are deleted already are read too.
            gone, file = union(read_vector(store, file.vector), gone), replace(file, vector=None)
        every = read_file(store, file, self.schema) if held is None else held.to_batches()
        for batch in without_rows(every, gone):
            if batch.num_rows:
                yield pa.Table.from_batches([batch])

    def _merged(self, store: pafs.FileSystem) -> Iterator[pa.Table]:
        """Rows that stay and new ones, in the order of their keys."""
        left = self.come
        for rows in self._kept(store):
            last = rows.slice(rows.num_rows - 1).select(self.keys)
            ranked, edge = ranks(left.select(self.keys), last)
            count = int(np.count_nonzero(ranked <= edge[0]))
            if count:
                rows = _in_order(pa.concat_tables([rows, left.slice(0, count)]), self.keys)
                left = left.slice(count)
            yield rows
        if left.num_rows:
            yield left

    def _appended(self, store: pafs.FileSystem) -> Iterator[pa.Table]:
        """The same of a file without order: put in order as a whole if it is small, else left as it is."""
        if self.edit.file.size > _SORTED_WHOLE:
            yield from self._kept(store)
            yield self.come
        else:
            yield _in_order(pa.concat_tables([*self._kept(store), self.come]), self.keys)


def _rewrite(target: FileTarget, store: pafs.FileSystem, work: _Rewriting) -> tuple[list[WrittenFile], int]:
    """The files that take the place of a file, and how many rows were copied."""
    files = write_files(store, target, work.rows(store))
    return files, sum(file.rows for file in files) - work.come.num_rows


def _order(rows: pa.Table, keys: Sequence[str]) -> Numbers:
    """The indexes of rows in the order of their keys."""
    (rank,) = ranks(rows.select(list(keys)))
    return np.argsort(rank, kind="stable")


def _in_order(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    return taken(rows, _order(rows, keys))
