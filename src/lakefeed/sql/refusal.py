"""What Spark can compute and Lakefeed refuses: whatever does not give each row the same values again."""

from __future__ import annotations

from typing import Any

from lakefeed.sql.catalyst import each

_AGAIN = "a batch that is read again must give the same rows"
_CLOCKS = frozenset(["CurrentTimestamp", "Now", "CurrentDate", "CurrentTime", "LocalTimestamp"])
_SURROUNDINGS = frozenset(
    ["CurrentUser", "CurrentDatabase", "CurrentCatalog", "CurrentTimeZone", "SparkVersion"]
)
_SUBQUERIES = frozenset(["ScalarSubquery", "Exists", "ListQuery", "InSubquery", "LateralSubquery"])


def refused(plan: Any) -> str | None:
    """Why an analyzed plan may not be used, or None."""
    kind = plan.getClass().getSimpleName()
    if kind == "Aggregate":
        return "an aggregate needs more than one row; compute it in a table with `query`"
    if _has_below(plan, "Window"):
        return "a window function needs more than one row; compute it in a table with `query`"
    if _has_below(plan, "Generate"):
        return "a generator such as explode makes several rows of one; use `python` for this"
    return next((why for one in each(plan.expressions()) if (why := _refused_part(one))), None)


def _has_below(plan: Any, kind: str) -> bool:
    return plan.getClass().getSimpleName() == kind or any(
        _has_below(one, kind) for one in each(plan.children())
    )


def _refused_part(expression: Any) -> str | None:
    kind = expression.getClass().getSimpleName()
    if kind in _SUBQUERIES:
        return "a subquery reads more than the row; use a table with `query`"
    if kind in _CLOCKS:
        name = expression.prettyName()
        return f"{name}() gives another value each time, and {_AGAIN}; use _batch_time, the time of the batch"
    if kind in _SURROUNDINGS:
        return f"{expression.prettyName()}() depends on who runs it, and {_AGAIN}"
    below = next((why for one in each(expression.children()) if (why := _refused_part(one))), None)
    if below or expression.deterministic():
        return below
    return f"{expression.prettyName().lower()}() gives another value each time, and {_AGAIN}"
