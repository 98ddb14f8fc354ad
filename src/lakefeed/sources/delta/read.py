"""Rows of data files, read by a worker with Arrow, as the table has its columns now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import Schema

from lakefeed.columns.partition_values import value_of
from lakefeed.errors import DataLoss, SourceError, SourceUnavailable, StoreUnavailable, TableError
from lakefeed.events import ORIGIN, Events, OffsetRange
from lakefeed.sources.delta.piece import Piece
from lakefeed.stores import open_store, store_errors
from lakefeed.tables.log.roaring import Positions
from lakefeed.tables.log.vector import read_vector

if TYPE_CHECKING:
    from lakefeed.sources.delta.source import DeltaSource

_BATCH_ROWS = 50_000
_READ_AT_ONCE = 4 * 1024**2
_PHYSICAL = b"delta.columnMapping.physicalName"


class RowEvents(Events):
    """Rows of one piece of a file, each with its place."""

    def __init__(self, columns: pa.RecordBatch, offsets: Positions, modified: int) -> None:
        self.columns = columns
        self._offsets, self._modified = offsets, modified

    def origin(self, rows: Sequence[int] | None = None) -> pa.RecordBatch:
        """The place of each row, and when its file was written."""
        offsets = self._offsets if rows is None else self._offsets[np.asarray(rows, np.int64)]
        count = len(offsets)
        known = {
            "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
            "offset": pa.array(offsets),
            "timestamp": pa.repeat(pa.scalar(self._modified * 1000, pa.int64()), count).cast(
                ORIGIN.field("timestamp").type
            ),
        }
        arrays = [known.get(field.name, pa.nulls(count, field.type)) for field in ORIGIN]
        return pa.record_batch(arrays, schema=ORIGIN)

    def counts(self, rows: Sequence[int] | None = None) -> Mapping[str, int]:
        """All are of one partition."""
        return {"0": len(self) if rows is None else len(rows)}


def read(source: DeltaSource, ranges: Sequence[OffsetRange]) -> Iterator[Events]:
    """Yield every row of the pieces that the ranges carry."""
    store = open_store(source.path, source.storage)
    for span in ranges:
        for part in span.payload or ():
            schema = arrow_schema(part["schema"])
            for given in part["pieces"]:
                piece = Piece.of_payload(given)
                try:
                    with store_errors(source.path):
                        yield from _rows(source, store, piece, schema)
                except StoreUnavailable as error:
                    raise SourceUnavailable(str(error)) from error
                except TableError as error:
                    raise SourceError(str(error)) from error


@lru_cache(maxsize=8)
def arrow_schema(text: str) -> pa.Schema:
    """The columns of a table, from the text in its log."""
    return pa.schema(Schema.from_json(text).to_arrow())


def _rows(source: DeltaSource, store: pafs.FileSystem, piece: Piece, schema: pa.Schema) -> Iterator[Events]:
    try:
        stream = store.open_input_file(piece.path)
    except FileNotFoundError:
        raise DataLoss(
            f"{source.path}: the file {piece.path} of {piece.place} is gone: a vacuum has removed it before "
            "it was read.\nKeep files for longer (`upkeep.vacuum.retain` of that table); what is still there "
            "is read by a table that starts anew."
        ) from None
    with stream:
        try:
            small = piece.size <= _READ_AT_ONCE
            # In one piece, which is one request to an object store; threads cost more than they bring.
            file = pq.ParquetFile(
                pa.BufferReader(stream.read_buffer()) if small else stream, coerce_int96_timestamp_unit="us"
            )
            at = piece.place.offset
            deleted = read_vector(store, piece.vector) if piece.vector else None
            for batch in _cut_out(file, piece, use_threads=not small):
                offsets = np.arange(at, at + batch.num_rows)
                at += batch.num_rows
                if deleted is not None:
                    # The place of a row is its number in the file, from where the piece begins.
                    kept = ~np.isin(offsets - piece.place.offset + piece.first, deleted)
                    batch, offsets = batch.filter(pa.array(kept)), offsets[kept]
                if len(offsets):
                    yield RowEvents(conformed(batch, schema, dict(piece.partition)), offsets, piece.modified)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            reason = (str(error).splitlines() or ["no reason given"])[0][:120]
            raise SourceError(
                f"{source.path}: {piece.path} cannot be read: {reason}\n"
                "Bring it back from a backup, or restore the table to a version without it."
            ) from error
    if at != piece.place.offset + piece.rows:
        raise SourceError(
            f"{source.path}: {piece.path} has fewer rows than the log says.\n"
            "Bring it back from a backup, or restore the table to a version without it."
        )


def _cut_out(file: pq.ParquetFile, piece: Piece, *, use_threads: bool) -> Iterator[pa.RecordBatch]:
    """The rows of the piece; row groups that it has no part in are not opened."""
    groups: list[int] = []
    before = passed = 0
    for number in range(file.metadata.num_row_groups):
        rows = file.metadata.row_group(number).num_rows
        if passed + rows > piece.first and passed < piece.first + piece.rows:
            if not groups:
                before = passed
            groups.append(number)
        passed += rows
    skip, left = piece.first - before, piece.rows
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


def conformed(rows: pa.RecordBatch, schema: pa.Schema, partition: Mapping[str, str | None]) -> pa.RecordBatch:
    """The rows of a file as the table has its columns: later ones are null, older types are cast."""
    columns = []
    for field in schema:
        name = _stored_name(field)
        if name in partition:
            columns.append(pa.repeat(value_of(partition[name], field.type), rows.num_rows))
        elif name in rows.schema.names:
            columns.append(_shaped(rows.column(name), field.type))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([_plain(field) for field in schema]))


def _stored_name(field: pa.Field) -> str:
    """What files call a column: another name than the table's where columns are mapped."""
    name: bytes = (field.metadata or {}).get(_PHYSICAL, field.name.encode())
    return name.decode()


def _plain(field: pa.Field) -> pa.Field:
    return pa.field(field.name, field.type)


def _shaped(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column under another type: fields inside of it that came later are null."""
    if column.type == kind:
        return column
    if column.offset and pa.types.is_nested(kind):
        # Arrow puts no nested array together from parts of one.
        column = column.take(pa.array(np.arange(len(column))))
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        there = {field.name: at for at, field in enumerate(column.type)}
        children = [
            _shaped(column.field(there[_stored_name(field)]), field.type)
            if _stored_name(field) in there
            else pa.nulls(len(column), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind) and pa.types.is_list(column.type):
        values = _shaped(column.values, kind.value_type)
        return pa.ListArray.from_arrays(column.offsets, values, type=kind, mask=column.is_null())
    if pa.types.is_map(kind) and pa.types.is_map(column.type):
        keys, items = _shaped(column.keys, kind.key_type), _shaped(column.items, kind.item_type)
        return pa.MapArray.from_arrays(column.offsets, keys, items, type=kind, mask=column.is_null())
    return column.cast(kind)
