"""Rows of one data file as its table has its columns, whichever of them are wanted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import Schema

from lakefeed.columns.mapping import physical_name, stored_name
from lakefeed.columns.partition_values import value_of
from lakefeed.columns.variants import variant_texts, with_text_for_variants
from lakefeed.columns.views import without_views
from lakefeed.errors import TableError
from lakefeed.stores import located, store_path
from lakefeed.tables.log.data_file import Partition
from lakefeed.tables.log.roaring import Positions
from lakefeed.tables.log.vector import DeletionVector, read_vector
from lakefeed.text import first_line

_BATCH_ROWS = 50_000
_READ_AT_ONCE = 4 * 1024**2


@dataclass(frozen=True)
class FileRows:
    """Which rows of a file are wanted: a range of them, without some, or only some."""

    path: str
    size: int
    partition: Partition = ()
    without: DeletionVector | None = None
    only: DeletionVector | None = None
    first: int = 0
    count: int | None = None
    """How many rows from the first on; None: all of them."""


def read_file(
    store: pafs.FileSystem, wanted: FileRows, schema: pa.Schema
) -> Iterator[tuple[pa.RecordBatch, Positions]]:
    """The wanted rows in their order, and where each lies in the file.

    Raises FileNotFoundError where the file is gone, TableError where it or a vector is not what the log says.
    """
    home, path = located(store, wanted.path)
    # Without what the metadata of columns tells of files.
    plain = pa.schema([(field.name, field.type) for field in schema])
    with home.open_input_file(path) as stream:
        without, only = (read_vector(store, one) if one else None for one in (wanted.without, wanted.only))
        at = wanted.first
        for batch in _read(store, wanted, stream):
            indexes = np.arange(at, at + batch.num_rows)
            at += batch.num_rows
            kept = np.ones(len(indexes), np.bool_)
            if without is not None:
                kept &= ~np.isin(indexes, without)
            if only is not None:
                kept &= np.isin(indexes, only)
            if not kept.all():
                batch, indexes = without_views(batch).filter(pa.array(kept)), indexes[kept]
            if len(indexes):
                columns = _under(store, wanted, batch, schema).columns
                yield pa.RecordBatch.from_arrays(columns, schema=plain), indexes


def _under(
    store: pafs.FileSystem, wanted: FileRows, batch: pa.RecordBatch, schema: pa.Schema
) -> pa.RecordBatch:
    """The rows of a file under the columns of the table. Raises TableError where values do not convert."""
    there = {field.name: field for field in batch.schema}
    try:
        for field in schema:
            own = there.get(stored_name(field, there))
            if own is not None and _is_reinterpreted(own.type, field.type):
                raise pa.ArrowInvalid(f"column {field.name} was {own.type} and is {field.type}")
        return conformed(batch, schema, named_partition(wanted.partition, schema))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(
            f"{store_path(store)}: {wanted.path} has rows from before a column got another type, and they do "
            f"not convert: {first_line(error)}\n"
            "Begin with a later version; tables that read its changes begin anew when they are dropped: "
            "lakefeed table drop PATH --yes"
        ) from error


def _is_reinterpreted(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether Arrow would take a number for a count of days or microseconds, or the other way round."""
    return bool(
        (pa.types.is_temporal(old) and (pa.types.is_integer(new) or pa.types.is_floating(new)))
        or (pa.types.is_temporal(new) and (pa.types.is_integer(old) or pa.types.is_floating(old)))
    )


def _read(store: pafs.FileSystem, wanted: FileRows, stream: pa.NativeFile) -> Iterator[pa.RecordBatch]:
    """The range of rows, deleted ones among them."""
    read = 0
    try:
        file, use_threads = opened(stream, wanted.size)
        for batch in row_range(file, wanted.first, wanted.count, use_threads=use_threads):
            read += batch.num_rows
            yield batch
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise damaged(store, wanted.path, f"cannot be read: {first_line(error)}") from error
    if wanted.count is not None and read < wanted.count:
        raise damaged(store, wanted.path, "has fewer rows than the log says.")


def opened(stream: pa.NativeFile, size: int) -> tuple[pq.ParquetFile, bool]:
    """A data file of so many bytes, and whether it is worth threads.

    A small one is read in one piece, which is one request to an object store.
    """
    small = size <= _READ_AT_ONCE
    source = pa.BufferReader(stream.read_buffer()) if small else stream
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us"), not small


def damaged(store: pafs.FileSystem, path: str, what: str) -> TableError:
    """A data file that is not what the log says."""
    return TableError(
        f"{store_path(store)}: {path} {what}\n"
        "Bring it back from a backup, or restore the table to a version without it."
    )


@lru_cache(maxsize=8)
def arrow_schema(text: str) -> pa.Schema:
    """The columns of a table, from the text in its log; a variant is its JSON text."""
    return pa.schema(Schema.from_json(with_text_for_variants(text)).to_arrow())


def row_range(
    file: pq.ParquetFile, first: int, count: int | None, *, use_threads: bool
) -> Iterator[pa.RecordBatch]:
    """So many rows from one on, or all; row groups that have none of them are not opened."""
    groups: list[int] = []
    before = passed = 0
    left = file.metadata.num_rows - first if count is None else count
    for number in range(file.metadata.num_row_groups):
        rows = file.metadata.row_group(number).num_rows
        if passed + rows > first and passed < first + left:
            if not groups:
                before = passed
            groups.append(number)
        passed += rows
    skip = first - before
    if not groups:
        return
    for batch in file.iter_batches(_BATCH_ROWS, row_groups=groups, use_threads=use_threads):
        if skip >= batch.num_rows:
            skip -= batch.num_rows
            continue
        part = batch.slice(skip, left)
        skip, left = 0, left - part.num_rows
        yield part
        if not left:
            return


def named_partition(partition: Partition, schema: pa.Schema) -> Partition:
    """The values of a partition as the log has them, under the names of the columns."""
    names = {physical_name(field): field.name for field in schema}
    return tuple((names[name], value) for name, value in partition if name in names)


def conformed(rows: pa.RecordBatch, schema: pa.Schema, partition: Partition = ()) -> pa.RecordBatch:
    """The rows of a file as the table has its columns: later ones are null, older types are cast.

    `partition` is under the names of the columns, the rows under those of the file.
    """
    columns, values = [], dict(partition)
    there = {field.name: field for field in rows.schema}
    for field in schema:
        name = stored_name(field, there)
        if field.name in values:
            columns.append(pa.repeat(value_of(values[field.name], field.type), rows.num_rows))
        elif name in there:
            columns.append(_shaped(rows.column(name), field.type))
        else:
            assert physical_name(field) not in values, f"the partition value of {field.name} is as in the log"
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _shaped(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column under another type: fields inside of it that came later are null."""
    if column.type == kind:
        return column
    if column.offset and pa.types.is_nested(kind):
        # Arrow puts no nested array together from parts of one.
        column = column.take(pa.array(np.arange(len(column))))
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        there = {field.name: field for field in column.type}
        names = [stored_name(field, there) for field in kind]
        children = [
            _shaped(column.field(name), field.type) if name in there else pa.nulls(len(column), field.type)
            for field, name in zip(kind, names, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind) and pa.types.is_list(column.type):
        values = _shaped(column.values, kind.value_type)
        return pa.ListArray.from_arrays(column.offsets, values, type=kind, mask=column.is_null())
    if pa.types.is_map(kind) and pa.types.is_map(column.type):
        keys, items = _shaped(column.keys, kind.key_type), _shaped(column.items, kind.item_type)
        return pa.MapArray.from_arrays(column.offsets, keys, items, type=kind, mask=column.is_null())
    if pa.types.is_string(kind) and pa.types.is_struct(column.type):
        return variant_texts(column)
    return column.cast(kind)
