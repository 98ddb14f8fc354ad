"""Texts that are cast to numbers, booleans and dates.

Arrow reads those that are written plainly, for whole columns. The others, with a sign or blanks around them,
or in a form of Java's own, are read one by one by Spark's rules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import LARGEST_PRECISION
from lakefeed.sql.arrow import reasons
from lakefeed.sql.arrow.value import Error, Value, flags

_JAVA_BLANKS = "".join(map(chr, range(0x21)))
"""What Java's `trim` cuts off at both ends: everything up to the blank."""
_BLANKS = _JAVA_BLANKS + "\x7f"
"""What Spark cuts off by its own rules: blanks and control characters."""
_PLAIN_INT = r"^-?[0-9]{1,18}$"
_PLAIN_FLOAT = r"^-?[0-9]{1,17}(\.[0-9]{1,17})?$"
_PLAIN_BOOLEAN = "^(true|false)$"
_PLAIN_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_INT = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")
_HEX_FLOAT = re.compile(
    r"([+-]?)0[xX](?=\.?[0-9a-fA-F])([0-9a-fA-F]*)\.?([0-9a-fA-F]*)[pP]([+-]?[0-9]+)[dDfF]?"
)
# Java takes the digits of every script, but none that needs two of its characters.
_DECIMAL = re.compile(r"([+-]?)(?=\.?\d)(\d*)\.?(\d*)(?:[eE]([+-]?\d+))?")
_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_LONGEST_EXPONENT = 10
"""Digits of an exponent that Java reads, leading zeros aside."""
_LARGEST_POWER = 2**29
"""The largest power of ten that Java computes, and Spark needs to round a number with as many decimals."""


class _Thrown(Exception):
    """Spark throws for the text."""

    def __init__(self, error: Error) -> None:
        self.error = error


class _Malformed(Exception):
    """The text is none of the type."""


def _parsed(column: pa.Array, kind: pa.DataType, plain: str, one: Callable[[str, pa.DataType], Any]) -> Value:
    """Read the plain texts at once, and each of the others by itself."""
    is_plain = pc.match_substring_regex(column, plain)
    if pc.all(is_plain, min_count=0).as_py():
        made = _quickly(column, kind)
        if made is not None:
            return Value(made)
    odd = np.flatnonzero(~flags(pc.fill_null(is_plain, True)))
    made = _quickly(pc.if_else(is_plain, column, None).cast(pa.string()), kind)
    if made is None:
        odd = np.flatnonzero(flags(pc.is_valid(column)))
        made = pa.nulls(len(column), kind)
    values, errors = _one_by_one(column, kind, odd.tolist(), one)
    mask = np.zeros(len(column), dtype=bool)
    mask[odd] = True
    return Value(pc.replace_with_mask(made, pa.array(mask), pa.array(values, kind)), errors)


def _quickly(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """What Arrow reads; None where one of the texts is plain and still none of the type (30 February)."""
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        return None


def _one_by_one(
    column: pa.Array, kind: pa.DataType, odd: list[int], one: Callable[[str, pa.DataType], Any]
) -> tuple[list[Any], dict[int, Error]]:
    values: list[Any] = []
    errors: dict[int, Error] = {}
    for row in odd:
        text = column[row].as_py()
        value = None
        try:
            value = one(text, kind)
        except _Malformed:
            errors[row] = reasons.malformed(text, kind)
        except _Thrown as thrown:
            errors[row] = thrown.error
        values.append(value)
    return values, errors


def _int(text: str, kind: pa.DataType) -> int:
    trimmed = text.strip(_BLANKS)
    if not _INT.fullmatch(trimmed):
        raise _Malformed
    limit = 2 ** (kind.bit_width - 1)
    value = int(trimmed) if len(trimmed) < 4000 else limit
    if not -limit <= value < limit:
        raise _Malformed
    return value


def _float(text: str, kind: pa.DataType) -> float:
    trimmed = text.strip(_JAVA_BLANKS)
    number = trimmed.rstrip("dDfF") if _FLOAT.fullmatch(trimmed) else None
    if number is not None:
        # Arrow rounds to the type at once; by way of a double it would be rounded twice.
        read: float = pa.scalar(number.lstrip("+")).cast(kind).as_py()
        return read
    if parts := _HEX_FLOAT.fullmatch(trimmed):
        return _hexadecimal(parts, kind)
    special = _SPECIAL.get(trimmed.lower())
    if special is not None:
        return special
    if trimmed in ("+NaN", "-NaN"):
        return math.nan
    raise _Malformed


def _hexadecimal(parts: re.Match[str], kind: pa.DataType) -> float:
    """A number such as `0x1.8p1`, rounded once."""
    sign, whole, fraction, power = parts.groups()
    digits = int(whole + fraction, 16)
    # No text is long enough to bring a number with a larger exponent back among the floats.
    exponent = int(power.lstrip("+-").lstrip("0")[:15] or "0") * (-1 if power.startswith("-") else 1)
    exponent -= 4 * len(fraction)
    # What is beyond the digits of a float decides only how the last one is rounded: one bit holds it.
    surplus = max(0, digits.bit_length() - 50 if kind == pa.float32() else digits.bit_length() - 64)
    rest = digits & ((1 << surplus) - 1)
    digits, exponent = digits >> surplus | bool(rest), exponent + surplus
    value = 0.0
    if digits and digits.bit_length() + exponent > 1100:
        value = math.inf
    elif digits.bit_length() + exponent > -1200:
        try:
            value = float(Fraction(digits) * Fraction(2) ** exponent)
        except OverflowError:
            value = math.inf
    with np.errstate(over="ignore"):
        value = float(np.float32(value)) if kind == pa.float32() else value
    return -value if sign == "-" else value


_SPECIAL = {
    "inf": math.inf,
    "+inf": math.inf,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-inf": -math.inf,
    "-infinity": -math.inf,
    "nan": math.nan,
}


def _boolean(text: str, _: pa.DataType) -> bool:
    word = text.strip(_BLANKS)
    word = word.lower() if word.isascii() else ""
    if word in ("t", "true", "y", "yes", "1"):
        return True
    if word in ("f", "false", "n", "no", "0"):
        return False
    raise _Malformed


def _date(text: str, _: pa.DataType) -> int:
    found = _DATE.fullmatch(text.strip(_BLANKS))
    if not found:
        raise _Malformed
    year = int(found[2]) * (-1 if found[1] == "-" else 1)
    month, day = int(found[3] or 1), int(found[4] or 1)
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        raise _Malformed
    first = np.datetime64((year - 1970) * 12 + month - 1, "M")
    days = first.astype("datetime64[D]").astype(int) + day - 1
    if np.datetime64(int(days), "D").astype("datetime64[M]") != first or not -(2**31) <= days < 2**31:
        raise _Malformed
    return int(days)


def _to_decimal(column: pa.Array, kind: pa.DataType) -> Value:
    before, after = min(kind.precision - kind.scale, 20), kind.scale
    whole = rf"[0-9]{{1,{before}}}" if before else "0"
    plain = rf"^-?{whole}(\.[0-9]{{1,{after}}})?$" if after else rf"^-?{whole}$"
    return _parsed(column, kind, plain, _decimal)


def _decimal(text: str, kind: pa.DataType) -> Decimal:
    """A decimal of any length and exponent; never computes with more digits than the text has."""
    trimmed = text.strip(_JAVA_BLANKS)
    parts = _DECIMAL.fullmatch(trimmed)
    if not parts or max(trimmed) > "\uffff":
        raise _Malformed
    sign, whole, fraction, power = parts.groups()
    digits = Decimal(f"{sign}{whole}{fraction}")
    scale = len(fraction) - _exponent(power or "0")
    if not -(2**31) <= scale < 2**31:
        raise _Malformed
    before_point = len(digits.as_tuple().digits) - scale
    if LARGEST_PRECISION < before_point < 2**31:
        raise _Thrown(reasons.too_many_digits(text))
    if digits and not -_LARGEST_POWER < scale - kind.scale < _LARGEST_POWER:
        raise _Thrown(reasons.integer_too_large())
    if before_point < -kind.scale or not digits:
        return Decimal(0)
    length = len(whole) + len(fraction) + 2 * LARGEST_PRECISION
    exact = Context(prec=length, Emin=-length, Emax=length)
    value = digits.scaleb(-scale, exact)
    rounded = value.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, exact)
    if rounded and rounded.adjusted() >= kind.precision - kind.scale:
        raise _Thrown(reasons.out_of_range(f"{value:f}", kind))
    return rounded


def _exponent(text: str) -> int:
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text.removeprefix("+"))
    # The zeros are those of any script.
    zeros = next((at for at, digit in enumerate(digits) if int(digit)), len(digits))
    digits = digits[min(zeros, max(0, len(digits) - _LONGEST_EXPONENT)) :]
    value = int(sign + digits) if len(digits) <= _LONGEST_EXPONENT else 2**31
    if not -(2**31) <= value < 2**31:
        raise _Malformed
    return value


PARSERS: dict[str, Callable[[pa.Array, pa.DataType], Value]] = {
    "integer": partial(_parsed, plain=_PLAIN_INT, one=_int),
    "float": partial(_parsed, plain=_PLAIN_FLOAT, one=_float),
    "boolean": partial(_parsed, plain=_PLAIN_BOOLEAN, one=_boolean),
    "date": partial(_parsed, plain=_PLAIN_DATE, one=_date),
    "decimal": _to_decimal,
}
"""How texts become values of other types."""
