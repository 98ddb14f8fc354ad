"""Spellings: which column a field of an event is for, where the event writes its name in another way.

Names that differ only by case are one name. A column that the pipeline file declares, drops or renames also
takes the field whose cleaned name it has. What a name means depends on the columns alone, and never on the
other names of an event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import DECLARED
from lakefeed.columns.names import clean_column_name
from lakefeed.formats import Rules
from lakefeed.formats.fit.columns import offsets_of
from lakefeed.formats.fit.objects import along, each
from lakefeed.formats.fit.paths import Elements, Level
from lakefeed.formats.refusal import Misfit, name_text

_MOST_VARIANTS = 50
"""How many other spellings are expected at one level: beyond that, names are data."""

Clash = Callable[[Level, np.ndarray[Any, Any], str, str], object]
"""Takes rows of a level that have two spellings of one name, the second one, and the name."""


def two_spellings(name: str) -> Misfit:
    """The misfit of an event that has a field twice, in two spellings."""
    message = f"is another spelling of {name_text(name)}, and the event has both; a table has one column"
    return Misfit("bad_name", message)


class Spellings:
    """The fields of one struct, and inside each of them those of its own, under the names of the events."""

    def __init__(
        self,
        fields: Iterable[pa.Field],
        also: Collection[str] = (),
        *,
        rescues: bool,
        cleans: bool = True,
        missed: list[str] | None = None,
    ) -> None:
        fields = list(fields)
        self._missed: list[str] = [] if missed is None else missed
        self.names = {*(field.name for field in fields), *also}
        self.variants: dict[str, str] = {}
        """Other spellings that events had so far, and the names that they stand for."""
        self._rescues = rescues
        self._folded = {name.lower(): name for name in (*also, *(field.name for field in reversed(fields)))}
        open_names = (*also, *(field.name for field in fields if DECLARED in (field.metadata or {})))
        self._cleans = cleans
        self._cleaned = {clean_column_name(name).lower(): name for name in open_names if cleans}
        self.inside: dict[str, Spellings] = {}
        self._objects: dict[str, Callable[[Any], Any]] = {}
        for field in fields:
            inner: list[Spellings] = []
            walk = along(field.type, partial(self._inner, inner), _elements, _items)
            if walk is not None:
                self.inside[field.name], self._objects[field.name] = inner[0], walk

    def _inner(self, found: list[Spellings], kind: pa.DataType, _: int) -> Callable[[Any], Any] | None:
        if not pa.types.is_struct(kind):
            return None
        found.append(Spellings(kind, rescues=self._rescues, cleans=self._cleans, missed=self._missed))
        return found[0].object

    @property
    def count(self) -> int:
        """How many other spellings events had."""
        return len(self.variants) + sum(inner.count for inner in self.inside.values())

    def name(self, spelling: str) -> str | None:
        """The name that a field of an event stands for; None if it is that of no column."""
        if spelling in self.names:
            return spelling
        folded = self._folded.get(spelling.lower())
        return folded or self._cleaned.get(clean_column_name(spelling).lower())

    def _note(self, spelling: str, name: str) -> None:
        if spelling in self.variants or len(self.variants) < _MOST_VARIANTS:
            self.variants[spelling] = name
        else:
            self._missed.append(spelling)

    def missed(self) -> bool:
        """Whether there was a spelling since the last question that is not expected: there are too many."""
        found = bool(self._missed)
        self._missed.clear()
        return found

    def object(self, value: Any) -> Any:
        """A parsed object with the names of the columns; the same object where it has them.

        Of two spellings, the column's own comes first, then the first in the object; null gives way. Raises
        Misfit where both have a value, unless new fields are rescued: then the second stays under its name.
        """
        if not isinstance(value, dict):
            return value
        made = value
        if not value.keys() <= self.names:
            names = {spelling: self.name(spelling) for spelling in value if spelling not in self.names}
            if any(names.values()):
                made = self._renamed(value, names)
        for name, walk in self._objects.items():
            member = made.get(name)
            if member is not None:
                [new] = each(walk, [(name, member)])
                if new is not member:
                    made = {**made, name: new}
        return made

    def _renamed(self, value: dict[str, Any], names: dict[str, str | None]) -> dict[str, Any]:
        made = {spelling: member for spelling, member in value.items() if not names.get(spelling)}
        for spelling, name in names.items():
            if name is None:
                continue
            self._note(spelling, name)
            if made.get(name) is None:
                made[name] = value[spelling]
            elif value[spelling] is not None:
                if not self._rescues:
                    raise two_spellings(name).within(spelling)
                made[spelling] = value[spelling]
        return made

    def learn(self, kind: pa.DataType) -> None:
        """Expect the other spellings among the fields of a struct that events were read as."""
        for field in kind:
            name = self.name(field.name)
            if name is not None and name != field.name:
                self._note(field.name, name)
            if name in self.inside:
                self.inside[name]._learn_inside(field.type)

    def _learn_inside(self, kind: pa.DataType) -> None:
        if pa.types.is_list(kind):
            self._learn_inside(kind.value_type)
        elif pa.types.is_struct(kind):
            self.learn(kind)

    def expected(self, kind: pa.DataType) -> pa.DataType:
        """The struct that events are read as, with a field more for each other spelling."""
        fields = [
            field.with_type(self.inside[field.name]._expected_inside(field.type))
            if field.name in self.inside
            else field
            for field in kind
        ]
        types = {field.name: field for field in fields}
        more = [types[name].with_name(variant) for variant, name in self.variants.items() if name in types]
        return pa.struct([*fields, *more])

    def _expected_inside(self, kind: pa.DataType) -> pa.DataType:
        if pa.types.is_list(kind):
            return pa.list_(kind.value_field.with_type(self._expected_inside(kind.value_type)))
        return self.expected(kind) if pa.types.is_struct(kind) else kind

    def array(self, made: pa.StructArray, level: Level, clash: Clash) -> pa.StructArray:
        """Structs with the names of the columns; the same structs where they have them.

        Each level is whole, not a slice. `clash` gets events with two spellings, by the rules of `object`.
        """
        if not self._has_other_names(made.type):
            return made
        members: dict[str, list[tuple[str, pa.Array]]] = {}
        for field, values in zip(made.type, made.flatten(), strict=True):
            members.setdefault(self.name(field.name) or field.name, []).append((field.name, values))
        found: dict[str, pa.Array] = {}
        for name, several in members.items():
            several = sorted(several, key=lambda one, name=name: one[0] != name)  # type: ignore[misc]
            found[name] = several[0][1]
            for spelling, values in several[1:]:
                left = self._merge(found, name, (spelling, values), level, clash)
                found |= {} if left is None else {spelling: left}
        for name, inner in self.inside.items():
            if name in found:
                found[name] = inner._array_inside(found[name], level.field(name), clash)
        kind = pa.struct([pa.field(name, values.type) for name, values in found.items()])
        validity = made.buffers()[0] if made.null_count else None
        return pa.Array.from_buffers(kind, len(made), [validity], children=list(found.values()))

    def _merge(
        self,
        found: dict[str, pa.Array],
        name: str,
        other: tuple[str, pa.Array],
        level: Level,
        clash: Clash,
    ) -> pa.Array | None:
        """Fill a column with the values of another spelling; what is rescued of these, None if nothing is."""
        first, (spelling, second) = found[name], other
        both = _valid(first) & _valid(second)
        if first.type == second.type:
            found[name] = pc.coalesce(first, second)
        elif first.null_count == len(first):
            found[name] = second
        else:
            # Values of different types have no column in common before they meet that of the table.
            both = _valid(second)
        if not both.any():
            return None
        if self._rescues:
            return pc.if_else(pa.array(both), second, pa.scalar(None, second.type))
        clash(level.field(spelling), np.flatnonzero(both), spelling, name)
        return None

    def _array_inside(self, made: pa.Array, level: Level, clash: Clash) -> pa.Array:
        if pa.types.is_struct(made.type):
            return self.array(made, level, clash)
        if pa.types.is_list(made.type):
            offsets = offsets_of(made)
            parts = self._array_inside(made.values, Elements(level, offsets), clash)
            kind = pa.list_(made.type.value_field.with_type(parts.type))
            return pa.Array.from_buffers(kind, len(made), made.buffers()[:2], children=[parts])
        if pa.types.is_map(made.type):
            offsets = offsets_of(made)
            items = self._array_inside(made.items, Elements(level, offsets, made.keys), clash)
            kind = pa.map_(made.type.key_type, made.type.item_field.with_type(items.type))
            entries = pa.Array.from_buffers(
                kind.field(0).type, len(items), [None], children=[made.keys, items]
            )
            return pa.Array.from_buffers(kind, len(made), made.buffers()[:2], children=[entries])
        return made

    def _has_other_names(self, kind: pa.DataType) -> bool:
        for field in kind:
            name = self.name(field.name)
            if name is not None and name != field.name:
                return True
            inner = self.inside.get(field.name)
            if inner is not None and inner._has_other_names_inside(field.type):
                return True
        return False

    def _has_other_names_inside(self, kind: pa.DataType) -> bool:
        if pa.types.is_list(kind):
            return self._has_other_names_inside(kind.value_type)
        if pa.types.is_map(kind):
            return self._has_other_names_inside(kind.item_type)
        return pa.types.is_struct(kind) and self._has_other_names(kind)


def spellings_of(fields: Iterable[pa.Field], rules: Rules) -> Spellings | None:
    """The spellings of the columns of a table; None where only exact names count."""
    if rules.names == "strict":
        return None
    rescues, cleans = rules.new_column == "rescue", rules.names != "keep"
    return Spellings(fields, sorted(rules.dropped), rescues=rescues, cleans=cleans)


def dropped_names(columns: Iterable[pa.Field], rules: Rules) -> set[str]:
    """Columns, by the names that events have, that `drop` names: as events do, or by the cleaned name."""
    names = [field.name for field in columns]
    if rules.names in ("strict", "keep"):
        return {*names} & rules.dropped
    cleaned = rules.dropped - {*names}
    return {name for name in names if name in rules.dropped or clean_column_name(name) in cleaned}


def with_column_names(names: Iterable[str], spellings: Spellings | None) -> set[str]:
    """The names of fields, and those of the columns that they stand for."""
    found = {*names}
    return found if spellings is None else found | {spellings.name(name) or name for name in found}


def _valid(values: pa.Array) -> np.ndarray[Any, Any]:
    valid: np.ndarray[Any, Any] = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _elements(walk: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def elements(value: Any) -> Any:
        return _changed(value, each(walk, enumerate(value))) if isinstance(value, list) else value

    return elements


def _items(walk: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def items(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        found = each(walk, value.items())
        same = all(new is old for new, old in zip(found, value.values(), strict=True))
        return value if same else dict(zip(value, found, strict=True))

    return items


def _changed(before: Sequence[Any], after: list[Any]) -> Any:
    return before if all(new is old for new, old in zip(after, before, strict=True)) else after
