"""How deep new fields of payloads are nested: a column deeper than readers bear is never added."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from lakefeed.columns.column_types import DEEPEST
from lakefeed.formats.refusal import Misfit


def too_deep_column() -> Misfit:
    """The misfit of a new field that is nested deeper than a column may be, the same for every format."""
    return Misfit("too_deep", f"a new column may be nested at most {DEEPEST} levels deep, this is deeper")


def refuse_deep(value: dict[str, Any], known: Iterable[pa.Field], level: int = 0) -> None:
    """Raise Misfit for an object, at this level, with a new field that is nested too deep; known ones may be.

    Looks at this payload only, never at others, so that it does not matter which payloads come together.
    """
    types = {field.name: field.type for field in known}
    for name, member in value.items():
        try:
            if name in types:
                _refuse_inside(member, types[name], level + 1)
            elif level + _depth(member) > DEEPEST:
                raise too_deep_column()
        except Misfit as misfit:
            raise misfit.within(name) from None


def _refuse_inside(value: Any, known: pa.DataType, level: int) -> None:
    """The same for the value of a known column; one of another kind has nothing new."""
    if pa.types.is_struct(known) and isinstance(value, dict):
        refuse_deep(value, known, level)
    elif pa.types.is_list(known) and isinstance(value, list):
        for place, element in enumerate(value):
            _refuse_part(place, element, known.value_type, level)
    elif pa.types.is_map(known) and isinstance(value, dict):
        for key, item in value.items():
            _refuse_part(key, item, known.item_type, level)


def _refuse_part(part: str | int, value: Any, known: pa.DataType, level: int) -> None:
    try:
        _refuse_inside(value, known, level + 1)
    except Misfit as misfit:
        raise misfit.within(part) from None


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0
