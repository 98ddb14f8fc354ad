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
    calls = [part for part in expression.parts() if isinstance(part, Call)]
    # A type says more than the function that Spark has for it, such as timestampaddinterval.
    calls.sort(key=lambda call: call.option(FOREIGN) is None)
    found = next((why for call in calls if (why := _unsupported_call(call))), None)
    return f"{found} is not to be had in Arrow exactly as Spark means it" if found else None


def _unsupported_call(call: Call) -> str | None:
    if call.option(FOREIGN):
        return f"the type {call.option(FOREIGN)}"
    if call.option(REPLACED):
        return None
    known = FUNCTIONS.get(call.function)
    return known.limits(call) if known else call.name
