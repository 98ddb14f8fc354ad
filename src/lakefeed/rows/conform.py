"""Columns that SQL, a function or a route has made become those of the table: wider types, missing fields."""

from __future__ import annotations

import pyarrow as pa

from lakefeed.columns.widening import INTEGER_DIGITS


def holds(table: pa.DataType, made: pa.DataType) -> bool:
    """Whether a column of the table holds every value of another type, without a loss."""
    types = pa.types
    if table.equals(made) or types.is_null(made):
        return True
    if types.is_integer(made):
        return _holds_integers(table, made.bit_width)
    if types.is_decimal(made):
        return bool(types.is_decimal(table)) and _holds_digits(table, made.precision - made.scale, made.scale)
    moments = types.is_timestamp(table) and types.is_timestamp(made)
    return bool(moments or (types.is_float32(made) and types.is_float64(table)))


def _holds_integers(table: pa.DataType, bits: int) -> bool:
    types = pa.types
    if types.is_decimal(table):
        return _holds_digits(table, INTEGER_DIGITS[bits], 0)
    if types.is_integer(table):
        return bool(table.bit_width >= bits)
    # A double has 53 bits for digits, a float 24.
    return bool(types.is_floating(table) and bits < (table.bit_width + 16) // 2)


def _holds_digits(table: pa.DataType, before: int, behind: int) -> bool:
    return bool(table.precision - table.scale >= before and table.scale >= behind)


def conformed(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows under the columns of their table: what they lack is null, what it lacks is left out."""
    names = rows.schema.names
    columns = [
        _as(rows.column(one.name), one.type) if one.name in names else pa.nulls(rows.num_rows, one.type)
        for one in schema
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _as(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if column.type.equals(wanted):
        return column
    if pa.types.is_struct(wanted) and pa.types.is_struct(column.type):
        members = dict(zip((one.name for one in column.type), column.flatten(), strict=True))
        kept = [
            _as(members[one.name], one.type) if one.name in members else pa.nulls(len(column), one.type)
            for one in wanted
        ]
        return pa.StructArray.from_arrays(kept, fields=list(wanted), mask=column.is_null())
    return column.cast(wanted)
