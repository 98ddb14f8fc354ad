"""Columns of Parquet files that others wrote: the types that a Delta table has for them, or why it has none.

What is let through here is read alike by delta-rs, DuckDB, Polars and Spark; a test has tried each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefeed.columns.column_types import stored_type
from lakefeed.columns.names import column_name_problem
from lakefeed.errors import TableError
from lakefeed.stores import StoreError, store_errors, store_path
from lakefeed.text import first_line

_FIELD_ID = b"PARQUET:field_id"
_SAME = (
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32(),
)  # fmt: skip
_WIDER = (pa.uint8(), pa.uint16(), pa.uint32())
_CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4"})
"""By Arrow's names; its `LZ4` is Parquet's LZ4_RAW, and it has no name for Hadoop's LZ4."""
_SHAPES = frozenset({"GEOMETRY", "GEOGRAPHY"})
_AT_A_TIME = 2**16
"""Bytes that are read ahead of a column: only its first page is wanted."""
_WITHOUT = {
    pa.null(): "has no value in any row, so its type is unknown",
    pa.uint64(): "is uint64: Delta does not have this type, and its values may not fit a long",
    pa.float16(): "is a float of 16 bits, a type that Delta does not have",
}


class UnreadableColumn(Exception):
    """A column that not every reader could read: the way to it, why, and what to do."""

    def __init__(self, path: str, reason: str, remedy: str = "Write the file again without it") -> None:
        super().__init__(f"column {path} {reason}")
        self.remedy = remedy


def columns_of(store: pafs.FileSystem, path: str) -> tuple[pq.FileMetaData, pa.Schema]:
    """The footer of a file and its columns in the types of a Delta table, after a row of each row group.

    Raises TableError that names the file, and the column where it is one.
    """
    try:
        with store.open_input_file(path) as stream:
            reader = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us", buffer_size=_AT_A_TIME)
            given = reader.schema_arrow
            stored = iter([reader.schema.column(at).physical_type for at in range(len(reader.schema))])
            columns = pa.schema(_fields(given, "", stored))
            _refuse_old_lists(reader)
            _refuse_shapes(reader)
            _refuse_codecs(reader.metadata)
            for group in range(reader.num_row_groups):
                # A damaged page or dictionary shows only when it is read.
                next(reader.iter_batches(batch_size=1, row_groups=[group], use_threads=False), None)
            return reader.metadata, columns
    except UnreadableColumn as error:
        raise _refused(store, path, f"{error}", error.remedy) from None
    except StoreError:
        with store_errors(f"{store_path(store)}/{path}"):
            raise
    except (pa.ArrowException, OSError, ValueError) as error:
        what = f"it cannot be read: {first_line(error)}"
        raise _refused(store, path, what, "Move it somewhere else, or repair it") from error


def _refused(store: pafs.FileSystem, path: str, what: str, remedy: str) -> TableError:
    return TableError(f"{store_path(store)}: {path}: {what}.\n{remedy}, then convert.")


def _fields(fields: Iterable[pa.Field], above: str, stored: Iterator[str]) -> Iterator[pa.Field]:
    """The fields as a table has them; `stored` is how the leaves of the file are stored, in its order."""
    seen: dict[str, str] = {}
    for field in fields:
        path = f"{above}{field.name}"
        if problem := column_name_problem(field.name):
            raise UnreadableColumn(path, f"has a name that a Delta table cannot hold: {problem}")
        if other := seen.get(field.name.casefold()):
            raise UnreadableColumn(path, f"differs from {other} only in case, and readers take both for one")
        seen[field.name.casefold()] = field.name
        yield _field(field, path, stored)


def _field(field: pa.Field, path: str, stored: Iterator[str]) -> pa.Field:
    if _FIELD_ID in (field.metadata or {}):
        raise UnreadableColumn(
            path, "has a Parquet field id, as Iceberg writes them; DuckDB reads null in its place"
        )
    return pa.field(field.name, _type(field.type, path, stored))


def _type(kind: pa.DataType, path: str, stored: Iterator[str]) -> pa.DataType:
    types = pa.types
    if types.is_struct(kind) and kind.num_fields:
        return pa.struct(list(_fields(kind, f"{path}.", stored)))
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(_field(kind.value_field, f"{path}.element", stored).with_name("element"))
    if types.is_map(kind):
        key = _field(kind.key_field, f"{path}.key", stored)
        return pa.map_(key.type, _field(kind.item_field, f"{path}.value", stored).with_name("value"))
    leaf = kind.value_type if types.is_dictionary(kind) else kind
    found = None if types.is_nested(kind) else _plain(leaf, next(stored, ""))
    if found is None:
        reason = _WITHOUT.get(leaf, f"is {leaf}, which not every reader of Delta supports")
        if types.is_timestamp(leaf):
            raise UnreadableColumn(path, reason, "Write the file again with microseconds")
        raise UnreadableColumn(path, reason)
    return found


def _plain(kind: pa.DataType, stored: str) -> pa.DataType | None:
    types = pa.types
    if kind in _SAME or (types.is_decimal128(kind) and kind.scale >= 0):
        return kind
    if kind in _WIDER:
        return stored_type(kind)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_timestamp(kind) and kind.unit in ("ms", "us"):
        # In this old form every moment is meant in UTC, and nothing says so.
        return pa.timestamp("us", "UTC" if kind.tz or stored == "INT96" else None)
    return None


def _refuse_shapes(reader: pq.ParquetFile) -> None:
    for at in range(len(reader.schema)):
        column = reader.schema.column(at)
        if (kind := column.logical_type.type) in _SHAPES:
            raise UnreadableColumn(
                column.path, f"has Parquet's type {kind}, which not every reader of Delta supports"
            )


def _refuse_codecs(footer: pq.FileMetaData) -> None:
    for group in (footer.row_group(at) for at in range(footer.num_row_groups)):
        for column in (group.column(at) for at in range(group.num_columns)):
            if column.compression not in _CODECS:
                codec = "Hadoop's LZ4" if column.compression == "UNKNOWN" else column.compression
                what = f"is compressed with {codec}, which not every reader of Delta supports"
                raise UnreadableColumn(
                    column.path_in_schema, what, "Write the file again with snappy or zstd"
                )


def _refuse_old_lists(reader: pq.ParquetFile) -> None:
    """Raise UnreadableColumn for a list of two levels, which readers understand in different ways."""
    wanted = [path for field in reader.schema_arrow for path in _leaves(field.name, field.type)]
    for at, (name, steps) in enumerate(wanted):
        if at < len(reader.schema) and reader.schema.column(at).path.count(".") < steps:
            raise UnreadableColumn(name, "is a list in Parquet's old form, which readers read differently")


def _leaves(name: str, kind: pa.DataType, steps: int = 0) -> Iterator[tuple[str, int]]:
    """The columns of the file under a field, each with the dots in the path that it should have."""
    if not steps:
        steps = name.count(".")
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_struct(kind):
        for child in kind:
            for _, below in _leaves(name, child.type, steps + 1 + child.name.count(".")):
                yield name, below
    elif pa.types.is_map(kind):
        for child in (kind.key_type, kind.item_type):
            yield from _leaves(name, child, steps + 2)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves(name, kind.value_type, steps + 2)
    else:
        yield name, steps
