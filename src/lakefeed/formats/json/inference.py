"""Columns that payloads have and the schema has not: their names, in order of appearance, and their types.

What is seen is counted, and the types follow from the counts by the rules of `lakefeed.columns.evidence`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from lakefeed.columns.evidence import Evidence
from lakefeed.formats import DEFAULT_RULES, Rules
from lakefeed.formats.fit import times
from lakefeed.formats.fit.names import doubtful
from lakefeed.formats.fit.objects import says_nothing
from lakefeed.formats.fit.type_rules import INT64

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

    def of(self, objects: Objects, known: Iterable[pa.Field]) -> list[pa.Field]:
        """Fields of payloads that are not known, also those without a type yet; `pruned` takes these out."""
        return [one.to_field(name) for name, one in self._of(objects, known, self._rules).items()]

    def _of(
        self, objects: Objects, known: Iterable[pa.Field], rules: Rules = DEFAULT_RULES
    ) -> dict[str, Evidence]:
        types = {field.name: field.type for field in known}
        names = dict.fromkeys(chain.from_iterable(objects))
        for name in rules.dropped:
            names.pop(name, None)
        if not names.keys() <= types.keys():
            self.doubtful_names |= doubtful(names.keys(), types.keys(), rules)
        open_names = [name for name in names if name not in types or types[name].num_fields]
        fields = {}
        for name, values in _columns(objects, open_names).items():
            found = self._inside(values, types[name]) if name in types else self._evidence(values)
            if found is not None:
                fields[name] = found
        return fields

    def _inside(self, values: list[Any], known: pa.DataType) -> Evidence | None:
        """What is new inside a known column, in its shape; None if nothing is.

        A value of another kind has nothing to add: it does not fit, and where that is rescued, it is kept.
        """
        if not known.num_fields:
            return None
        shape = list if pa.types.is_list(known) else dict
        values = [value for value in values if type(value) is shape]
        if pa.types.is_struct(known):
            fields = self._of(values, known)
            return Evidence({"object": len(values)}, fields) if fields else None
        if pa.types.is_list(known):
            inner = self._inside(_present(chain.from_iterable(values)), known.value_type)
            return Evidence({"array": len(values)}, inside=inner) if inner else None
        inner = self._inside(_present(chain.from_iterable(map(dict.values, values))), known.item_type)
        return Evidence({"map": len(values)}, inside=inner) if inner else None

    def _evidence(self, values: list[Any]) -> Evidence:
        found = Evidence()
        kinds = dict.fromkeys(map(type, values))
        for kind in kinds:
            self._note(found, kind, values if len(kinds) == 1 else [v for v in values if type(v) is kind])
        return found

    def _note(self, found: Evidence, kind: type, values: list[Any]) -> None:
        if kind is int:
            _note_integers(found, values)
        elif kind is str:
            zoned = sum(map(times.is_zoned, values))
            found.counts |= {"timestamp": zoned} if zoned else {}
            found.counts |= {"string": len(values) - zoned} if zoned < len(values) else {}
        elif kind is dict:
            found.counts["object"] = _telling(values)
            found.fields = self._of(values, ())
        elif kind is list:
            found.counts["array"] = _telling(values)
            found.inside = self._evidence(_present(chain.from_iterable(values)))
        elif kind is float and not self._exact and max(max(values), -min(values)) >= 2**63:
            raise Imprecise
        else:
            found.counts["double" if kind is float else "boolean"] = len(values)


def _note_integers(found: Evidence, values: list[int]) -> None:
    low, high = INT64
    if low <= min(values) and max(values) <= high:
        found.counts["long"] = len(values)
        return
    beyond = [value for value in values if not low <= value <= high]
    huge = sum(abs(value) >= 10**38 for value in beyond)
    parts = {"long": len(values) - len(beyond), "decimal": len(beyond) - huge, "huge": huge}
    found.counts |= {kind: count for kind, count in parts.items() if count}


def _telling(values: list[Any]) -> int:
    return sum(not says_nothing(value) for value in values)


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


def exact_object(payload: bytes) -> dict[str, Any]:
    """A good payload with all digits of its integers, as far as they matter for a type."""
    found: dict[str, Any] = json.loads(payload.decode(), parse_int=_integer)
    return found


def _integer(text: str) -> int:
    return int(text[:_LONGEST_INTEGER])
