"""Numbers of change events: the ways in which Kafka Connect's converter writes them in JSON.

A decimal is text, the base64 of the bytes of its unscaled number, or with `decimal.format=NUMERIC` a number.
A float is a number, or a word for what JSON has no number for. Each event is looked at by itself, so that
what it becomes does not depend on others.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation, Overflow
from typing import Any

import numpy as np
import pyarrow as pa

from lakefeed.columns.column_types import JSON, LARGEST_PRECISION

NUMERIC, WORDED = 1, 2
"""How an event is written: its decimals are numbers, some of its floats are words."""

Convert = Callable[[pa.Array], tuple[pa.Array, "np.ndarray[Any, np.dtype[np.bool_]]"]]
"""Takes values as they were read; returns them as they are meant, and where they mean nothing."""

_LONGEST_TEXT = 1000
_EXACT = Context(prec=10_000, Emax=10**6, Emin=-(10**6), traps=[Inexact, InvalidOperation, Overflow])
_WORDS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def writing_of(kind: int) -> Callable[[Any], int]:
    """The function that finds from a value how its event is written."""
    if kind == WORDED:
        return lambda value: WORDED if type(value) is str and value in _WORDS else 0
    return lambda value: NUMERIC if type(value) in (int, float) else 0


def decimal_of(
    precision: int, scale: int, *, numeric: bool
) -> tuple[pa.DataType, pa.DataType, Convert | None]:
    """How decimals are read, what they mean, and the way between. A precision of 0 is not given.

    What no decimal column holds, as it has more than 38 digits or a negative scale, is exact text.
    """
    digits = max(precision or LARGEST_PRECISION, scale)
    if scale >= 0 and 1 <= digits <= LARGEST_PRECISION:
        made = pa.decimal128(digits, scale)
        limit = 10**digits
        if numeric:
            return made, made, None
        return pa.binary(), made, _converted(lambda content: _scaled(content, scale, limit), made)
    if numeric:
        return JSON, pa.string(), _converted(_number_text, pa.string())
    return (
        pa.binary(),
        pa.string(),
        _converted(lambda content: _text(_scaled(content, scale, None)), pa.string()),
    )


def worded_float(made: pa.DataType) -> Convert:
    """Reads floats from the text of a number, or from a word."""

    def value(text: str) -> float:
        if text in _WORDS:
            return _WORDS[text]
        number: float = pa.array([text]).cast(made)[0].as_py()
        if not np.isfinite(number):
            raise ValueError(text)
        return number

    return _converted(value, made)


def _converted(convert: Callable[[Any], Any], made: pa.DataType) -> Convert:
    """Converts values one by one; ValueError says that one means nothing."""

    def column(values: pa.Array) -> tuple[pa.Array, Any]:
        wrong = np.zeros(len(values), np.bool_)
        found: list[Any] = []
        for index, value in enumerate(values.to_pylist()):
            try:
                found.append(None if value is None else convert(value))
            except (ValueError, DecimalException):
                found.append(None)
                wrong[index] = True
        return pa.array(found, made), wrong

    return column


def _scaled(content: bytes, scale: int, limit: int | None) -> Decimal:
    number = int.from_bytes(content, "big", signed=True)
    if limit is not None and abs(number) >= limit:
        raise ValueError("more digits than the schema says")
    return _EXACT.scaleb(Decimal(number), -scale)


def _number_text(text: str) -> str:
    return _text(_EXACT.create_decimal(text))


def _text(number: Decimal) -> str:
    if not number.is_finite():
        raise ValueError("no number")
    exponent = number.as_tuple().exponent
    # All digits, unless somebody has sent one of a million zeros.
    return f"{number:f}" if isinstance(exponent, int) and abs(exponent) <= _LONGEST_TEXT else str(number)
