"""Arithmetic: integers throw on overflow, floats are IEEE's, decimals are computed where that is exact."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import LARGEST_PRECISION
from lakefeed.sql.arrow import reasons
from lakefeed.sql.arrow.value import (
    Errors,
    Flags,
    Function,
    Kernel,
    Value,
    column_of,
    failing,
    flags,
    numbers,
    of_two,
    strict_errors,
    typed,
)
from lakefeed.sql.expression import Call

_ROUNDED_FROM = 34
"""Digits to which Spark rounds a decimal whose sign it changes."""


def _tried(call: Call, value: Value, before: Errors) -> Value:
    """What a `try_` function gives: null where it would throw; errors of its arguments stay."""
    return Value(value.data, before) if call.option("mode") == "TRY" else value


def _kernel(plain: Callable[[Any, Any], Any], checked: Callable[[Any, Any], Any], exact: Any) -> Kernel:
    """Addition, subtraction and multiplication."""

    def kernel(call: Call, values: Sequence[Value], rows: int) -> Value:
        left, right = (value.data for value in values)
        before = strict_errors(values, rows)
        if not pa.types.is_integer(call.type):
            return Value(typed(plain(left, right), call.type), before)
        try:
            return Value(checked(left, right), before)
        except pa.ArrowInvalid:
            columns = [value.column(rows) for value in values]
            failed = _overflows(exact, columns[0], columns[1], call.type)
            reason = reasons.overflow(call, columns)
            return _tried(call, failing(plain(left, right), failed, before, reason), before)

    return kernel


def _overflows(exact: Callable[[int, int], int], left: pa.Array, right: pa.Array, kind: pa.DataType) -> Flags:
    """Which rows overflow, by numbers that cannot: only those near the limits are computed one by one."""
    limit = float(2 ** (kind.bit_width - 1))
    rough = exact(numbers(left, pa.float64()), numbers(right, pa.float64()))
    near = np.abs(np.asarray(rough)) >= limit * 0.999
    failed = np.zeros(len(left), dtype=bool)
    for row in np.flatnonzero(near).tolist():
        first, second = left[row].as_py(), right[row].as_py()
        if first is not None and second is not None:
            failed[row] = not -limit <= exact(first, second) < limit
    return failed


def _divide(call: Call, values: Sequence[Value], rows: int) -> Value:
    left, right = (value.column(rows) for value in values)
    before = strict_errors(values[::-1], rows)
    zero = _zero_divisor(left, right)
    return _tried(call, failing(pc.divide(left, right), zero, before, reasons.divide_by_zero), before)


def _zero_divisor(left: pa.Array, right: pa.Array) -> Flags:
    return flags(pc.and_(pc.equal(right, pa.scalar(0, right.type)), pc.is_valid(left)))


def _smallest_by_minus_one(left: pa.Array, right: pa.Array) -> Flags:
    smallest = -(2 ** (left.type.bit_width - 1))
    return flags(
        pc.and_(pc.equal(left, pa.scalar(smallest, left.type)), pc.equal(right, pa.scalar(-1, right.type)))
    )


def _integral_divide(call: Call, values: Sequence[Value], rows: int) -> Value:
    left, right = (value.column(rows) for value in values)
    before = strict_errors(values[::-1], rows)
    zero, over = _zero_divisor(left, right), _smallest_by_minus_one(left, right)
    divisor = pc.if_else(pa.array(flags(pc.equal(right, pa.scalar(0, right.type))) | over), None, right)
    result = pc.divide(left, divisor.cast(right.type)).cast(call.type)

    def reason(row: int) -> tuple[str, str]:
        return reasons.divide_by_zero(row) if zero[row] else reasons.integral_overflow(row)

    return _tried(call, failing(result, zero | over, before, reason), before)


def _remainder(call: Call, values: Sequence[Value], rows: int) -> Value:
    left, right = (value.column(rows) for value in values)
    before = strict_errors(values[::-1], rows)
    zero = _zero_divisor(left, right)
    valid = flags(pc.and_(pc.is_valid(left), pc.is_valid(right))) & ~zero
    divisor = np.where(valid, numbers(right, right.type), 1)
    with np.errstate(all="ignore"):
        # Integers of Java wrap where the smallest is divided by -1: the remainder is 0, as for 1.
        divisor = divisor if pa.types.is_floating(call.type) else np.where(divisor == -1, 1, divisor)
        result = np.fmod(numbers(left, left.type), divisor.astype(call.type.to_pandas_dtype()))
    made = column_of(result, valid, call.type, call.type)
    return _tried(call, failing(made, zero, before, reasons.remainder_by_zero), before)


def _unary(plain: Callable[[Any], Any], checked: Callable[[Any], Any]) -> Kernel:
    """The negative and the absolute value."""

    def kernel(call: Call, values: Sequence[Value], rows: int) -> Value:
        column, before = values[0].column(rows), values[0].errors
        if not pa.types.is_integer(call.type):
            return Value(typed(plain(column), call.type), before)
        try:
            return Value(checked(column), before)
        except pa.ArrowInvalid:
            smallest = pa.scalar(-(2 ** (call.type.bit_width - 1)), call.type)
            failed = flags(pc.equal(column, smallest))
            return failing(plain(column), failed, before, reasons.overflow(call, [column]))

    return kernel


def _digits(kind: pa.DataType) -> tuple[int, int]:
    return kind.precision, kind.scale


def _exact_sum(call: Call) -> str | None:
    if not pa.types.is_decimal(call.type):
        return _numeric(call)
    (p1, s1), (p2, s2) = (_digits(one.type) for one in call.given)
    scale = max(s1, s2)
    return _exact(call, max(p1 - s1, p2 - s2) + scale + 1, scale)


def _exact_product(call: Call) -> str | None:
    if not pa.types.is_decimal(call.type):
        return _numeric(call)
    (p1, s1), (p2, s2) = (_digits(one.type) for one in call.given)
    return _exact(call, p1 + p2 + 1, s1 + s2)


def _exact(call: Call, precision: int, scale: int) -> str | None:
    """A limit where the result has not all the digits that it needs."""
    if (precision, scale) == _digits(call.type) and precision <= LARGEST_PRECISION:
        return None
    return f"{call.name} of decimals with a result of more than {LARGEST_PRECISION} digits"


def _numeric(call: Call) -> str | None:
    return None if _is_number(call.type) and all(one.type == call.type for one in call.given) else call.name


def _no_decimals(call: Call) -> str | None:
    if any(pa.types.is_decimal(one.type) for one in call.given):
        return f"{call.name} of decimals"
    return None if all(_is_number(one.type) for one in call.given) else call.name


def _only_numbers(call: Call) -> str | None:
    if call.option("failOnError") is False:
        return f"{call.name} without ANSI"
    kind = call.given[0].type
    if pa.types.is_decimal(kind) and kind.precision > _ROUNDED_FROM:
        return f"{call.name} of decimals with more than {_ROUNDED_FROM} digits"
    return None if _is_number(kind) or pa.types.is_decimal(kind) else call.name


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _ansi(limits: Callable[[Call], str | None]) -> Callable[[Call], str | None]:
    def limited(call: Call) -> str | None:
        return f"{call.name} without ANSI" if call.option("mode") == "LEGACY" else limits(call)

    return limited


_EXACT = "decimals while the result has at most 38 digits"
_NOT_DECIMAL = "not decimals"
_SHORT = "decimals of at most 34 digits"
FUNCTIONS = {
    "Add": Function("+, try_add", _kernel(pc.add, pc.add_checked, operator.add), _ansi(_exact_sum), _EXACT),
    "Subtract": Function(
        "-, try_subtract",
        _kernel(pc.subtract, pc.subtract_checked, operator.sub),
        _ansi(_exact_sum),
        _EXACT,
    ),
    "Multiply": Function(
        "*, try_multiply",
        _kernel(pc.multiply, pc.multiply_checked, operator.mul),
        _ansi(_exact_product),
        _EXACT,
    ),
    "Divide": Function("/, try_divide", _divide, _ansi(_no_decimals), _NOT_DECIMAL),
    "IntegralDivide": Function("div", _integral_divide, _ansi(_no_decimals), _NOT_DECIMAL),
    "Remainder": Function("%, mod, try_mod", _remainder, _ansi(_no_decimals), _NOT_DECIMAL),
    "UnaryMinus": Function("unary -, negative", _unary(pc.negate, pc.negate_checked), _only_numbers, _SHORT),
    "Abs": Function("abs", _unary(pc.abs, pc.abs_checked), _only_numbers, _SHORT),
    "BitwiseAnd": Function("&", of_two(pc.bit_wise_and)),
    "BitwiseOr": Function("|", of_two(pc.bit_wise_or)),
    "BitwiseXor": Function("^", of_two(pc.bit_wise_xor)),
}
