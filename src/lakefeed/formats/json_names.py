"""The names of new columns: which a Delta table can hold, beside those that it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from lakefeed.formats.refusal import Misfit, name_text
from lakefeed.pipeline.names import column_name_problem


def refuse_new_name(value: dict[str, Any], known: Collection[str]) -> None:
    """Raise Misfit for an object with a new field that could not be added; looks into new objects as well.

    Looks at this payload only, never at others, so that it does not matter which payloads come together.
    """
    spellings = {name.lower(): name for name in known}
    for name, member in value.items():
        if name in known:
            continue
        if problem := column_name_problem(name):
            raise Misfit("bad_name", f"{problem}, so this new column cannot be added").within(name)
        other = spellings.setdefault(name.lower(), name)
        if other != name:
            message = f"differs only by case from {name_text(other)}; a Delta table holds one of them"
            raise Misfit("bad_name", message).within(name)
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


def doubtful(names: Collection[str], known: Collection[str]) -> set[str]:
    """New names for which a payload may be refused, among those that many payloads have at one level."""
    spellings = Counter(name.lower() for name in {*names, *known})
    new = [name for name in names if name not in known]
    return {name for name in new if column_name_problem(name) or spellings[name.lower()] > 1}
