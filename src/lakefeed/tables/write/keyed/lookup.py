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

from lakefeed.columns.mapping import mapped_as, present_names
from lakefeed.columns.views import without_views
from lakefeed.stores import store_errors, store_path
from lakefeed.tables.data_files import (
    add_actions,
    data_files,
    files_of,
    open_data,
    read_file,
    read_rows,
    with_vectors,
)
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


@dataclass(frozen=True)
class Lasting:
    """Which rows of a history are asked for: those that hold at a moment of the sequence, or after it."""

    column: pa.Field
    """The ends of intervals."""
    since: pa.Scalar
    """The first column of the moment."""

    def among(self, ends: pa.Array) -> Mask:
        """Which of some rows do; those whose end is not known do as well."""
        if pa.types.is_struct(ends.type):
            ends = pc.struct_field(ends, 0)
        over = pc.fill_null(pc.less(ends, self.since), False)
        result: Mask = ~over.to_numpy(zero_copy_only=False)
        return result

    def may_lie_in(self, actions: pa.Table) -> Mask:
        """Which files may hold such rows, by their statistics."""
        if pa.types.is_timestamp(self.since.type):
            return _reaches(actions, self.column.name, self.since.cast(pa.int64()).as_py())
        if pa.types.is_integer(self.since.type):
            return _reaches(actions, self.column.name, self.since.as_py())
        return np.ones(actions.num_rows, np.bool_)


def find(
    table: LakeTable,
    keys: pa.Table,
    index: KeyIndex,
    since: tuple[str, int] | None = None,
    spread: Spread = in_threads,
    lasting: Lasting | None = None,
) -> Found:
    """Find every row of the table's version that has one of these keys, which `index` numbers.

    With `since`, files may be passed by whose rows all lie before a moment in that column, in microseconds.
    With `lasting`, only rows of that kind are found.
    """
    if not len(index) or table.is_emptied:
        return Found([], 0)
    actions = add_actions(table.delta)
    may_hold = _may_hold(actions, table, keys)
    if since is not None:
        may_hold &= _reaches(actions, *since)
    return _found(
        table, index, keys.schema.names, _chosen(table, actions, may_hold, lasting), spread, lasting
    )


def find_all(
    table: LakeTable,
    index: KeyIndex,
    names: Sequence[str],
    spread: Spread = in_threads,
    lasting: Lasting | None = None,
    *,
    nameless: bool = True,
) -> Found:
    """Find every row of the table's version, or every lasting one, whose keys `index` numbers.

    A row with a null in its key, as one from before its key had that column, is numbered behind all keys,
    each with a number of its own; without `nameless`, it is left out.
    """
    every = _EveryKey(index) if nameless else index
    found = _found(table, every, names, files_with(table, lasting), spread, lasting)
    numbered, count = [], len(index)
    for match in found.matches:
        own = match.numbers == len(index)
        numbers = match.numbers.copy()
        numbers[own] = count + np.arange(own.sum())
        count += int(own.sum())
        numbered.append(replace(match, numbers=numbers))
    return Found(numbered, found.looked_at)


def files_with(table: LakeTable, lasting: Lasting | None) -> list[DataFile]:
    """The files that may hold lasting rows; all without it."""
    if table.is_emptied:
        return []
    if lasting is None:
        return data_files(table)
    actions = add_actions(table.delta)
    return _chosen(table, actions, np.ones(actions.num_rows, np.bool_), lasting)


def _chosen(table: LakeTable, actions: pa.Table, may_hold: Mask, lasting: Lasting | None) -> list[DataFile]:
    if lasting is not None:
        may_hold = may_hold & lasting.may_lie_in(actions)
    return with_vectors(table, files_of(actions.filter(pa.array(may_hold)), table.partition_columns))


def _found(
    table: LakeTable,
    index: KeyIndex | _EveryKey,
    names: Sequence[str],
    files: Sequence[DataFile],
    spread: Spread,
    lasting: Lasting | None,
) -> Found:
    schema = pa.schema([table.schema.field(name) for name in names])
    size = sum(file.size for file in files) * len(schema) // max(1, len(table.schema))
    matches = good(spread(table.store, partial(_match, index, schema, lasting), files, size))
    return Found([one for one in matches if len(one.indexes)], len(files))


def lasting_keys(table: LakeTable, schema: pa.Schema, lasting: Lasting | None) -> pa.Table:
    """The keys of all lasting rows, in columns of this schema."""
    parts = [schema.empty_table()]
    whole = schema if lasting is None else schema.append(lasting.column)
    for batch in read_rows(table, files_with(table, lasting), whole):
        own = batch.select(schema.names)
        if lasting is not None:
            own = own.filter(pa.array(lasting.among(batch.column(lasting.column.name))))
        parts.append(pa.Table.from_batches([own]).group_by(schema.names).aggregate([]).cast(schema))
    return pa.concat_tables(parts).group_by(schema.names).aggregate([]).cast(schema)


@dataclass(frozen=True)
class _EveryKey:
    """Finds the key of each row of a table, and one more number for rows with a null in their key."""

    index: KeyIndex

    def find(self, rows: pa.RecordBatch) -> Numbers:
        nameless = np.zeros(rows.num_rows, np.bool_)
        for name in rows.schema.names:
            nameless |= rows.column(name).is_null().to_numpy(zero_copy_only=False)
        return np.where(nameless, len(self.index), self.index.find(rows))


def holds_any(table: LakeTable, files: Sequence[DataFile], names: Sequence[str], index: KeyIndex) -> bool:
    """Whether one of these files has a row with one of the keys, in the columns of these names."""
    schema = pa.schema([table.schema.field(name) for name in names])
    return any(len(_match(index, schema, None, table.store, file).indexes) for file in files)


def read_columns(store: pafs.FileSystem, file: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """All rows of a file, but only these columns."""
    with store_errors(store_path(store)), open_data(store, file.path) as stream:
        reader = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us", pre_buffer=True)
        names = present_names(schema, reader.schema_arrow)
        for batch in reader.iter_batches(batch_size=_BATCH_ROWS, columns=names, use_threads=False):
            yield conformed(batch, schema, file.partition)


def rows_at(table: LakeTable, file: DataFile, indexes: Numbers, schema: pa.Schema) -> pa.Table:
    """The rows at these indexes of a file, which ascend; one row group is held at a time."""
    found: list[pa.RecordBatch] = []
    schema = mapped_as(schema, table.schema)
    with store_errors(table.path), open_data(table.store, file.path) as stream:
        reader = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
        names, start = present_names(schema, reader.schema_arrow), 0
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


def _match(
    index: KeyIndex | _EveryKey,
    schema: pa.Schema,
    lasting: Lasting | None,
    store: pafs.FileSystem,
    file: DataFile,
) -> Match:
    indexes, numbers = [], []
    low: list[Any] = []
    high: list[Any] = []
    start, is_sorted, before = 0, True, None
    deleted = NONE if file.vector is None else read_vector(store, file.vector)
    wanted = schema if lasting is None else schema.append(lasting.column)
    for rows in read_columns(store, file, wanted):
        batch = rows.select(schema.names)
        found = index.find(batch)
        if lasting is not None:
            found = np.where(lasting.among(rows.column(lasting.column.name)), found, -1)
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
    """The files that may hold a row of this moment or number or of a later one, or one without any."""
    if f"max.{name}" not in actions.schema.names or f"null_count.{name}" not in actions.schema.names:
        return np.ones(actions.num_rows, np.bool_)
    latest = one_array(actions.column(f"max.{name}"))
    if not pa.types.is_integer(latest.type):
        zone = latest.type.tz if pa.types.is_timestamp(latest.type) else None
        latest, since = latest.cast(pa.timestamp("us", zone)), since - _MILLISECOND
    early = pc.less(latest.cast(pa.int64()), since)
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
    ranked, lowest, highest = ranks(
        *(pa.Table.from_arrays([one.cast(values.type)], [""]) for one in (values, low, high))
    )
    ranked = np.sort(ranked)
    between = np.searchsorted(ranked, lowest, "left") < np.searchsorted(ranked, highest, "right")
    result: Mask = between | ~known
    return result
