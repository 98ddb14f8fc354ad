"""Conditions: boolean logic, nulls, CASE and membership, each evaluated only as far as Spark does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.sql.arrow.comparison import equal
from lakefeed.sql.arrow.value import Errors, Function, Kernel, Value, flags, kept, of_one, typed
from lakefeed.sql.expression import Call, Literal


def _logic(compute: Callable[[Any, Any], Any], settles: bool) -> Kernel:
    def kernel(_: Call, values: Sequence[Value], rows: int) -> Value:
        left, right = values
        return Value(compute(left.data, right.data), _then(left, right, settles, rows))

    return kernel


def _then(left: Value, right: Value, settles: bool, rows: int) -> Errors:
    """The right side is not evaluated where the left one settles the matter."""
    if not right.errors:
        return left.errors
    if right.constant and right.data.as_py() is settles:
        return left.errors
    settled = flags(pc.equal(left.column(rows), settles))
    return {**kept(right.errors, ~settled), **left.errors}


def _is_nan(column: pa.Array) -> pa.Array:
    # Of null, Spark's isnan says false.
    return pc.fill_null(pc.is_nan(column), False)


def _coalesce(call: Call, values: Sequence[Value], rows: int) -> Value:
    errors: Errors = {}
    open_rows = np.ones(rows, dtype=bool)
    for value in values:
        errors = {**kept(value.errors, open_rows), **errors}
        if any(later.errors for later in values):
            open_rows &= ~value.given(rows)
    return Value(pc.coalesce(*(typed(value.data, call.type) for value in values)), errors)


def _case(call: Call, values: Sequence[Value], rows: int) -> Value:
    pairs = list(zip(values[0::2], values[1::2], strict=False))
    otherwise = values[-1] if len(values) % 2 else Value(pa.scalar(None, call.type))
    result = otherwise.column(rows)
    for condition, value in reversed(pairs):
        chosen = pc.fill_null(condition.column(rows), False)
        result = pc.if_else(chosen, typed(value.data, call.type), typed(result, call.type))
    return Value(result, _case_errors(pairs, otherwise, rows) if any(one.errors for one in values) else {})


def _case_errors(pairs: Sequence[tuple[Value, Value]], otherwise: Value, rows: int) -> Errors:
    errors: Errors = {}
    open_rows = np.ones(rows, dtype=bool)
    for condition, value in pairs:
        chosen = flags(condition.column(rows))
        errors = {**kept(condition.errors, open_rows), **errors}
        errors = {**kept(value.errors, open_rows & chosen), **errors}
        open_rows &= ~chosen
    return {**kept(otherwise.errors, open_rows), **errors}


def _in(call: Call, values: Sequence[Value], rows: int) -> Value:
    needle, listed = values[0], [one.data for one in values[1:]]
    column = needle.column(rows)
    known = [one for one in listed if one.is_valid]
    if pa.types.is_floating(column.type):
        found = pa.repeat(pa.scalar(False), rows)
        for one in known:
            found = pc.or_(found, pc.fill_null(equal(column, one), False))
    else:
        found = pc.is_in(column, value_set=pa.array([one.as_py() for one in known], column.type))
    unknown = pc.is_null(column)
    if len(known) < len(listed):
        unknown = pc.or_(unknown, pc.invert(found))
    return Value(pc.if_else(unknown, pa.scalar(None, pa.bool_()), found), needle.errors)


def _only_constants(call: Call) -> str | None:
    constant = all(isinstance(one, Literal) for one in call.given[1:])
    if pa.types.is_nested(call.given[0].type):
        return "in of a struct, an array or a map"
    return None if constant else "in with a list that is not constant"


FUNCTIONS = {
    "And": Function("AND", _logic(pc.and_kleene, False)),
    "Or": Function("OR", _logic(pc.or_kleene, True)),
    "Not": Function("NOT", of_one(pc.invert)),
    "IsNull": Function("IS NULL, isnull", of_one(pc.is_null)),
    "IsNotNull": Function("IS NOT NULL, isnotnull", of_one(pc.is_valid)),
    "IsNaN": Function("isnan", of_one(_is_nan)),
    "Coalesce": Function("coalesce, ifnull, nvl", _coalesce),
    "If": Function("if, nullif, nvl2", _case),
    "CaseWhen": Function("CASE", _case),
    "In": Function("IN", _in, _only_constants, "a list of constants"),
}
