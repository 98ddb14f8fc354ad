"""New fields, by their names and depth: which of them could become columns, and why others could not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from lakefeed.columns.column_types import DEEPEST
from lakefeed.columns.names import column_name_problem, uncleanable
from lakefeed.formats import DEFAULT_RULES, Rules
from lakefeed.formats.refusal import Misfit, name_text


def spellings(names: Iterable[str]) -> dict[str, str]:
    """Names by how Delta compares them: in lower case."""
    return {name.lower(): name for name in names}


def name_misfit(
    name: str, known: dict[str, str], taken: Collection[str] = (), *, strict: bool = True
) -> Misfit | None:
    """Why no new column may have this name, next to others by their `spellings`; None if it may.

    Unless `strict`, the column gets the cleaned name, and names that differ by case are one.
    """
    if problem := column_name_problem(name) if strict else uncleanable(name):
        return Misfit("bad_name", f"{problem}, so this new column cannot be added")
    if name.lower() in taken:
        return Misfit("bad_name", "Lakefeed itself adds a column of this name to the table")
    other = known.get(name.lower(), name)
    return clash(other) if strict and other != name else None


def clash(other: str) -> Misfit:
    """The misfit of a name that differs only by case from another one."""
    message = f"differs only by case from {name_text(other)}; a Delta table can have only one of them"
    return Misfit("bad_name", message)


def new_column(value: str) -> Misfit:
    """The misfit of a field that is new where `evolve` allows none, with its value as a message shows it."""
    return Misfit("new_column", f"the table has no such column, got {value}")


def too_deep_column() -> Misfit:
    """The misfit of a new field that is nested deeper than a column may be."""
    return Misfit("too_deep", f"a new column may be nested at most {DEEPEST} levels deep, this is deeper")


def doubtful(names: Collection[str], known: Collection[str], rules: Rules = DEFAULT_RULES) -> set[str]:
    """New names for which a payload may be refused, among those that many payloads have at one level."""
    others, strict = spellings(known), rules.names == "strict"
    times = Counter(map(str.lower, names))
    new = (name for name in names if name not in known and name not in rules.renamed)
    return {
        name
        for name in new
        if (strict and times[name.lower()] > 1) or name_misfit(name, others, rules.taken, strict=strict)
    }
