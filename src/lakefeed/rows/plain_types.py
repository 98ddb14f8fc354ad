"""Columns as pandas, Polars or Arrow's own functions make them, in the types that tables are made of.

Only the layout changes: large and viewed text becomes plain text, a dictionary its values, an extension what
it is stored as. No value changes.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import JSON
from lakefeed.errors import TableError


def plain(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """The same columns; TableError names one whose type no table has. `name` is who made them."""
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        kind = plain_type(field.type)
        if kind is None:
            raise TableError(
                f"{name} returned a column '{field.name}' of type {field.type}, which tables do not have.\n"
                "Cast it in the function, or leave it out."
            )
        columns.append(plain_column(column, kind))
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def plain_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in the layout that `plain_type` gives its type."""
    if column.type.equals(kind):
        return column
    if isinstance(column.type, pa.BaseExtensionType):
        return plain_column(column.storage, kind)
    if pa.types.is_dictionary(column.type):
        return plain_column(column.dictionary_decode(), kind)
    return pc.cast(column, kind)


def plain_type(kind: pa.DataType) -> pa.DataType | None:
    """The type without its layout; None where tables have no such type."""
    types = pa.types
    if kind == JSON:
        return pa.string()
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_date64(kind):
        return pa.date32()
    if types.is_nested(kind):
        return _nested(kind)
    known = (
        types.is_string, types.is_binary, types.is_boolean, types.is_integer, types.is_floating,
        types.is_decimal, types.is_timestamp, types.is_date, types.is_null,
    )  # fmt: skip
    return kind if any(one(kind) for one in known) else None


def _nested(kind: pa.DataType) -> pa.DataType | None:
    types = pa.types
    if types.is_struct(kind):
        members = [(member.name, plain_type(member.type)) for member in kind]
        # Parquet has no struct without a field.
        return None if not members or any(one is None for _, one in members) else pa.struct(members)
    if types.is_map(kind):
        key, item = plain_type(kind.key_type), plain_type(kind.item_type)
        return pa.map_(key, item) if key == pa.string() and item is not None else None
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        value = plain_type(kind.value_type)
        return None if value is None else pa.list_(value)
    return None
