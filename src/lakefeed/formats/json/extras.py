"""The fields of an object that have no column, so that they can be kept as JSON.

A field that says nothing (null, `[]`, `{}`, and these inside each other) is no new column and is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from lakefeed.formats.fit.objects import along, says_nothing

Extras = Callable[[Any], Any]
"""Takes a parsed value of a column, returns the part of it that has no column, or None."""


def extras_of(fields: Iterable[pa.Field], ignored: Iterable[str] = ()) -> Extras:
    """The function that takes the fields without a column out of an object, nested ones in their place."""
    known: dict[str, Extras | None] = dict.fromkeys(ignored)
    known |= {field.name: along(field.type, _extras_inside, _each_element, _each_item) for field in fields}

    def extras(value: Any) -> dict[str, Any] | None:
        found = {}
        for name, member in value.items():
            if name in known:
                inside = known[name]
                part = inside(member) if inside and member is not None else None
            else:
                part = None if says_nothing(member) else member
            if part is not None:
                found[name] = part
        return found or None

    return extras


def _extras_inside(declared: pa.DataType, _: int) -> Extras | None:
    if not pa.types.is_struct(declared):
        return None
    in_object = extras_of(declared)
    return lambda value: in_object(value) if isinstance(value, dict) else None


def _each_element(inside: Extras) -> Extras:
    def extras(value: Any) -> list[Any] | None:
        parts = [inside(element) for element in value] if isinstance(value, list) else []
        return parts if any(part is not None for part in parts) else None

    return extras


def _each_item(inside: Extras) -> Extras:
    def extras(value: Any) -> dict[str, Any] | None:
        parts = {key: inside(item) for key, item in value.items()} if isinstance(value, dict) else {}
        return {key: part for key, part in parts.items() if part is not None} or None

    return extras


def both(
    row: dict[str, Any], misfits: dict[str, Any] | None, extras: dict[str, Any] | None
) -> dict[str, Any]:
    """What did not fit and what has no column, in one object. A field that is lost whole holds its extras."""
    found = dict(misfits or {})
    for name, part in (extras or {}).items():
        if name not in found:
            found[name] = part
        elif row.get(name) is not None:
            found[name] = both(row[name], found[name], part)
    return found
