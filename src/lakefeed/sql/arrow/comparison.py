"""Comparisons in Spark's order: NaN equals itself and is greater than every number, and -0.0 equals 0.0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.sql.arrow.value import Function, Kernel, Value, first_errors, of_two
from lakefeed.sql.expression import Call


def equal(left: Any, right: Any) -> Any:
    """Whether values are equal."""
    same = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return same


def less(left: Any, right: Any) -> Any:
    """Whether values are less than others."""
    lesser = pc.less(left, right)
    if pa.types.is_floating(left.type):
        lesser = pc.or_(lesser, pc.and_(pc.invert(pc.is_nan(left)), pc.is_nan(right)))
    return lesser


def less_or_equal(left: Any, right: Any) -> Any:
    """Whether values are not greater than others."""
    lesser = pc.less_equal(left, right)
    return pc.or_(lesser, pc.is_nan(right)) if pa.types.is_floating(left.type) else lesser


def _kernel(compare: Callable[[Any, Any], Any]) -> Kernel:
    def known(left: Any, right: Any) -> Any:
        """NaN is greater than any number, but not than null: is_nan of one side alone would say so."""
        compared = compare(left, right)
        if not pa.types.is_floating(left.type):
            return compared
        both = pc.and_(pc.is_valid(left), pc.is_valid(right))
        return pc.if_else(both, compared, pa.scalar(None, pa.bool_()))

    return of_two(known)


def _null_safe(_: Call, values: Sequence[Value], rows: int) -> Value:
    left, right = (value.column(rows) for value in values)
    same = pc.fill_null(equal(left, right), False)
    both = pc.and_(pc.is_null(left), pc.is_null(right))
    return Value(pc.or_(same, both), first_errors(values))


def _plain(call: Call) -> str | None:
    kind = call.given[0].type
    return f"{call.name} of a struct, an array or a map" if pa.types.is_nested(kind) else None


_NOTE = "not structs, arrays and maps"
FUNCTIONS = {
    "EqualTo": Function("=, <>", _kernel(equal), _plain, _NOTE),
    "EqualNullSafe": Function("<=>", _null_safe, _plain, _NOTE),
    "LessThan": Function("<", _kernel(less), _plain, _NOTE),
    "LessThanOrEqual": Function("<=, BETWEEN", _kernel(less_or_equal), _plain, _NOTE),
    "GreaterThan": Function(">", _kernel(lambda left, right: less(right, left)), _plain, _NOTE),
    "GreaterThanOrEqual": Function(
        ">=", _kernel(lambda left, right: less_or_equal(right, left)), _plain, _NOTE
    ),
}
