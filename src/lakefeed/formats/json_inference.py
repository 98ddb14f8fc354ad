"""Columns that payloads have and the schema has not: their names, in order of appearance, and their types.

The types do not depend on the order of the payloads. Integers are long; beyond 64 bits decimal(38,0), beyond
that string. Integers and fractions together are double. Strings are timestamps if every one of them is an
RFC 3339 date-time with a zone. Arrays and objects merge what is inside. Null, `[]` and `{}` are no evidence.
Kinds that do not go together make a string.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import chain
from typing import Any

import pyarrow as pa

from lakefeed.formats import DEFAULT_RULES, Rules, json_names, json_times
from lakefeed.formats.json_columns import INT64
from lakefeed.pipeline.types import TIMESTAMP
from lakefeed.pipeline.widening import one_per_spelling, widen

Objects = Sequence[dict[str, Any]]

_LONGEST_INTEGER = 40
_FEW_NAMES = 32


class Imprecise(Exception):
    """A float may be an integer that the parser could not hold: parse again with `exact_object`."""


class NewFields:
    """The new fields of some objects. Looks at whole columns: this may run on every payload of a stream."""

    def __init__(self, exact: bool, rules: Rules = DEFAULT_RULES) -> None:
        self._exact = exact
        self._rules = rules
        self.doubtful_names: set[str] = set()
        """New names for which an object may be refused."""

    def of_payloads(self, objects: Objects, known: Iterable[pa.Field]) -> list[pa.Field]:
        """The new fields of payloads, for which the rules about names count."""
        return self.of(objects, known, self._rules)

    def of(self, objects: Objects, known: Iterable[pa.Field], rules: Rules = DEFAULT_RULES) -> list[pa.Field]:
        """Fields that are not known, those without evidence of a type included; `prune` takes these out."""
        types = {field.name: field.type for field in known}
        names = dict.fromkeys(chain.from_iterable(objects))
        for name in rules.dropped:
            names.pop(name, None)
        if not names.keys() <= types.keys():
            self.doubtful_names |= json_names.doubtful(names.keys(), types.keys(), rules)
        open_names = [name for name in names if name not in types or types[name].num_fields]
        fields = []
        for name, values in _columns(objects, open_names).items():
            kind = self._inside(values, types[name]) if name in types else self._type(values)
            if kind is not None:
                fields.append(pa.field(name, kind))
        return fields

    def _inside(self, values: list[Any], known: pa.DataType) -> pa.DataType | None:
        """What is new inside a known column, in its shape; None if nothing is.

        A value of another kind has nothing to add: it does not fit, and where that is rescued, it is kept.
        """
        if not known.num_fields:
            return None
        shape = list if pa.types.is_list(known) else dict
        values = [value for value in values if type(value) is shape]
        if pa.types.is_struct(known):
            fields = self.of(values, known)
            return pa.struct(fields) if fields else None
        if pa.types.is_list(known):
            inner = self._inside(_present(chain.from_iterable(values)), known.value_type)
            return pa.list_(pa.field("element", inner)) if inner else None
        inner = self._inside(_present(chain.from_iterable(map(dict.values, values))), known.item_type)
        return pa.map_(pa.string(), inner) if inner else None

    def _type(self, values: list[Any]) -> pa.DataType:
        kinds = dict.fromkeys(map(type, values))
        alike = [values] if len(kinds) == 1 else [[v for v in values if type(v) is kind] for kind in kinds]
        types = [self._of_kind(kind, same) for kind, same in zip(kinds, alike, strict=True)]
        evident = [kind for kind in types if not is_quiet(kind)]
        if not evident:
            return types[0] if len(types) == 1 else pa.null()
        return reduce(widen, evident)

    def _of_kind(self, kind: type, values: list[Any]) -> pa.DataType:
        if kind is bool:
            return pa.bool_()
        if kind is int:
            return self._of_integers(values)
        if kind is float:
            return self._of_floats(values)
        if kind is str:
            return TIMESTAMP if all(map(json_times.is_zoned, values)) else pa.string()
        if kind is dict:
            return pa.struct(self.of(values, ()))
        return pa.list_(pa.field("element", self._type(_present(chain.from_iterable(values)))))

    def _of_integers(self, values: list[int]) -> pa.DataType:
        low, high = min(values), max(values)
        if INT64[0] <= low and high <= INT64[1]:
            return pa.int64()
        return pa.decimal128(38, 0) if max(high, -low) < 10**38 else pa.string()

    def _of_floats(self, values: list[float]) -> pa.DataType:
        if not self._exact and max(max(values), -min(values)) >= 2**63:
            raise Imprecise
        return pa.float64()


def _columns(objects: Objects, names: list[str]) -> dict[str, list[Any]]:
    """The values that are not null, by name."""
    if len(names) <= _FEW_NAMES:
        return {name: _present([each.get(name) for each in objects]) for name in names}
    # Keys that are data make as many names as payloads: one pass over all, not one for each name.
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for each in objects:
        for name, value in each.items():
            if value is not None and name in columns:
                columns[name].append(value)
    return columns


def _present(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def is_quiet(kind: pa.DataType) -> bool:
    """Whether a type is no evidence: nothing but null, `[]` and `{}` was seen."""
    if pa.types.is_struct(kind):
        return all(is_quiet(field.type) for field in kind)
    if pa.types.is_list(kind):
        return is_quiet(kind.value_type)
    if pa.types.is_map(kind):
        return is_quiet(kind.item_type)
    return bool(pa.types.is_null(kind))


def pruned(fields: Iterable[pa.Field]) -> list[pa.Field]:
    """The fields with evidence, and of names that differ only by case one."""
    evident = [pa.field(field.name, _pruned_type(field.type)) for field in fields if not is_quiet(field.type)]
    return one_per_spelling(evident)


def _pruned_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(pruned(kind))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _pruned_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), _pruned_type(kind.item_type))
    return kind


def exact_object(payload: bytes) -> dict[str, Any]:
    """A good payload with all digits of its integers, as far as they matter for a type."""
    found: dict[str, Any] = json.loads(payload.decode(), parse_int=_integer)
    return found


def _integer(text: str) -> int:
    return int(text[:_LONGEST_INTEGER])
