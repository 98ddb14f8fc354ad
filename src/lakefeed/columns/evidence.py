"""Evidence for the type of a column: how many values of which kind were seen, and the type that follows.

Most of the values decide. Numbers widen: long, then decimal(38,0), and double with the first fraction. Up to
one value in twenty may be of another kind; it becomes a dead letter. Where more are, the column is `json`,
which takes every value. Text is `timestamp` where nearly all of it is an RFC 3339 date-time with a zone.

Evidence adds up: neither the order of events nor their split into tasks changes what follows from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakefeed.columns.column_types import JSON, TIMESTAMP

_SEEN = b"lakefeed.seen"
_ODD_ONE_IN = 20
_GROUPS = {
    "boolean": ("boolean",),
    "number": ("long", "decimal", "huge", "double"),
    "string": ("string", "timestamp"),
    "object": ("object", "map"),
    "array": ("array",),
}
"""Kinds of values that one column can hold together; `huge` are integers that no type holds exactly."""


@dataclass
class Evidence:
    """What was seen at one path of the events. Null, `[]`, `{}` and what holds nothing else do not count."""

    counts: dict[str, int] = field(default_factory=dict)
    """Values by kind; 0 where nothing of the kind counts."""
    fields: dict[str, Evidence] = field(default_factory=dict)
    """What was seen inside objects, by name."""
    inside: Evidence | None = None
    """What was seen inside arrays, or in the values of a map."""

    @property
    def total(self) -> int:
        """All values."""
        return sum(self.counts.values())

    @property
    def groups(self) -> dict[str, int]:
        """Values by what one column can hold together, the most frequent first."""
        found = {
            name: sum(self.counts.get(kind, 0) for kind in kinds)
            for name, kinds in _GROUPS.items()
            if not self.counts.keys().isdisjoint(kinds)
        }
        return dict(sorted(found.items(), key=lambda one: -one[1]))

    def with_(self, other: Evidence) -> Evidence:
        """Both together."""
        counts = dict(self.counts)
        for kind, count in other.counts.items():
            counts[kind] = counts.get(kind, 0) + count
        inside = self.inside.with_(other.inside) if self.inside and other.inside else None
        return Evidence(counts, merged(self.fields, other.fields), inside or self.inside or other.inside)

    def type(self) -> pa.DataType:
        """The type that follows; one without evidence where nothing but null, `[]` and `{}` was seen."""
        groups = self.groups
        types = {name: self._of_group(name) for name in groups}
        if all(map(is_quiet, types.values())):
            return next(iter(types.values())) if len(types) == 1 else pa.null()
        most, count = next(iter(groups.items()))
        return JSON if self._is_much(self.total - count) else types[most]

    def odd(self) -> int:
        """How many of the values the type does not take; what is inside of objects and arrays not counted."""
        chosen = self.type()
        if chosen == JSON:
            return 0
        most, count = next(iter(self.groups.items()), ("", 0))
        if most == "number" and chosen != pa.float64():
            count -= self.counts.get("huge", 0)
        return self.total - (self.counts["timestamp"] if chosen == TIMESTAMP else count)

    def _of_group(self, name: str) -> pa.DataType:
        if name == "boolean":
            return pa.bool_()
        if name == "number":
            return self._number()
        if name == "string":
            times = self.counts.get("timestamp", 0)
            return pa.string() if self._is_much(self.total - times) else TIMESTAMP
        if name == "array":
            return pa.list_(pa.field("element", self._inner()))
        if "map" in self.counts:
            return pa.map_(pa.string(), self._inner())
        return pa.struct([pa.field(key, one.type()) for key, one in self.fields.items()])

    def _number(self) -> pa.DataType:
        if self.counts.get("double"):
            return pa.float64()
        if self._is_much(self.counts.get("huge", 0)):
            return JSON
        return pa.decimal128(38, 0) if self.counts.get("decimal") else pa.int64()

    def _inner(self) -> pa.DataType:
        return self.inside.type() if self.inside else pa.null()

    def _is_much(self, count: int) -> bool:
        return count * _ODD_ONE_IN > self.total

    def to_field(self, name: str) -> pa.Field:
        """A proposed column of the type that follows, which carries its evidence with it."""
        text = json.dumps(_packed(self), separators=(",", ":"))
        return pa.field(name, self.type(), metadata={_SEEN: text.encode()})


def merged(one: Mapping[str, Evidence], other: Mapping[str, Evidence]) -> dict[str, Evidence]:
    """The evidence of both by name, in order of appearance."""
    found = dict(one)
    for name, each in other.items():
        found[name] = found[name].with_(each) if name in found else each
    return found


def evidence_of(column: pa.Field) -> Evidence | None:
    """The evidence that a proposed column carries; None where its type is known without."""
    text = (column.metadata or {}).get(_SEEN)
    return _unpacked(json.loads(text)) if text else None


def _packed(one: Evidence) -> list[Any]:
    inside = _packed(one.inside) if one.inside else None
    return [one.counts, {name: _packed(each) for name, each in one.fields.items()}, inside]


def _unpacked(packed: list[Any]) -> Evidence:
    counts, fields, inside = packed
    return Evidence(
        counts,
        {name: _unpacked(each) for name, each in fields.items()},
        _unpacked(inside) if inside is not None else None,
    )


def is_quiet(kind: pa.DataType) -> bool:
    """Whether a type is no evidence: nothing but null, `[]` and `{}` was seen."""
    if pa.types.is_struct(kind):
        return all(is_quiet(one.type) for one in kind)
    if pa.types.is_list(kind):
        return is_quiet(kind.value_type)
    if pa.types.is_map(kind):
        return is_quiet(kind.item_type)
    return bool(pa.types.is_null(kind))


def pruned(columns: Iterable[pa.Field]) -> list[pa.Field]:
    """The columns with evidence."""
    return [column.with_type(_pruned_type(column.type)) for column in columns if not is_quiet(column.type)]


def _pruned_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(pruned(kind))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _pruned_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), _pruned_type(kind.item_type))
    return kind
