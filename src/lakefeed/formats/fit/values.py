"""Values that a writer made in its types become values in the types of a table, exactly or not at all.

| made              | goes into                                                            |
|-------------------|----------------------------------------------------------------------|
| integers          | integers, `timestamp(unit)`, decimals and floats that hold the number |
| floats            | floats that hold the number                                          |
| decimals          | decimals that hold the number                                        |
| timestamps, dates | `timestamp`, whatever the unit; dates also `date`                    |
| text              | `string`; by the rules of JSON `timestamp`, `date` and decimals      |
| binary, boolean   | their own                                                            |
| anything          | `json`, as its JSON text, or as the text that JSON has for it         |
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import JSON, TIMESTAMP, stored_type, type_text
from lakefeed.formats.fit import decimals as json_decimals
from lakefeed.formats.fit import times
from lakefeed.formats.fit.rescue import json_text, json_texts
from lakefeed.formats.fit.times import Doubt
from lakefeed.formats.json.columns import RANGES, is_epoch, stored_column
from lakefeed.formats.json.values import converter
from lakefeed.formats.refusal import Misfit, Number, shown

Convert = Callable[[pa.Array, pa.DataType], tuple[pa.Array, Doubt]]
"""Takes a column and the declared type; answers it as stored, with null at the places left to `decide`."""

_TICKS = {"s": 10**6, "ms": 10**3, "us": 1}
_DAY_US = 86_400 * 10**6
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


def conversion(made: pa.DataType, declared: pa.DataType) -> Convert | None:
    """How values of one type go into a column of another; None if they do not."""
    for is_made, is_declared, convert in _CONVERSIONS:
        if is_made(made) and is_declared(declared):
            return convert
    return None


def decide(column: pa.Array, place: int, declared: pa.DataType) -> Any:
    """What one doubtful value becomes, for `pyarrow.array`; raises Misfit, in the words of JSON."""
    text = json_text(column, place)
    value = _parsed(column, place, text)
    if value is not None:
        decided = converter(pa.field("", declared))(value)
        if is_text(column.type) and conversion(column.type, declared):
            return decided
        if conversion(column.type, declared):
            message = f"expected {type_text(declared)}, got {shown(value)}, which it cannot hold exactly"
            raise Misfit("out_of_range", message)
    elif conversion(column.type, declared):
        message = f"expected {type_text(declared)} of the years 1 to 9999 in UTC, got {shown(Number(text))}"
        raise Misfit("out_of_range", message)
    raise _wrong_type(column.type, declared, text)


def _parsed(column: pa.Array, place: int, text: str) -> Any:
    """The value as JSON parses it, if JSON has its kind: then JSON has the words for what is wrong."""
    if is_text(column.type):
        return column[place].as_py()
    if any(applies(column.type) for applies in _NUMBERS):
        return Number(text) if not text.startswith('"') else None
    return None


def _wrong_type(made: pa.DataType, declared: pa.DataType, text: str) -> Misfit:
    plain = pa.types.is_nested(made) or pa.types.is_boolean(made)
    got = shown_json(text) if plain else shown(Number(f"{type_text(_plain(made))} {text}"))
    return Misfit("wrong_type", f"expected {type_text(declared)}, got {got}")


def shown_json(text: str) -> str:
    """A JSON text for a message, as other messages show values."""
    return shown(json.loads(text, parse_int=Number, parse_float=Number))


def _plain(made: pa.DataType) -> pa.DataType:
    if is_text(made):
        return pa.string()
    return TIMESTAMP if pa.types.is_timestamp(made) else pa.binary() if is_binary(made) else made


def is_text(kind: pa.DataType) -> bool:
    """Whether this is text, also as the names of an enum."""
    text = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(text) or pa.types.is_large_string(text))


def is_binary(kind: pa.DataType) -> bool:
    """Whether this is binary, also of a fixed size."""
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def _cast(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    return column if column.type == declared else column.cast(declared), None


def _integers(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    low, high = RANGES[declared]
    if column.type == declared and not pa.types.is_unsigned_integer(declared):
        return column, None
    kept, doubt = _between(column, low, high)
    return kept.cast(stored_type(declared)), doubt


def _between(column: pa.Array, low: int, high: int) -> tuple[pa.Array, Doubt]:
    """The column with null for what is outside, and which places these are."""
    ends = pc.min_max(column).as_py()
    if ends["min"] is None or (low <= ends["min"] and ends["max"] <= high):
        return column, None
    # Bounds that the column's own type does not reach would not even compare.
    own = RANGES[column.type] if column.type != pa.uint64() else (0, 2**64 - 1)
    inside = pc.and_(
        pc.greater_equal(column, pa.scalar(max(low, own[0]), column.type)),
        pc.less_equal(column, pa.scalar(min(high, own[1]), column.type)),
    )
    return _kept(column, inside)


def _kept(column: pa.Array, good: pa.Array) -> tuple[pa.Array, Doubt]:
    doubt = pc.invert(good).fill_null(False).to_numpy(zero_copy_only=False)
    return (pc.if_else(good, column, None), doubt) if doubt.any() else (column, None)


def _integers_as_floats(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    numbers = column.fill_null(0).to_numpy()
    floats = numbers.astype(declared.to_pandas_dtype())
    # The largest integers may round up to a float that is no integer of these bits any more.
    last = 2.0 ** (64 if numbers.dtype == np.uint64 else 63)
    same = (floats < last) & (np.where(floats < last, floats, 0).astype(numbers.dtype) == numbers)
    mask = column.is_null().to_numpy(zero_copy_only=False) | ~same
    return pa.array(floats, mask=mask), None if same.all() else ~same


def _integers_as_decimals(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    return json_decimals.decimals(column.cast(pa.decimal128(20, 0)), declared)


def _integers_as_epochs(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    whole, doubt = _integers(column, pa.int64())
    stamps, outside = stored_column(whole, pa.field("", declared))
    return stamps, outside if doubt is None else doubt if outside is None else doubt | outside


def _floats(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    floats = column.cast(declared, safe=False)
    if floats.type.bit_width >= column.type.bit_width:
        return floats, None
    same = pc.or_(pc.equal(floats.cast(column.type), column), pc.is_nan(column))
    return _kept(floats, same)


def _texts(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    plain = column if column.type == pa.string() else column.cast(pa.string())
    if pa.types.is_decimal(declared):
        doubt = plain.is_valid().to_numpy(zero_copy_only=False)
        return pa.nulls(len(plain), declared), doubt if doubt.any() else None
    return stored_column(plain, pa.field("", declared))


def _any(column: pa.Array, _: pa.DataType) -> tuple[pa.Array, Doubt]:
    """Text as it is, all else as its JSON text."""
    if is_text(column.type):
        return _cast(column, pa.string())
    texts = [None if text == "null" else text for text in json_texts(column)]
    return pa.array(
        [json.loads(text) if text and text[0] == '"' else text for text in texts], pa.string()
    ), None


def _timestamps(column: pa.Array, _: pa.DataType) -> tuple[pa.Array, Doubt]:
    numbers = column.view(pa.int64())
    if column.type.unit == "ns":
        # Floor, not toward zero: the instant before 1970 is in the microsecond before it.
        floor = np.floor_divide(numbers.fill_null(0).to_numpy(), 1000)
        mask = numbers.is_null().to_numpy(zero_copy_only=False) if numbers.null_count else None
        return pa.array(floor, mask=mask).view(TIMESTAMP), None
    ticks = _TICKS[column.type.unit]
    kept, doubt = _between(numbers, -(-times.FIRST_US // ticks), times.LAST_US // ticks)
    return (kept if ticks == 1 else pc.multiply(kept, ticks)).view(TIMESTAMP), doubt


def _dates(column: pa.Array, _: pa.DataType) -> tuple[pa.Array, Doubt]:
    kept, doubt = _between(column.view(pa.int32()), times.FIRST_DAY, times.LAST_DAY)
    return kept.view(pa.date32()), doubt


def _dates_as_timestamps(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    days, doubt = _dates(column, declared)
    return pc.multiply(days.view(pa.int32()).cast(pa.int64()), _DAY_US).view(TIMESTAMP), doubt


def _is_read_from_text(declared: pa.DataType) -> bool:
    types = pa.types
    zoned = types.is_timestamp(declared) and not is_epoch(declared)
    return bool(zoned or types.is_date(declared) or types.is_decimal(declared))


_Applies = Callable[[Any], bool]
_CONVERSIONS: list[tuple[_Applies, _Applies, Convert]] = [
    (pa.types.is_integer, pa.types.is_integer, _integers),
    (pa.types.is_integer, pa.types.is_floating, _integers_as_floats),
    (pa.types.is_integer, pa.types.is_decimal, _integers_as_decimals),
    (pa.types.is_integer, is_epoch, _integers_as_epochs),
    (pa.types.is_floating, pa.types.is_floating, _floats),
    (pa.types.is_decimal, pa.types.is_decimal, json_decimals.decimals),
    (pa.types.is_boolean, pa.types.is_boolean, _cast),
    (is_text, pa.types.is_string, _cast),
    (is_text, _is_read_from_text, _texts),
    (lambda made: True, lambda declared: declared == JSON, _any),
    (is_binary, pa.types.is_binary, _cast),
    (pa.types.is_timestamp, pa.types.is_timestamp, _timestamps),
    (pa.types.is_date32, pa.types.is_date, _dates),
    (pa.types.is_date32, pa.types.is_timestamp, _dates_as_timestamps),
]
