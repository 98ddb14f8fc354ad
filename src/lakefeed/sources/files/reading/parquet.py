"""Rows of Parquet files, as columns in the types that tables are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakefeed.rows.plain_types import plain_column, plain_type
from lakefeed.sources.files.piece import Piece
from lakefeed.sources.files.reading.lines import FileOffsets
from lakefeed.sources.files.reading.opening import Unreadable, tells_of_content
from lakefeed.tables.file_rows import row_range

_READ_AT_ONCE = 4 * 2**20


def parquet_rows(stream: pa.NativeFile, piece: Piece) -> Iterator[tuple[pa.RecordBatch, FileOffsets]]:
    """The rows of a piece, each with its number in the file. Raises Unreadable."""
    at = piece.first
    try:
        small = piece.file.size <= _READ_AT_ONCE
        # In one piece, which is one request to an object store.
        content = pa.BufferReader(stream.read_buffer()) if small else stream
        file = pq.ParquetFile(content, coerce_int96_timestamp_unit="us")
        count = None if piece.end is None else piece.end - at
        for batch in row_range(file, at, count, use_threads=not small):
            yield _plain(batch), np.arange(at, at + batch.num_rows)
            at += batch.num_rows
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        if not tells_of_content(error):
            raise
        reason = (str(error).splitlines() or ["no reason given"])[0][:200]
        if isinstance(error, pa.ArrowNotImplementedError):
            text = f"something in the file is not read: {reason}. Write it again with another type or codec"
            raise Unreadable("bad_parquet", text) from None
        raise Unreadable("bad_parquet", f"no Parquet, or damaged: {reason}") from None


def row_groups(stream: pa.NativeFile) -> list[int] | None:
    """The rows of each row group, by the footer; None where it cannot be read: a worker then says why."""
    try:
        metadata = pq.ParquetFile(stream).metadata
    except (pa.ArrowException, OSError):
        return None
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


def _refuse_doubled(fields: Iterable[pa.Field], inside: str = "") -> None:
    """Raise Unreadable where a name comes twice: which of the two columns is meant would be a guess."""
    seen: set[str] = set()
    for field in fields:
        if field.name in seen:
            text = f"there are two columns '{inside}{field.name}'. Write the file again with other names"
            raise Unreadable("bad_parquet", text)
        seen.add(field.name)
        kind = field.type
        below = [kind.field(at) for at in range(kind.num_fields)] if pa.types.is_nested(kind) else []
        _refuse_doubled(below, f"{inside}{field.name}.")


def _plain(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = []
    _refuse_doubled(rows.schema)
    for field, column in zip(rows.schema, rows.columns, strict=True):
        kind = plain_type(field.type)
        if kind is None:
            raise Unreadable(
                "bad_parquet",
                f"column '{field.name}' is of type {field.type}, which tables do not have. "
                "Write the file again with another type, or without the column",
            )
        columns.append(plain_column(column, kind))
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)
