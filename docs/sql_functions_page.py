"""The page with the functions of Spark SQL that workers compute without Spark, generated from the code."""

from __future__ import annotations

from lakefeed.sql.arrow import arithmetic, casts, comparison, conditions, dates, letters, nested, strings
from lakefeed.sql.arrow.value import Function

_OPENING = """\
# SQL that runs without Spark

`select`, `where` and `expect` take [all of Spark SQL](shaping.md) that gives one row its values. Where every
part of a table's SQL is in the tables below, the workers compute it with Arrow, in the same pass that decodes
the events. If one part is missing here, the whole table takes the way through Spark's own operators, which is
slower and gives the same rows. `lakefeed plan` says which way a table takes, and why.

A function is here only if it gives exactly what Spark gives: the same values for nulls, NaN, -0.0 and the
largest numbers, the same letters, and the same rows that fail, with Spark's own code and sentence. A test
compares both with random expressions and rows. This page is generated from the code.
"""
_KINDS = {
    "Conditions": conditions.FUNCTIONS,
    "Comparisons": comparison.FUNCTIONS,
    "Arithmetic": arithmetic.FUNCTIONS,
    "Casts": casts.FUNCTIONS,
    "Texts": {**strings.FUNCTIONS, **letters.FUNCTIONS},
    "Dates and timestamps": dates.FUNCTIONS,
    "Structs": nested.FUNCTIONS,
}


def sql_functions_markdown() -> str:
    """The whole page."""
    return "\n".join([_OPENING, *(_section(kind, functions) for kind, functions in _KINDS.items())])


def _section(kind: str, functions: dict[str, Function]) -> str:
    lines = [f"## {kind}", "", "| what | for |", "|---|---|"]
    return "\n".join([*lines, *(_line(one) for one in functions.values()), ""])


def _line(function: Function) -> str:
    names = ", ".join(f"`{name}`" for name in function.names.split(", ")).replace("|", "\\|")
    return f"| {names} | {function.note or 'everything'} |"
