"""Columns as Arrow reads them from JSON, and what of them differs from columns of other formats."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import JSON
from lakefeed.formats.fit import decimals
from lakefeed.formats.fit.conversions import Conversions, Convert, conversion
from lakefeed.formats.fit.doubt import Doubt, kept, new_nulls
from lakefeed.formats.fit.type_rules import RANGES, is_epoch
from lakefeed.formats.fit.values import base64_bytes


def is_unreadable(declared: pa.DataType) -> bool:
    """Whether Arrow's JSON reader cannot read it: there is a map or `json` anywhere in the type."""
    if pa.types.is_map(declared) or declared == JSON:
        return True
    return any(is_unreadable(declared.field(index).type) for index in range(declared.num_fields))


def holds_decimal(declared: pa.DataType) -> bool:
    """Whether there is a decimal anywhere in the type."""
    if pa.types.is_decimal(declared):
        return True
    return any(holds_decimal(declared.field(index).type) for index in range(declared.num_fields))


def json_kind(declared: pa.DataType) -> str:
    """The kind of JSON value that a column takes."""
    if pa.types.is_struct(declared) or pa.types.is_map(declared):
        return "object"
    if pa.types.is_list(declared):
        return "array"
    if pa.types.is_integer(declared) or is_epoch(declared):
        return "integer"
    if pa.types.is_floating(declared):
        return "float"
    if pa.types.is_decimal(declared):
        return "decimal"
    return "boolean" if pa.types.is_boolean(declared) else "text"


def read_type(declared: pa.DataType) -> pa.DataType:
    """The type to read a column with: as wide as its kind of JSON value, so that values fail one by one."""
    if pa.types.is_struct(declared):
        return pa.struct([pa.field(field.name, read_type(field.type)) for field in declared])
    if pa.types.is_list(declared):
        return pa.list_(pa.field(declared.value_field.name, read_type(declared.value_type)))
    if pa.types.is_map(declared):
        return pa.map_(pa.string(), read_type(declared.item_type))
    if pa.types.is_decimal(declared):
        return decimals.read_type(declared)
    if declared in RANGES or is_epoch(declared):
        return pa.int64()
    if pa.types.is_floating(declared):
        # As a double first, a number could be rounded twice, and so not be the nearest.
        return declared
    return pa.bool_() if pa.types.is_boolean(declared) else pa.string()


def _conversion(read: pa.DataType, declared: pa.DataType) -> Convert | None:
    """As for other formats, but JSON has no float that is not finite, and bytes are base64."""
    if pa.types.is_floating(declared):
        return _finite
    return _binary if pa.types.is_binary(declared) else conversion(read, declared)


def _finite(column: pa.Array, _: pa.DataType) -> tuple[pa.Array, Doubt]:
    finite = pc.is_finite(column)
    return (column, None) if pc.all(finite).as_py() else kept(column, finite)


def _binary(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    contents = pa.array(
        [None if text is None else base64_bytes(text) for text in column.to_pylist()], declared
    )
    return contents, new_nulls(contents, column)


CONVERSIONS = Conversions(_conversion)
"""How columns that were read with `read_type` become columns of the table."""
