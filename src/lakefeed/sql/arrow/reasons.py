"""Why Spark throws for a row: its error classes and its sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from lakefeed.sql.arrow.value import Error
from lakefeed.sql.expression import Call

_ANSI = 'If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error.'
_TRY = {"Add": "try_add", "Subtract": "try_subtract", "Multiply": "try_multiply"}
_SIGNS = {"Add": "+", "Subtract": "-", "Multiply": "*"}
_NAMES = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.string(): "STRING",
    pa.date32(): "DATE",
}
_SUFFIXES = {pa.int16(): "S", pa.int8(): "S", pa.int64(): "L", pa.float64(): "D"}


def divide_by_zero(_: int) -> Error:
    """A division by zero."""
    hint = "Use `try_divide` to tolerate divisor being 0 and return NULL instead."
    return "DIVIDE_BY_ZERO", f"Division by zero. {hint} {_ANSI}"


def remainder_by_zero(_: int) -> Error:
    """A remainder by zero."""
    hint = "Use `try_mod` to tolerate divisor being 0 and return NULL instead."
    return "REMAINDER_BY_ZERO", f"Remainder by zero. {hint} {_ANSI}"


def integral_overflow(_: int) -> Error:
    """The smallest number divided by -1."""
    hint = "Use 'try_divide' to tolerate overflow and return NULL instead."
    return "ARITHMETIC_OVERFLOW", f"Overflow in integral divide. {hint} {_ANSI}"


def long_overflow(_: int) -> Error:
    """A point in time that no timestamp reaches; Java's own words, as Spark has none for it."""
    return "ARITHMETIC_OVERFLOW", "long overflow"


def integer_overflow(_: int) -> Error:
    """A day that no date reaches."""
    return "ARITHMETIC_OVERFLOW", f"overflow. {_ANSI}"


def overflow(call: Call, columns: Sequence[pa.Array]) -> Callable[[int], Error]:
    """Integers that are too large for their type."""
    instead = _TRY.get(call.function)

    def reason(row: int) -> Error:
        if instead and call.type in (pa.int8(), pa.int16()):
            left, right = (column[row].as_py() for column in columns)
            return (
                "BINARY_ARITHMETIC_OVERFLOW",
                f"{left}S {_SIGNS[call.function]} {right}S caused overflow. "
                f"Use `{instead}` to ignore overflow problem and return NULL.",
            )
        hint = f"Use '{instead}' to tolerate overflow and return NULL instead. " if instead else ""
        return "ARITHMETIC_OVERFLOW", f"overflow. {hint}{_ANSI}"

    return reason


def cast_overflow(column: pa.Array, kind: pa.DataType) -> Callable[[int], Error]:
    """A number that is too large for the type that it is cast to."""

    def reason(row: int) -> Error:
        return (
            "CAST_OVERFLOW",
            f'The value {_number(column[row].as_py(), column.type)} of the type "{type_name(column.type)}" '
            f'cannot be cast to "{type_name(kind)}" due to an overflow. '
            "Use `try_cast` to tolerate overflow and return NULL instead.",
        )

    return reason


def malformed(text: str, kind: pa.DataType) -> Error:
    """A text that is none of the type that it is cast to."""
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return (
        "CAST_INVALID_INPUT",
        f'The value \'{quoted}\' of the type "STRING" cannot be cast to "{type_name(kind)}" because it is '
        "malformed. Correct the value as per the syntax, or change its target type. "
        "Use `try_cast` to tolerate malformed input and return NULL instead.",
    )


def out_of_range(value: Any, kind: pa.DataType) -> Error:
    """A number with more digits than the decimal that it is cast to."""
    return (
        "NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION",
        f"{value} cannot be represented as Decimal({kind.precision}, {kind.scale}). If necessary set "
        '"spark.sql.ansi.enabled" to "false" to bypass this error, and return NULL instead.',
    )


def too_many_digits(text: str) -> Error:
    """A text with more digits before the point than any decimal has."""
    return (
        "NUMERIC_OUT_OF_SUPPORTED_RANGE",
        f"The value {text} cannot be interpreted as a numeric since it has more than 38 digits.",
    )


def integer_too_large() -> Error:
    """A text with more decimals than Java can round; Java's own words, as Spark has none for it."""
    return "ARITHMETIC_OVERFLOW", "BigInteger would overflow supported range"


def type_name(kind: pa.DataType) -> str:
    """A type as Spark's sentences have it."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return "TIMESTAMP" if pa.types.is_timestamp(kind) else _NAMES[kind]


def _number(value: Any, kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"{value:f}BD"
    if not isinstance(value, float):
        return f"{value}{_SUFFIXES.get(kind, '')}"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return _as_java(value, kind) + _SUFFIXES.get(kind, "")


def _as_java(value: float, kind: pa.DataType) -> str:
    """A number as Java writes it: `1.0E300`."""
    shortest = str(np.dtype(kind.to_pandas_dtype()).type(value))
    sign, digits, exponent = Decimal(shortest).as_tuple()
    shown = "".join(map(str, digits))
    power = len(shown) - 1 + int(exponent)
    if not value or 1e-3 <= abs(value) < 1e7:
        plain = f"{Decimal(shortest):f}"
        return plain if "." in plain else f"{plain}.0"
    fraction = shown[1:].rstrip("0") or "0"
    return f"{'-' if sign else ''}{shown[0]}.{fraction}E{power}"
