"""Decimal columns: read by Arrow where that is safe, and one by one where it is not.

Arrow's JSON reader multiplies decimals without a check for overflow and looks powers of ten up without a
check of the index: `99999999` read as decimal(38,38) is wrong, `1e-77` becomes 0, `1e-1000000000` ends the
process. So decimals are read with room to spare (`read_type`), and extreme exponents kept away (`extreme`).
"""

from __future__ import annotations

import re
from decimal import Context, Decimal, Inexact, InvalidOperation

import numpy as np
import pyarrow as pa

from lakefeed.formats.fit.doubt import Doubt, new_nulls

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
Indexes = np.ndarray[tuple[int], np.dtype[np.intp]]

_TEXT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_EXACT = Context(prec=100, traps=[Inexact, InvalidOperation])
_SPARE_SCALE = 12
_LONGEST_FRACTION = 28
_LARGEST_SCALE = 38
_WINDOW = 64
_ID_PART = 12
_BEFORE_EXPONENT = re.compile(rb'(?:^|[\s:,\["])[+-]?[0-9]*(?:\.([0-9]*))?\Z')
_EXPONENT = re.compile(rb'([0-9]+)(?:[\s,\]}"]|\Z)')


def read_type(declared: pa.DataType) -> pa.DataType:
    """The type to read a decimal column with.

    Its precision and scale add up to what the type holds, so that no text it takes can overflow, and it has
    more scale than declared where there is room, so that too many digits show per row and fail no block.
    """
    precision, scale = declared.precision, declared.scale
    digits, make = (38, pa.decimal128) if precision + scale <= 38 else (76, pa.decimal256)
    read_scale = min(scale + _SPARE_SCALE, (digits - precision + scale) // 2)
    return make(digits - read_scale, read_scale)


def decimals(column: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    """A column of the declared type, with null where a value does not fit."""
    try:
        return column.cast(declared), None
    except pa.ArrowInvalid:
        values = [fitted(value, declared) if value is not None else None for value in column.to_pylist()]
        fitting = pa.array(values, declared)
        return fitting, new_nulls(fitting, column)


def parsed(text: str) -> Decimal | None:
    """The number in a text, exactly; None if there is none, or none of this world."""
    if _TEXT.fullmatch(text) is None:
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def too_large(value: Decimal, declared: pa.DataType) -> bool:
    """Whether the number has more digits before the point than the column."""
    return bool(value) and value.adjusted() >= declared.precision - declared.scale


def fitted(value: Decimal, declared: pa.DataType) -> Decimal | None:
    """The same number with the scale of the column; None if it does not fit exactly."""
    if not value:
        return Decimal(0)
    if too_large(value, declared):
        return None
    try:
        return _EXACT.quantize(value, Decimal((0, (1,), -declared.scale)))
    except (Inexact, InvalidOperation):
        return None


def extreme(content: Bytes) -> Indexes:
    """Where the text of a block has something that a decimal column must not be read from by Arrow.

    That is a number of scale beyond 38 or with more than 28 digits after the point, or a string that hides
    the letters of one in escapes. Bytes inside other strings are returned as well; that costs only time.
    """
    if len(content) < 64:
        content = np.concatenate([content, np.zeros(64, np.uint8)])
    return np.concatenate([_small_exponents(content), _long_fractions(content), _escaped_digits(content)])


def _digit(codes: Bytes) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return (codes - np.uint8(ord("0"))) < 10


def _found(content: Bytes, character: str, ahead: int) -> Indexes:
    indexes = np.flatnonzero(content == ord(character))
    return indexes[indexes + ahead < len(content)]


def _small_exponents(content: Bytes) -> Indexes:
    indexes = _found(content, "-", 4)
    indexes = indexes[indexes >= 3]
    indexes = indexes[(content[indexes - 1] | 32) == ord("e")]
    for ahead in (-2, 1, 2):
        indexes = indexes[_digit(content[indexes + ahead]) | (content[indexes + ahead] == ord("."))]
    # Hexadecimal ids are full of `4e-12`: only a whole value is a number.
    indexes = indexes[~_letter(content[indexes - 3])]
    digits = np.ones(len(indexes), np.bool_)
    for ahead in range(3, _ID_PART):
        code = content[np.minimum(indexes + ahead, len(content) - 1)]
        number = ~digits | ~(_letter(code) | (code == ord("-")))
        indexes, digits = indexes[number], (digits & _digit(code))[number]
    return np.array([index for index in indexes.tolist() if _is_extreme(content, index)], np.intp)


def _letter(codes: Bytes) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return ((codes | np.uint8(32)) - np.uint8(ord("a"))) < 26


def _is_extreme(content: Bytes, minus: int) -> bool:
    before = _BEFORE_EXPONENT.search(content[max(0, minus - 1 - _WINDOW) : minus - 1].tobytes())
    exponent = _EXPONENT.match(content[minus + 1 : minus + 1 + _WINDOW].tobytes())
    if before is None or exponent is None:
        return False
    return len(before[1] or b"") + int(exponent[1]) > _LARGEST_SCALE or len(before[0]) >= _WINDOW


def _long_fractions(content: Bytes) -> Indexes:
    indexes = _found(content, ".", _LONGEST_FRACTION + 1)
    for ahead in (_LONGEST_FRACTION + 1, 14, 7, *range(1, _LONGEST_FRACTION + 1)):
        indexes = indexes[_digit(content[indexes + ahead])]
        if not len(indexes):
            break
    return indexes


def _escaped_digits(content: Bytes) -> Indexes:
    indexes = _found(content, "\\", 5)
    for ahead, character in enumerate("u00", start=1):
        indexes = indexes[content[indexes + ahead] == ord(character)]
    high, low = content[indexes + 4], content[indexes + 5] | np.uint8(32)
    digit = (high == ord("3")) & _digit(low)
    letter = ((high == ord("4")) | (high == ord("6"))) & (low == ord("5"))
    sign = (high == ord("2")) & ((low == ord("b")) | (low == ord("d")) | (low == ord("e")))
    return indexes[np.flatnonzero(digit | letter | sign)]
