"""Which expressions Arrow evaluates exactly as Spark does."""

from __future__ import annotations

from lakefeed.sql.arrow import arithmetic, casts, comparison, conditions, dates, letters, nested, strings
from lakefeed.sql.arrow.value import Function
from lakefeed.sql.expression import Call, Expression
from lakefeed.sql.reading import FOREIGN, REPLACED

FUNCTIONS: dict[str, Function] = {
    name: function
    for kind in (conditions, comparison, arithmetic, casts, strings, letters, dates, nested)
    for name, function in kind.FUNCTIONS.items()
}
"""Spark's classes of expressions that Arrow has."""


def unsupported(expression: Expression) -> str | None:
    """The first part of an expression that only Spark evaluates, in a few words; None where Arrow has all."""
    for part in expression.parts():
        if isinstance(part, Call) and (why := _unsupported_call(part)):
            return f"{why} is not to be had in Arrow exactly as Spark means it"
    return None


def _unsupported_call(call: Call) -> str | None:
    if call.option(FOREIGN):
        return f"the type {call.option(FOREIGN)}"
    if call.option(REPLACED):
        return None
    known = FUNCTIONS.get(call.function)
    return known.limits(call) if known else call.name


def functions_on_arrow() -> list[tuple[str, str]]:
    """What people write and which uses of it take the way of Arrow, for the documentation."""
    return sorted((one.names, one.note) for one in FUNCTIONS.values())
