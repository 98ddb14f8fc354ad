"""Columns as Arrow reads them from JSON, and how they become columns of the table.

What cannot be decided on the whole column is left in doubt: the place becomes null, and the caller has the
row decided by the strict path. So checks here may be coarse, but must not miss anything.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import JSON, TIMESTAMP, stored_type
from lakefeed.formats.fit import decimals, times
from lakefeed.formats.fit.times import Doubt

INT64 = (-(2**63), 2**63 - 1)
RANGES = {
    pa.int8(): (-(2**7), 2**7 - 1),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.int64(): INT64,
    pa.uint8(): (0, 2**8 - 1),
    pa.uint16(): (0, 2**16 - 1),
    pa.uint32(): (0, 2**32 - 1),
    pa.uint64(): (0, 2**63 - 1),
}
"""What an integer column takes: of the unsigned 64 bits only those that the table's signed type holds."""

MICROSECONDS = {"s": 10**6, "ms": 10**3, "us": 1}
"""How many of them are in a tick of `timestamp(unit)`; nanoseconds are divided instead."""


def is_epoch(declared: pa.DataType) -> bool:
    """Whether this is a `timestamp(unit)`: a number in the payload."""
    return bool(pa.types.is_timestamp(declared) and declared.tz is None)


def is_unreadable(declared: pa.DataType) -> bool:
    """Whether Arrow's JSON reader cannot read it: there is a map or `json` anywhere in the type."""
    if pa.types.is_map(declared) or declared == JSON:
        return True
    return any(is_unreadable(declared.field(place).type) for place in range(declared.num_fields))


def holds_decimal(declared: pa.DataType) -> bool:
    """Whether there is a decimal anywhere in the type."""
    if pa.types.is_decimal(declared):
        return True
    return any(holds_decimal(declared.field(place).type) for place in range(declared.num_fields))


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


def stored_column(column: pa.Array, field: pa.Field) -> tuple[pa.Array, Doubt]:
    """The column in the type of the table, from one that was read with `read_type`."""
    result, doubt = _converted(column, field.type)
    if not field.nullable and column.null_count:
        doubt = either(doubt, column.is_null().to_numpy(zero_copy_only=False))
    return result, doubt


def either(one: Doubt, other: Doubt) -> Doubt:
    """Both doubts together."""
    return other if one is None else one if other is None else one | other


def _converted(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    for applies, convert in _CONVERSIONS:
        if applies(declared):
            return convert(column, declared)
    return column, None


def _struct(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    members, doubt = [], None
    # Fields beyond the declared ones are those that the reader was told to expect and to forget.
    for place, field in enumerate(declared):
        member, member_doubt = stored_column(column.field(place), field)
        members.append(member)
        doubt = either(doubt, member_doubt)
    if doubt is not None and column.null_count:
        doubt = doubt & column.is_valid().to_numpy(zero_copy_only=False)
    return _rebuilt(column, declared, members, 1), doubt


def _list(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    elements, doubt = stored_column(column.values, declared.value_field)
    return _rebuilt(column, declared, [elements], 2), _lifted(column, doubt)


def _map(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    items, doubt = stored_column(column.items, declared.item_field)
    entry = stored_type(declared).field(0).type
    entries = pa.Array.from_buffers(entry, len(items), [None], children=[column.keys, items])
    return _rebuilt(column, declared, [entries], 2), _lifted(column, doubt)


def _rebuilt(column: pa.Array, declared: pa.DataType, children: list[pa.Array], buffers: int) -> pa.Array:
    assert column.offset == 0, "columns come whole from the reader"
    own = column.buffers()[:buffers]
    return pa.Array.from_buffers(stored_type(declared), len(column), own, children=children)


def _lifted(column: pa.Array, doubt: Doubt) -> Doubt:
    """Doubt about elements as doubt about the lists that hold them."""
    if doubt is None:
        return None
    offsets = np.frombuffer(column.buffers()[1], np.int32)[: len(column) + 1]
    lists = np.zeros(len(column), np.bool_)
    lists[np.searchsorted(offsets, np.flatnonzero(doubt), side="right") - 1] = True
    return lists


def _integer(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    low, high = RANGES[declared]
    ends = pc.min_max(column).as_py()
    if ends["min"] is None or (low <= ends["min"] and ends["max"] <= high):
        return column.cast(stored_type(declared)), None
    inside = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
    return _kept(column, inside).cast(stored_type(declared)), _doubt(inside)


def _float(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    finite = pc.is_finite(column)
    if pc.all(finite).as_py():
        return column, None
    return _kept(column, finite), _doubt(finite)


def _epoch(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    if declared.unit == "ns":
        # Arrow divides toward zero; the instant before 1970 is in the microsecond before it.
        floor = np.floor_divide(column.fill_null(0).to_numpy(), 1000)
        return pa.array(floor, mask=column.is_null().to_numpy(zero_copy_only=False)).view(TIMESTAMP), None
    factor = MICROSECONDS[declared.unit]
    low, high = times.FIRST_US // factor, times.LAST_US // factor
    inside = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
    doubt = None if pc.all(inside).as_py() else _doubt(inside)
    return pc.multiply(_kept(column, inside), factor).view(TIMESTAMP), doubt


def _binary(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    contents = [base64_bytes(text) if text is not None else None for text in column.to_pylist()]
    result = pa.array(contents, declared)
    if result.null_count == column.null_count:
        return result, None
    return result, pc.and_(result.is_null(), column.is_valid()).to_numpy(zero_copy_only=False)


def base64_bytes(text: str) -> bytes | None:
    """What the text says in base64 (RFC 4648, padded, no white space); None if it is not that."""
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return None


def _kept(column: pa.Array, good: pa.Array) -> pa.Array:
    return pc.if_else(good, column, None)


def _doubt(good: pa.Array) -> Doubt:
    doubt: Doubt = pc.invert(good).fill_null(False).to_numpy(zero_copy_only=False)
    return doubt


_Conversion = Callable[[pa.Array, pa.DataType], tuple[pa.Array, Doubt]]
_CONVERSIONS: list[tuple[Callable[[Any], bool], _Conversion]] = [
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal, decimals.decimals),
    (is_epoch, _epoch),
    (pa.types.is_timestamp, lambda column, _: times.timestamps(column)),
    (pa.types.is_date, lambda column, _: times.dates(column)),
    (pa.types.is_binary, _binary),
    (pa.types.is_struct, _struct),
    (pa.types.is_list, _list),
    (pa.types.is_map, _map),
]
