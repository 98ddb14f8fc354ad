"""Parsed objects: ways through them along declared types, and the fields that these do not have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from lakefeed.columns.column_types import DEEPEST
from lakefeed.formats import Rules
from lakefeed.formats.fit.names import name_misfit, new_column, spellings, too_deep_column
from lakefeed.formats.refusal import Misfit, shown

_T = TypeVar("_T")

Check = Callable[[Any], object]
"""Takes a parsed value; raises Misfit for a new field in it that is not allowed."""


def along(
    declared: pa.DataType,
    made: Callable[[pa.DataType, int], _T | None],
    elements: Callable[[_T], _T],
    items: Callable[[_T], _T],
    level: int = 0,
) -> _T | None:
    """The function for values of a type; None where there is nothing to do.

    `made` has the function for all but lists and maps, and gets the number of those around the type;
    `elements` makes the function for lists from the one for their elements, `items` the one for maps.
    """
    if pa.types.is_list(declared):
        inner = along(declared.value_type, made, elements, items, level + 1)
        return None if inner is None else elements(inner)
    if pa.types.is_map(declared):
        inner = along(declared.item_type, made, elements, items, level + 1)
        return None if inner is None else items(inner)
    return made(declared, level)


def each(convert: Callable[[Any], _T], parts: Iterable[tuple[str | int, Any]]) -> list[_T]:
    """What the parts of a value become; a Misfit passes with the name or the number of its part."""
    found = []
    for part, value in parts:
        try:
            found.append(convert(value))
        except Misfit as misfit:
            raise misfit.within(part) from None
    return found


def says_nothing(value: Any) -> bool:
    """Whether a value is no evidence of a column: null, `[]`, `{}`, and these inside each other."""
    if isinstance(value, dict):
        return all(map(says_nothing, value.values()))
    if isinstance(value, list):
        return all(map(says_nothing, value))
    return value is None


def depth(value: Any) -> int:
    """How many objects and arrays are inside each other."""
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


def new_field_check(rules: Rules, fields: Iterable[pa.Field]) -> Check | None:
    """The function that looks for new fields in an object; None where the rules allow all.

    It looks at one payload only, never at others, so that it does not matter which payloads come together.
    """
    if rules.new_column in ("ignore", "rescue"):
        return None
    return _object_check(rules, fields, 0)


def _object_check(rules: Rules, fields: Iterable[pa.Field], level: int) -> Check:
    def inside(declared: pa.DataType, lists: int) -> Check | None:
        is_struct = pa.types.is_struct(declared)
        return _object_check(rules, declared, level + 1 + lists) if is_struct else None

    known = {field.name: along(field.type, inside, _element_check, _item_check) for field in fields}
    top = (rules.taken, rules.renamed) if level == 0 else ((), ())

    def check(value: Any) -> None:
        if not isinstance(value, dict):
            return
        for name, check_inside in known.items():
            if check_inside and name in value:
                each(check_inside, [(name, value[name])])
        new = {name: value[name] for name in value if name not in known}
        if rules.new_column == "dead_letter":
            each(_refuse_new, new.items())
        elif new:
            each(partial(_refuse_deep, level), new.items())
            _refuse_names(new, known, rules.names == "strict", *top)

    return check


def _element_check(check: Check) -> Check:
    return lambda value: each(check, enumerate(value)) if isinstance(value, list) else None


def _item_check(check: Check) -> Check:
    return lambda value: each(check, value.items()) if isinstance(value, dict) else None


def _refuse_new(value: Any) -> None:
    if not says_nothing(value):
        raise new_column(shown(value))


def _refuse_deep(level: int, value: Any) -> None:
    if level + depth(value) > DEEPEST:
        raise too_deep_column()


def _refuse_names(
    new: dict[str, Any],
    known: Iterable[str],
    strict: bool,
    taken: Collection[str] = (),
    renamed: Collection[str] = (),
) -> None:
    """Raise Misfit for new fields of an object that could not be added, also inside new objects."""
    others = spellings(known)
    for name, value in new.items():
        if name not in renamed:
            if misfit := name_misfit(name, others, taken, strict=strict):
                raise misfit.within(name)
            others[name.lower()] = name
        each(partial(_refuse_inside, strict), [(name, value)])


def _refuse_inside(strict: bool, value: Any) -> None:
    if isinstance(value, dict):
        _refuse_names(value, (), strict)
    elif isinstance(value, list):
        each(partial(_refuse_inside, strict), enumerate(value))
