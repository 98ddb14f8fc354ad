"""Values that a writer made in its types become values in the types of a table, exactly or not at all.

| made              | goes into                                                            |
|-------------------|----------------------------------------------------------------------|
| integers          | integers, `timestamp(unit)`, decimals and floats that hold the number |
| floats            | floats that hold the number; whole ones, integers and `timestamp(unit)` |
| decimals          | decimals that hold the number; whole ones as floats do               |
| timestamps, dates | `timestamp`, whatever the unit; dates and midnights in UTC also `date` |
| text              | `string`; by the rules of JSON `timestamp`, `date` and decimals      |
| binary, boolean   | their own                                                            |
| anything          | `json`, as its JSON text, or as the text that JSON has for it         |
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import JSON, TIMESTAMP, stored_type, type_text
from lakefeed.formats.fit import decimals, times
from lakefeed.formats.fit.doubt import Doubt, either, kept
from lakefeed.formats.fit.json_text import json_text, json_texts, shown_json
from lakefeed.formats.fit.type_rules import (
    EXACT_DOUBLE,
    INT64,
    MICROSECONDS,
    RANGES,
    is_binary,
    is_epoch,
    is_text,
)
from lakefeed.formats.fit.values import converter
from lakefeed.formats.refusal import Misfit, Number, shown

Convert = Callable[[pa.Array, pa.DataType], tuple[pa.Array, Doubt]]
"""Takes a column and the declared type; returns it as stored, with null at the indexes left to `decide`."""

_DAY_US = 86_400 * 10**6
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""How many of each unit are in a second."""
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


def conversion(made: pa.DataType, declared: pa.DataType) -> Convert | None:
    """How values of one type go into a column of another; None if they do not."""
    for is_made, is_declared, convert in _CONVERSIONS:
        if is_made(made) and is_declared(declared):
            return convert
    return None


def decide(column: pa.Array, index: int, declared: pa.DataType) -> Any:
    """What one doubtful value becomes, for `pyarrow.array`; raises Misfit, in the words of JSON."""
    text = json_text(column, index)
    value = _parsed(column, index, text)
    known = conversion(column.type, declared)
    if value is not None:
        decided = converter(pa.field("", declared))(value)
        if known and is_text(column.type):
            return decided
        if known:
            raise _inexact(column.type, declared, value)
    elif known and pa.types.is_timestamp(declared):
        message = f"expected {type_text(declared)} of the years 1 to 9999 in UTC, got {shown(Number(text))}"
        raise Misfit("out_of_range", message)
    raise _wrong_type(column.type, declared, text)


def _inexact(made: pa.DataType, declared: pa.DataType, value: Any) -> Misfit:
    rounded = pa.types.is_floating(made) and not pa.types.is_floating(declared)
    why = "may have been rounded" if rounded else "it cannot hold exactly"
    return Misfit("out_of_range", f"expected {type_text(declared)}, got {shown(value)}, which {why}")


def _parsed(column: pa.Array, index: int, text: str) -> Any:
    """The value as JSON parses it, if JSON has its kind: then JSON has the words for what is wrong."""
    if is_text(column.type):
        return column[index].as_py()
    if any(applies(column.type) for applies in _NUMBERS):
        return Number(text) if not text.startswith('"') else None
    return None


def _wrong_type(made: pa.DataType, declared: pa.DataType, text: str) -> Misfit:
    plain = pa.types.is_nested(made) or pa.types.is_boolean(made)
    got = shown_json(text) if plain else shown(Number(f"{type_text(_plain(made))} {text}"))
    return Misfit("wrong_type", f"expected {type_text(declared)}, got {got}")


def _plain(made: pa.DataType) -> pa.DataType:
    if is_text(made):
        return pa.string()
    return TIMESTAMP if pa.types.is_timestamp(made) else pa.binary() if is_binary(made) else made


def _cast(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    return column if column.type == declared else column.cast(declared), None


def _integers(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    low, high = RANGES[declared]
    if column.type == declared and not pa.types.is_unsigned_integer(declared):
        return column, None
    inside, doubt = _between(column, low, high)
    return inside.cast(stored_type(declared)), doubt


def _between(column: pa.Array, low: int, high: int) -> tuple[pa.Array, Doubt]:
    """The column with null for what is outside, and which indexes these are."""
    ends = pc.min_max(column).as_py()
    if ends["min"] is None or (low <= ends["min"] and ends["max"] <= high):
        return column, None
    # Bounds that the column's own type does not reach would not even compare.
    own = RANGES[column.type] if column.type != pa.uint64() else (0, 2**64 - 1)
    inside = pc.and_(
        pc.greater_equal(column, pa.scalar(max(low, own[0]), column.type)),
        pc.less_equal(column, pa.scalar(min(high, own[1]), column.type)),
    )
    return kept(column, inside)


def _integers_as_floats(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    numbers = column.fill_null(0).to_numpy()
    floats = numbers.astype(declared.to_pandas_dtype())
    # The largest integers may round up to a float that is no integer of these bits any more.
    last = 2.0 ** (64 if numbers.dtype == np.uint64 else 63)
    same = (floats < last) & (np.where(floats < last, floats, 0).astype(numbers.dtype) == numbers)
    mask = column.is_null().to_numpy(zero_copy_only=False) | ~same
    return pa.array(floats, mask=mask), None if same.all() else ~same


def _integers_as_decimals(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    return decimals.decimals(column.cast(pa.decimal128(20, 0)), declared)


def _integers_as_epochs(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    whole, beyond = _integers(column, pa.int64())
    stamps, outside = _instants(whole, declared.unit)
    return stamps, either(beyond, outside)


def _floats_as_integers(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    """Whole numbers up to those that others may have been rounded to as a float of these bits."""
    last = 2.0**24 - 1 if column.type == pa.float32() else float(EXACT_DOUBLE)
    whole = pc.and_(pc.equal(pc.trunc(column), column), pc.less_equal(pc.abs(column), last))
    numbers, doubt = kept(column, whole)
    integers, outside = _integers_or_epochs(numbers.cast(pa.int64()), declared)
    return integers, either(doubt, outside)


def _decimals_as_integers(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    whole, doubt = decimals.decimals(column, pa.decimal128(19, 0))
    # Numbers of 19 digits may be beyond 64 bits.
    low, high = (pa.scalar(Decimal(end), pa.decimal128(19, 0)) for end in INT64)
    inside, beyond = kept(whole, pc.and_(pc.greater_equal(whole, low), pc.less_equal(whole, high)))
    integers, outside = _integers_or_epochs(inside.cast(pa.int64()), declared)
    return integers, either(doubt, either(beyond, outside))


def _integers_or_epochs(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    return (_integers_as_epochs if is_epoch(declared) else _integers)(column, declared)


def _floats(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    floats = column.cast(declared, safe=False)
    if floats.type.bit_width >= column.type.bit_width:
        return floats, None
    same = pc.or_(pc.equal(floats.cast(column.type), column), pc.is_nan(column))
    return kept(floats, same)


def _texts(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    texts = column if column.type == pa.string() else column.cast(pa.string())
    if pa.types.is_decimal(declared):
        doubt = texts.is_valid().to_numpy(zero_copy_only=False)
        return pa.nulls(len(texts), declared), doubt if doubt.any() else None
    return times.dates(texts) if pa.types.is_date(declared) else times.timestamps(texts)


def as_json(column: pa.Array, _: pa.DataType) -> tuple[pa.Array, Doubt]:
    """Text as it is, all else as its JSON text."""
    if is_text(column.type):
        return _cast(column, pa.string())
    texts = [None if text == "null" else text for text in json_texts(column)]
    return pa.array(
        [json.loads(text) if text and text[0] == '"' else text for text in texts], pa.string()
    ), None


def _timestamps(column: pa.Array, _: pa.DataType) -> tuple[pa.Array, Doubt]:
    return _instants(column.view(pa.int64()), column.type.unit)


def _instants(numbers: pa.Array, unit: str) -> tuple[pa.Array, Doubt]:
    """Numbers of a unit since 1970 as timestamps of the years 1 to 9999."""
    if unit == "ns":
        # Floor, not toward zero: the instant before 1970 is in the microsecond before it.
        floor = np.floor_divide(numbers.fill_null(0).to_numpy(), 1000)
        mask = numbers.is_null().to_numpy(zero_copy_only=False) if numbers.null_count else None
        return pa.array(floor, mask=mask).view(TIMESTAMP), None
    factor = MICROSECONDS[unit]
    inside, doubt = _between(numbers, -(-times.FIRST_US // factor), times.LAST_US // factor)
    return (inside if factor == 1 else pc.multiply(inside, factor)).view(TIMESTAMP), doubt


def _dates(column: pa.Array, _: pa.DataType) -> tuple[pa.Array, Doubt]:
    inside, doubt = _between(column.view(pa.int32()), times.FIRST_DAY, times.LAST_DAY)
    return inside.view(pa.date32()), doubt


def _dates_as_timestamps(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    days, doubt = _dates(column, declared)
    return pc.multiply(days.view(pa.int32()).cast(pa.int64()), _DAY_US).view(TIMESTAMP), doubt


def _midnights(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    """Timestamps as dates: those at midnight UTC, which is what a date becomes as a timestamp."""
    numbers = column.view(pa.int64())
    day = 86_400 * _TICKS[column.type.unit]
    days = pa.array(np.floor_divide(numbers.fill_null(0).to_numpy(), day))
    midnights, doubt = kept(
        pc.if_else(column.is_valid(), days, None), pc.equal(pc.multiply(days, day), numbers)
    )
    inside, outside = _between(midnights, times.FIRST_DAY, times.LAST_DAY)
    return inside.cast(pa.int32()).view(pa.date32()), either(doubt, outside)


def _is_read_from_text(declared: pa.DataType) -> bool:
    types = pa.types
    zoned = types.is_timestamp(declared) and not is_epoch(declared)
    return bool(zoned or types.is_date(declared) or types.is_decimal(declared))


def _is_whole(declared: pa.DataType) -> bool:
    return bool(pa.types.is_integer(declared) or is_epoch(declared))


_Applies = Callable[[Any], bool]
_CONVERSIONS: list[tuple[_Applies, _Applies, Convert]] = [
    (pa.types.is_integer, pa.types.is_integer, _integers),
    (pa.types.is_integer, pa.types.is_floating, _integers_as_floats),
    (pa.types.is_integer, pa.types.is_decimal, _integers_as_decimals),
    (pa.types.is_integer, is_epoch, _integers_as_epochs),
    (pa.types.is_floating, pa.types.is_floating, _floats),
    (pa.types.is_floating, _is_whole, _floats_as_integers),
    (pa.types.is_decimal, pa.types.is_decimal, decimals.decimals),
    (pa.types.is_decimal, _is_whole, _decimals_as_integers),
    (pa.types.is_boolean, pa.types.is_boolean, _cast),
    (is_text, pa.types.is_string, _cast),
    (is_text, _is_read_from_text, _texts),
    (lambda made: True, lambda declared: declared == JSON, as_json),
    (is_binary, pa.types.is_binary, _cast),
    (pa.types.is_timestamp, pa.types.is_timestamp, _timestamps),
    (pa.types.is_timestamp, pa.types.is_date, _midnights),
    (pa.types.is_date32, pa.types.is_date, _dates),
    (pa.types.is_date32, pa.types.is_timestamp, _dates_as_timestamps),
]


@dataclass(frozen=True)
class Conversions:
    """How values of one type become values of another; a format with rules of its own has its own."""

    conversion: Callable[[pa.DataType, pa.DataType], Convert | None] = conversion
    decide: Callable[[pa.Array, int, pa.DataType], Any] = decide
    """Takes a column, an index in doubt and the declared type; returns the value, or raises Misfit."""
