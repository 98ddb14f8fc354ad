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
    # A type says more than the function that Spark has for it, such as timestampaddinterval.
    foreign = (part.option(FOREIGN) for part in expression.parts() if isinstance(part, Call))
    kind = next((one for one in foreign if one), None)
    found = f"the type {kind}" if kind else _unsupported_part(expression, "")
    return f"{found} is not to be had in Arrow exactly as Spark means it" if found else None


def _unsupported_part(expression: Expression, written: str) -> str | None:
    """`written` is the function that the text has, where Spark runs others instead."""
    if not isinstance(expression, Call):
        return None
    if expression.option(REPLACED):
        written = written or expression.name
    else:
        known = FUNCTIONS.get(expression.function)
        why = known.limits(expression) if known else expression.name
        if why:
            return written or why
    return next((why for one in expression.given if (why := _unsupported_part(one, written))), None)
