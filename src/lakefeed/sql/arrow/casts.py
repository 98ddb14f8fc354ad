"""Casts between numbers, texts, dates and timestamps, as ANSI has them: what does not fit throws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import TIMESTAMP, type_text
from lakefeed.sql.arrow import reasons
from lakefeed.sql.arrow.dates import DAY, SECOND
from lakefeed.sql.arrow.parsing import PARSERS
from lakefeed.sql.arrow.value import Error, Function, Value, column_of, failing, flags, numbers, typed
from lakefeed.sql.expression import Call

_Cast: TypeAlias = Callable[[pa.Array, pa.DataType], Value]
_WIDEST = 76
_LONG_DIGITS = 18
"""Digits up to which Spark holds a decimal as a long."""
_EXACTLY = Context(prec=_WIDEST)


def _cast(call: Call, values: Sequence[Value], rows: int) -> Value:
    column, before = values[0].column(rows), values[0].errors
    made = _way(column.type, call.type)(column, call.type)  # type: ignore[misc]
    errors = made.errors
    if call.option("mode") == "TRY":
        errors = {row: error for row, error in errors.items() if error == reasons.integer_too_large()}
    return Value(made.data, {**errors, **before})


def _same(column: pa.Array, kind: pa.DataType) -> Value:
    return Value(typed(column, kind))


def _plain(column: pa.Array, kind: pa.DataType) -> Value:
    """Arrow rounds as Java does, and `safe` would throw where a large integer becomes a float."""
    return Value(column.cast(kind, safe=False))


def _narrower(column: pa.Array, kind: pa.DataType) -> Value:
    most = 2 ** (kind.bit_width - 1)
    found = numbers(column, pa.int64())
    failed = (found >= most) | (found < -most) if most < 2**63 else np.zeros(len(column), dtype=bool)
    return failing(column.cast(kind, safe=False), failed, {}, reasons.cast_overflow(column, kind))


def _not_zero(column: pa.Array, kind: pa.DataType) -> Value:
    return Value(pc.not_equal(column, pa.scalar(0, column.type)))


def _float_to_int(column: pa.Array, kind: pa.DataType) -> Value:
    return _cut_off(column, kind, reasons.cast_overflow(column, kind))


def _cut_off(column: pa.Array, kind: pa.DataType, reason: Callable[[int], Error]) -> Value:
    """Floats without their fractions; a float outside of the limits, or that is no number, throws."""
    found = numbers(column, pa.float64())
    # Spark compares with the limits as floats: 2^63 is let through for a long, and becomes the largest.
    limits = np.iinfo(kind.to_pandas_dtype())
    failed = ~((np.floor(found) <= float(limits.max)) & (np.ceil(found) >= float(limits.min)))
    valid = flags(pc.is_valid(column))
    inside = np.where(failed | ~valid, 0.0, found)
    with np.errstate(invalid="ignore"):
        made = np.where(inside >= float(2**63), limits.max, np.trunc(inside).astype(np.int64))
    result = column_of(made.astype(kind.to_pandas_dtype()), valid, kind, kind)
    return failing(result, failed & valid, {}, reason)


def _int_to_decimal(column: pa.Array, kind: pa.DataType) -> Value:
    return _decimal(column.cast(pa.decimal128(19, 0)), kind)


def _decimal(column: pa.Array, kind: pa.DataType) -> Value:
    """More digits after the point are appended, fewer are rounded half up; too many before it throw."""
    source, whole = column.type, kind.precision - kind.scale
    if kind.scale >= source.scale and whole >= source.precision - source.scale:
        return Value(column.cast(kind))
    wide = _rescaled(column, kind.scale, "half_towards_infinity", ROUND_HALF_UP)
    failed = flags(pc.greater_equal(pc.abs(wide), pa.scalar(Decimal(10**whole), wide.type)))
    inside = pc.if_else(pa.array(failed), pa.scalar(None, wide.type), wide)
    return failing(
        inside.cast(kind), failed, {}, lambda row: reasons.out_of_range(f"{column[row].as_py():f}", kind)
    )


def _rescaled(column: pa.Array, scale: int, arrow_mode: str, python_mode: str) -> pa.Array:
    """Decimals with another number of digits after the point, in the widest type.

    Arrow divides decimals of more than 64 bits wrongly at times (docs/facts.md); Python rounds those.
    """
    wide, kind = column.cast(pa.decimal256(_WIDEST, column.type.scale)), pa.decimal256(_WIDEST, scale)
    if scale >= column.type.scale:
        return wide.cast(kind)
    least = pa.scalar(Decimal(1).scaleb(_LONG_DIGITS - column.type.scale), wide.type)
    large = flags(pc.greater_equal(pc.abs(wide), least))
    small = pc.if_else(pa.array(large), pa.scalar(None, wide.type), wide)
    rescaled = pc.round(small, ndigits=scale, round_mode=arrow_mode).cast(kind)
    if not large.any():
        return rescaled
    unit = Decimal(1).scaleb(-scale)
    rounded = [one.as_py().quantize(unit, python_mode, _EXACTLY) for one in column.filter(pa.array(large))]
    return pc.replace_with_mask(rescaled, pa.array(large), pa.array(rounded, kind))


def _decimal_to_int(column: pa.Array, kind: pa.DataType) -> Value:
    if column.type.precision > _LONG_DIGITS and kind != pa.int64():
        # Spark takes the way by a double here: 0.999999999999999999 becomes 1.
        floats = _decimal_to_float(column, pa.float64()).data
        return _cut_off(floats, kind, reasons.cast_overflow(column, kind))
    wide = _rescaled(column, 0, "towards_zero", ROUND_DOWN)
    limits = np.iinfo(kind.to_pandas_dtype())
    low, high = (pa.scalar(Decimal(int(one)), wide.type) for one in (limits.min, limits.max))
    failed = flags(pc.or_(pc.greater(wide, high), pc.less(wide, low)))
    inside = pc.if_else(pa.array(failed), pa.scalar(None, wide.type), wide)
    return failing(inside.cast(kind, safe=False), failed, {}, reasons.cast_overflow(column, kind))


def _decimal_to_float(column: pa.Array, kind: pa.DataType) -> Value:
    # Arrow's own cast is off by one digit at times; its parser of texts rounds correctly.
    return Value(column.cast(pa.string()).cast(kind))


def _timestamp_to_date(column: pa.Array, kind: pa.DataType) -> Value:
    made = (numbers(column, pa.int64()) // DAY).astype(np.int32)
    return Value(column_of(made, flags(pc.is_valid(column)), pa.int32(), kind))


def _date_to_timestamp(column: pa.Array, kind: pa.DataType) -> Value:
    days = numbers(column, pa.int32()).astype(np.int64)
    failed = (days > (2**63 - 1) // DAY) | (days < -((2**63) // DAY))
    made = column_of(np.where(failed, 0, days) * DAY, flags(pc.is_valid(column)), pa.int64(), TIMESTAMP)
    return failing(made, failed, {}, reasons.long_overflow)


def _timestamp_to_long(column: pa.Array, kind: pa.DataType) -> Value:
    made = numbers(column, pa.int64()) // SECOND
    return Value(column_of(made, flags(pc.is_valid(column)), pa.int64(), kind))


def _long_to_timestamp(column: pa.Array, kind: pa.DataType) -> Value:
    """Seconds since 1970; what lies beyond the first or last timestamp becomes that one."""
    found = numbers(column, pa.int64())
    most = (2**63 - 1) // SECOND
    inside = np.clip(found, -most, most) * SECOND
    made = np.where(found > most, 2**63 - 1, np.where(found < -most, -(2**63), inside))
    return Value(column_of(made, flags(pc.is_valid(column)), pa.int64(), TIMESTAMP))


def _way(source: pa.DataType, kind: pa.DataType) -> _Cast | None:
    """How values of one type become those of another; None where only Spark knows."""
    if source == kind or pa.types.is_null(source):
        return _same
    if source == pa.string():
        return PARSERS.get(_family(kind))
    if pa.types.is_integer(source) and pa.types.is_integer(kind):
        return _plain if kind.bit_width > source.bit_width else _narrower
    return _EXACT.get((source, kind)) or _WAYS.get((_family(source), _family(kind)))


def _family(kind: pa.DataType) -> str:
    return next((name for name, is_one in _FAMILIES.items() if is_one(kind)), "")


_FAMILIES: dict[str, Callable[[pa.DataType], bool]] = {
    "integer": pa.types.is_integer,
    "float": pa.types.is_floating,
    "decimal": pa.types.is_decimal,
    "boolean": pa.types.is_boolean,
    "string": pa.types.is_string,
    "date": pa.types.is_date32,
    "timestamp": pa.types.is_timestamp,
}
_WAYS: dict[tuple[str, str], _Cast] = {
    ("integer", "float"): _plain,
    ("integer", "decimal"): _int_to_decimal,
    ("integer", "boolean"): _not_zero,
    ("integer", "string"): _plain,
    ("float", "float"): _plain,
    ("float", "integer"): _float_to_int,
    ("float", "boolean"): _not_zero,
    ("decimal", "decimal"): _decimal,
    ("decimal", "integer"): _decimal_to_int,
    ("decimal", "float"): _decimal_to_float,
    ("decimal", "boolean"): _not_zero,
    ("boolean", "integer"): _plain,
    ("boolean", "float"): _plain,
    ("boolean", "string"): _plain,
    ("timestamp", "date"): _timestamp_to_date,
    ("date", "timestamp"): _date_to_timestamp,
}


def _known(call: Call) -> str | None:
    source = call.given[0].type
    if call.option("mode") == "LEGACY":
        return "cast without ANSI"
    if _way(source, call.type) is not None:
        return None
    return f"cast from {type_text(source)} to {type_text(call.type)}"


_EXACT = {(TIMESTAMP, pa.int64()): _timestamp_to_long, (pa.int64(), TIMESTAMP): _long_to_timestamp}
_WAYS_NOTE = (
    "numbers, booleans and decimals into each other and texts into them, but no float into a decimal; "
    "integers and booleans into texts; texts into dates; dates and timestamps into each other"
)
FUNCTIONS = {"Cast": Function("cast, ::, try_cast, int, date", _cast, _known, _WAYS_NOTE)}
