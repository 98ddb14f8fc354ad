"""Where the rows of some keys lie: by the log first, then by the key columns of the files that remain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefeed.columns.views import without_views
from lakefeed.stores import store_errors, store_path
from lakefeed.tables.data_files import add_actions, files_of, open_data, read_file, with_vectors
from lakefeed.tables.file_rows import conformed
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.log.roaring import NONE
from lakefeed.tables.log.vector import among, read_vector
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed.keys import KeyIndex, Mask, Numbers, joined, one_array, ranks
from lakefeed.tables.write.spread import Spread, good, in_threads

_BATCH_ROWS = 250_000
_HELD_FILES, _HELD_ROWS = 16 * 2**20, 64 * 2**20
"""Bytes up to which files are held in memory until they are written again: as they lie there, and as rows."""
_COMPARED_TEXT = 31
"""So many characters of a text are compared with statistics: writers cut them at 32, each in its own way."""
_PRECISE_DIGITS = 15
_MILLISECOND = 1_000
"""Some writers cut the times of statistics to milliseconds, which makes the largest too small."""


@dataclass(frozen=True)
class Match:
    """The rows of one file that have one of the keys."""

    file: DataFile
    indexes: Numbers
    """Where they lie, in ascending order, counted from 0 through the whole file."""
    numbers: Numbers
    """The number of the key of each."""
    span: tuple[pa.Scalar, pa.Scalar] | None
    """The smallest and the largest value of the first key column in the whole file."""
    is_sorted: bool
    """Whether all rows of the file lie in the order of their keys."""


@dataclass(frozen=True)
class Found:
    """What was found of some keys at one version of the table."""

    matches: list[Match]
    looked_at: int
    """Files whose key columns were read."""

    @property
    def numbers(self) -> Numbers:
        """The number of the key of each row that was found, in the order of the matches."""
        return joined([match.numbers for match in self.matches])


def find(
    table: LakeTable,
    keys: pa.Table,
    index: KeyIndex,
    since: tuple[str, int] | None = None,
    spread: Spread = in_threads,
) -> Found:
    """Find every row of the table's version that has one of these keys, which `index` numbers.

    With `since`, files may be passed by whose rows all lie before a moment in that column, in microseconds.
    """
    if not len(index):
        return Found([], 0)
    actions = add_actions(table.delta)
    may_hold = _may_hold(actions, table, keys)
    if since is not None:
        may_hold &= _reaches(actions, *since)
    files = with_vectors(table, files_of(actions.filter(pa.array(may_hold)), table.partition_columns))
    schema = pa.schema([table.schema.field(name) for name in keys.schema.names])
    size = sum(file.size for file in files) * len(schema) // max(1, len(table.schema))
    matches = good(spread(table.store, partial(_match, index, schema), files, size))
    return Found([one for one in matches if len(one.indexes)], len(files))


def read_columns(store: pafs.FileSystem, file: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """All rows of a file, but only these columns."""
    with store_errors(store_path(store)), open_data(store, file.path) as stream:
        reader = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us", pre_buffer=True)
        names = _present(reader, schema)
        for batch in reader.iter_batches(batch_size=_BATCH_ROWS, columns=names, use_threads=False):
            yield conformed(batch, schema, file.partition)


def rows_at(table: LakeTable, file: DataFile, indexes: Numbers, schema: pa.Schema) -> pa.Table:
    """The rows at these indexes of a file, which ascend; one row group is held at a time."""
    found: list[pa.RecordBatch] = []
    with store_errors(table.path), open_data(table.store, file.path) as stream:
        reader = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
        names, start = _present(reader, schema), 0
        for group in range(reader.num_row_groups):
            end = start + reader.metadata.row_group(group).num_rows
            wanted = indexes[np.searchsorted(indexes, start) : np.searchsorted(indexes, end)]
            if len(wanted):
                found.append(conformed(_taken(reader, group, wanted - start, names), schema, file.partition))
            start = end
    return pa.Table.from_batches(found, schema)


def matched(table: LakeTable, matches: Sequence[Match], schema: pa.Schema) -> pa.Table:
    """These columns of all rows that were found, in the order of the matches."""

    def read(_: pafs.FileSystem, match: Match) -> pa.Table:
        return rows_at(table, match.file, match.indexes, schema)

    parts = good(in_threads(table.store, read, matches, 0))
    return pa.concat_tables([schema.empty_table(), *parts])


def held(table: LakeTable, files: Sequence[DataFile]) -> dict[str, pa.Table]:
    """All rows of some files by path, deleted ones as well; nothing where they are too large for that."""
    found: dict[str, pa.Table] = {}
    if sum(file.size for file in files) > _HELD_FILES:
        return found
    room = _HELD_ROWS
    for file in files:
        batches = []
        for batch in read_file(table.store, replace(file, vector=None), table.schema):
            room -= batch.nbytes
            if room < 0:
                return {}
            batches.append(batch)
        found[file.path] = pa.Table.from_batches(batches, table.schema)
    return found


def _taken(reader: pq.ParquetFile, group: int, indexes: Numbers, names: list[str]) -> pa.RecordBatch:
    if not names:
        return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), len(indexes), [None]))
    rows = without_views(reader.read_row_group(group, columns=names, use_threads=False))
    return rows.take(pa.array(indexes)).combine_chunks().to_batches()[0]


def _present(reader: pq.ParquetFile, schema: pa.Schema) -> list[str]:
    there = set(reader.schema_arrow.names)
    return [name for name in schema.names if name in there]


def _match(index: KeyIndex, schema: pa.Schema, store: pafs.FileSystem, file: DataFile) -> Match:
    indexes, numbers = [], []
    low: list[Any] = []
    high: list[Any] = []
    start, is_sorted, before = 0, True, None
    deleted = NONE if file.vector is None else read_vector(store, file.vector)
    for batch in read_columns(store, file, schema):
        found = index.find(batch)
        hits = np.flatnonzero(found >= 0)
        if len(deleted) and len(hits):
            hits = hits[~among(hits + start, deleted)]
        indexes.append(hits + start)
        numbers.append(found[hits])
        bounds = pc.min_max(batch.column(0))
        low.append(bounds["min"])
        high.append(bounds["max"])
        is_sorted = is_sorted and _is_sorted(before, batch)
        before = batch.slice(batch.num_rows - 1)
        start += batch.num_rows
    span = None
    if low and all(one.is_valid for one in low):
        lows, highs = (pa.array(some, schema.field(0).type) for some in (low, high))
        span = pc.min_max(lows)["min"], pc.min_max(highs)["max"]
    return Match(file, joined(indexes), joined(numbers), span, start > 0 and is_sorted)


def _is_sorted(before: pa.RecordBatch | None, rows: pa.RecordBatch) -> bool:
    """Whether rows ascend by all columns, and begin behind the row before. Nulls have no order."""
    table = pa.Table.from_batches([rows] if before is None else [before, rows]).combine_chunks()
    if table.num_rows < 2:
        return True
    ascends: Any = None
    for name in reversed(table.schema.names):
        column = one_array(table.column(name))
        first, second = column.slice(0, len(column) - 1), column.slice(1)
        if ascends is None:
            ascends = pc.less_equal(first, second)
        else:
            ascends = pc.or_(pc.less(first, second), pc.and_(pc.equal(first, second), ascends))
    return bool(pc.all(ascends, skip_nulls=False).as_py())


def _may_hold(actions: pa.Table, table: LakeTable, keys: pa.Table) -> Mask:
    """The files that may hold one of the keys, by partition values and statistics."""
    found = np.ones(actions.num_rows, np.bool_)
    for name in keys.schema.names:
        values = one_array(keys.column(name)).unique()
        if name in table.partition_columns:
            own = one_array(actions.column(f"partition.{name}")).cast(values.type)
            found &= pc.is_in(own, value_set=values).to_numpy(zero_copy_only=False)
        elif f"min.{name}" in actions.schema.names and f"max.{name}" in actions.schema.names:
            bounds = [one_array(actions.column(f"{side}.{name}")) for side in ("min", "max")]
            found &= _between(values, *bounds)
    return found


def _reaches(actions: pa.Table, name: str, since: int) -> Mask:
    """The files that may hold a row of this moment or later, or one without a moment."""
    if f"max.{name}" not in actions.schema.names or f"null_count.{name}" not in actions.schema.names:
        return np.ones(actions.num_rows, np.bool_)
    latest = one_array(actions.column(f"max.{name}"))
    zone = latest.type.tz if pa.types.is_timestamp(latest.type) else None
    moments = latest.cast(pa.timestamp("us", zone)).cast(pa.int64())
    early = pc.less(moments, since - _MILLISECOND)
    whole = pc.equal(one_array(actions.column(f"null_count.{name}")), 0)
    passed = pc.fill_null(pc.and_(early, whole), False)
    result: Mask = ~passed.to_numpy(zero_copy_only=False)
    return result


def _between(values: pa.Array, low: pa.Array, high: pa.Array) -> Mask:
    """For each pair of bounds, whether one of the values lies between them; what is not known, may be."""
    kind = values.type
    if pa.types.is_decimal(kind) and kind.precision > _PRECISE_DIGITS:
        return np.ones(len(low), np.bool_)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        values, low, high = (
            pc.utf8_slice_codeunits(one.cast(pa.string()), 0, _COMPARED_TEXT) for one in (values, low, high)
        )
    elif pa.types.is_timestamp(kind):
        values, low, high = (one.cast(kind).cast(pa.int64()) for one in (values, low, high))
        high = pc.add(high, _MILLISECOND)
    known = pc.and_(low.is_valid(), high.is_valid()).to_numpy(zero_copy_only=False)
    ranked, lowest, highest = ranks(*(pa.table({"": one.cast(values.type)}) for one in (values, low, high)))
    ranked = np.sort(ranked)
    between = np.searchsorted(ranked, lowest, "left") < np.searchsorted(ranked, highest, "right")
    result: Mask = between | ~known
    return result
