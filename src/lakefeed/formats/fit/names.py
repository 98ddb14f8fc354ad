"""Names of new fields: which of them could become columns, next to those that the table has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from lakefeed.columns.names import column_name_problem
from lakefeed.formats import DEFAULT_RULES, Rules
from lakefeed.formats.refusal import Misfit, name_text, shown

Check = Callable[[dict[str, Any], Collection[str]], None]
"""Raises Misfit for an object whose fields beyond the known ones are not allowed."""


def says_nothing(value: Any) -> bool:
    """Whether a value is no evidence of a column: null, `[]`, `{}`, and these inside each other."""
    if isinstance(value, dict):
        return all(map(says_nothing, value.values()))
    if isinstance(value, list):
        return all(map(says_nothing, value))
    return value is None


def spellings(names: Iterable[str]) -> dict[str, str]:
    """Names by how Delta compares them: in lower case."""
    return {name.lower(): name for name in names}


def name_misfit(name: str, known: dict[str, str], taken: Collection[str] = ()) -> Misfit | None:
    """Why no new column may have this name, next to others by their `spellings`; None if it may."""
    if problem := column_name_problem(name):
        return Misfit("bad_name", f"{problem}, so this new column cannot be added")
    if name.lower() in taken:
        return Misfit("bad_name", "Lakefeed itself adds a column of this name to the table")
    other = known.get(name.lower(), name)
    return clash(other) if other != name else None


def clash(other: str) -> Misfit:
    """The misfit of a name that differs only by case from another one."""
    message = f"differs only by case from {name_text(other)}; a Delta table can have only one of them"
    return Misfit("bad_name", message)


def new_column(value: str) -> Misfit:
    """The misfit of a field that is new where `evolve` allows none, with its value as a message shows it."""
    return Misfit("new_column", f"the table has no such column, got {value}")


def refuse_new_name(
    value: dict[str, Any],
    known: Collection[str],
    taken: Collection[str] = (),
    renamed: Collection[str] = (),
) -> None:
    """Raise Misfit for an object with a new field that could not be added; looks into new objects as well.

    Looks at this payload only, never at others, so that it does not matter which payloads come together.
    """
    others = spellings(known)
    for name, member in value.items():
        if name in known or name in renamed:
            continue
        if misfit := name_misfit(name, others, taken):
            raise misfit.within(name)
        others[name.lower()] = name
        try:
            _refuse_inside(member)
        except Misfit as misfit:
            raise misfit.within(name) from None


def _refuse_inside(value: Any) -> None:
    if isinstance(value, dict):
        refuse_new_name(value, ())
    elif isinstance(value, list):
        for place, element in enumerate(value):
            try:
                _refuse_inside(element)
            except Misfit as misfit:
                raise misfit.within(place) from None


def refuse_new_field(value: dict[str, Any], known: Collection[str]) -> None:
    """Raise Misfit for an object with a new field that has something to say."""
    for name, member in value.items():
        if name not in known and not says_nothing(member):
            raise new_column(shown(member)).within(name)


def allow(value: dict[str, Any], known: Collection[str]) -> None:
    """Let every new field pass."""


def checks(rules: Rules) -> tuple[Check, Check]:
    """What is done about new fields: of payloads themselves, and of objects inside them."""
    if rules.new_column == "dead_letter":
        return refuse_new_field, refuse_new_field
    if rules.new_column in ("ignore", "rescue"):
        return allow, allow
    return partial(refuse_new_name, taken=rules.taken, renamed=rules.renamed), refuse_new_name


def doubtful(names: Collection[str], known: Collection[str], rules: Rules = DEFAULT_RULES) -> set[str]:
    """New names for which a payload may be refused, among those that many payloads have at one level."""
    written = Counter(name.lower() for name in {*names, *known})
    new = [name for name in names if name not in known and name not in rules.renamed]
    return {
        name
        for name in new
        if column_name_problem(name) or written[name.lower()] > 1 or name.lower() in rules.taken
    }
