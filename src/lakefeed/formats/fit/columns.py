"""Columns that a writer made meet the schema of a table: what fits, what does not, and what is new.

For every format that knows the types of its columns before it looks at values. The rules are those of JSON;
where JSON looks at one payload, this looks at whole columns and only then at the values that are in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import DEEPEST, stored_type, type_text
from lakefeed.columns.widening import merge_proposals
from lakefeed.formats import Decoded, Rules
from lakefeed.formats.fit.depth import too_deep_column
from lakefeed.formats.fit.new_columns import (
    Proposals,
    clash,
    has_new_fields,
    name_problem,
    new_column,
    telling,
)
from lakefeed.formats.fit.places import Elements, Items, Level, Rows
from lakefeed.formats.fit.rescue import Rescued, json_text, json_texts, put, rescued_column
from lakefeed.formats.fit.times import Doubt
from lakefeed.formats.fit.values import Convert, conversion, decide
from lakefeed.formats.json.columns import either
from lakefeed.formats.refusal import Misfit

Misfits = dict[int, Misfit]
"""Payloads that are refused, by their place; the first reason counts."""

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
Decide = Callable[[pa.Array, int, pa.DataType], Any]
"""Takes a column, a place in doubt and the declared type; answers the value, or raises Misfit."""


@dataclass(frozen=True)
class Conversions:
    """How values of one type become values of another; a format with rules of its own has its own."""

    conversion: Callable[[pa.DataType, pa.DataType], Convert | None] = conversion
    decide: Decide = decide


@dataclass(frozen=True)
class Fitted:
    """What became of some payloads, each at its place; `rows` has one for a misfit too, which is no row."""

    rows: pa.StructArray
    misfits: Misfits
    unknown: pa.Schema | None = None
    rescued: Mapping[int, Rescued] = field(default_factory=dict)
    """By place, what did not fit."""


class Fitting:
    """Fits what writers made into one schema, under the rules of its table. Lives on a worker."""

    def __init__(self, schema: pa.Schema, rules: Rules, conversions: Conversions | None = None) -> None:
        self._schema = schema
        self._rules = rules
        self._conversions = conversions or Conversions()
        by_value = rules.new_column == "fail"
        self._proposals = Proposals(by_value, rules.taken, rules.renamed)

    def fit(self, made: pa.StructArray, misfits: Misfits, types: pa.Schema | None = None) -> Fitted:
        """Fit one struct for each payload; a payload that is a misfit already has null for its values.

        A null struct or list holds no values. `types` tells what to propose for a column that was read as
        another type than it is meant to be.
        """
        if self._rules.dropped:
            made = _without(made, self._rules.dropped)
        work = _Fit(self._rules, self._conversions, dict(misfits))
        rows, _ = work.struct(made, pa.struct(list(self._schema)), Rows())
        unknown = None
        if self._rules.new_column in ("add", "fail") and has_new_fields(made.type, self._schema):
            good = made.filter(pa.array(_good(len(made), work.misfits))) if work.misfits else made
            proposed = self._proposals.of(good, self._schema, types) if len(good) else ()
            unknown = proposed if len(proposed) else None
        return Fitted(rows, work.misfits, unknown, work.rescued)

    def nothing(self) -> Fitted:
        """What no payloads become."""
        return self.fit(pa.array([], pa.struct([])), {})


def decoded(count: int, parts: Sequence[tuple[Sequence[int], Fitted]], refused: Misfits) -> Decoded:
    """What became of `count` payloads, of which each part has those at its indexes; the rest was refused.

    There is at least one part, as even no row has columns.
    """
    if len(parts) == 1 and not refused and not parts[0][1].misfits and not parts[0][1].rescued:
        whole = parts[0][1]
        return Decoded(pa.RecordBatch.from_struct_array(whole.rows), unknown=whole.unknown)
    refused = dict(refused)
    indexes: list[int] = []
    rows: list[pa.StructArray] = []
    rescued: dict[int, Rescued] = {}
    for places, part in parts:
        good = _good(len(places), part.misfits)
        rows.append(part.rows.filter(pa.array(good)) if part.misfits else part.rows)
        indexes += [places[at] for at in np.flatnonzero(good).tolist()]
        refused |= {places[at]: misfit for at, misfit in part.misfits.items()}
        rescued |= {places[at]: texts for at, texts in part.rescued.items()}
    assert len(indexes) + len(refused) == count, "every payload is a row or a refusal"
    together = rows[0] if len(rows) == 1 else pa.concat_arrays(rows)
    if len(rows) > 1:
        together = together.take(pa.array(np.argsort(indexes)))
        indexes.sort()
    proposals = [part.unknown for _, part in parts if part.unknown is not None]
    return Decoded(
        pa.RecordBatch.from_struct_array(together),
        [refused[index].refused(index) for index in sorted(refused)],
        reduce(merge_proposals, proposals) if proposals else None,
        rescued_column(rescued, indexes) if rescued else None,
    )


class _Fit:
    """One pass over the columns of some payloads. Notes by the place of the payload what did not fit."""

    def __init__(self, rules: Rules, conversions: Conversions, misfits: Misfits) -> None:
        self._rules = rules
        self._conversions = conversions
        self.misfits = misfits
        self.rescued: dict[int, Rescued] = {}

    def struct(
        self, made: pa.StructArray, declared: pa.DataType, level: Level
    ) -> tuple[pa.StructArray, Doubt]:
        """The structs as stored; in lists, where something inside that was not noted here does not fit."""
        assert made.offset == 0, "columns come whole from the format"
        members = dict(zip((each.name for each in made.type), made.flatten(), strict=True))
        live = made.is_valid().to_numpy(zero_copy_only=False) if made.null_count else None
        children: list[pa.Array] = []
        doubt: Doubt = None
        for each in declared:
            child, unfit = self._field(members.get(each.name), each, level, live, len(made))
            children.append(child)
            doubt = either(doubt, unfit)
        known = {each.name for each in declared}
        new = {name: values for name, values in members.items() if name not in known}
        if new and self._rules.new_column != "ignore":
            self._new(new, known, level)
        validity = made.buffers()[0] if made.null_count else None
        rows = pa.Array.from_buffers(stored_type(declared), len(made), [validity], children=children)
        return rows, doubt

    def _field(
        self, made: pa.Array | None, declared: pa.Field, level: Level, live: Doubt, count: int
    ) -> tuple[pa.Array, Doubt]:
        inside = level.field(declared.name)
        if made is None:
            made = pa.nulls(count)
        if not declared.nullable and made.null_count:
            absent = made.is_null().to_numpy(zero_copy_only=False)
            self._missing(absent if live is None else absent & live, declared.type, inside)
        column, doubt = self._column(made, declared.type, inside)
        if doubt is None:
            return column, None
        if self._rules.type_change == "rescue":
            if level.in_list:
                # A list is kept or rescued whole, by the field that holds it.
                return column, doubt
            if declared.nullable:
                self._rescue(made, np.flatnonzero(doubt), inside)
                return column.take(pa.array(np.arange(count), mask=doubt)), None
        for at in np.flatnonzero(doubt).tolist():
            self._refuse(at, self._why(made, at, declared.type), inside)
        return column, None

    def _column(self, made: pa.Array, declared: pa.DataType, level: Level) -> tuple[pa.Array, Doubt]:
        """The column as stored, null where it does not fit, and where that is."""
        types = pa.types
        if types.is_null(made.type):
            return pa.nulls(len(made), stored_type(declared)), None
        if types.is_struct(made.type) and types.is_struct(declared):
            return self.struct(made, declared, level)
        if types.is_list(made.type) and types.is_list(declared):
            return self._list(made, declared, level)
        if types.is_map(made.type) and types.is_map(declared):
            return self._map(made, declared, level)
        convert = self._conversions.conversion(made.type, declared)
        if convert is None:
            doubt = made.is_valid().to_numpy(zero_copy_only=False)
            return pa.nulls(len(made), stored_type(declared)), doubt if doubt.any() else None
        column, doubt = convert(made, declared)
        return (column, None) if doubt is None else self._decided(made, column, doubt, declared)

    def _decided(
        self, made: pa.Array, column: pa.Array, doubt: Mask, declared: pa.DataType
    ) -> tuple[pa.Array, Doubt]:
        decided: dict[int, Any] = {}
        for at in np.flatnonzero(doubt).tolist():
            try:
                decided[at] = self._conversions.decide(made, at, declared)
            except Misfit:
                continue
        if not decided:
            return column, doubt
        places = list(decided)
        mask = np.zeros(len(column), np.bool_)
        mask[places] = True
        column = pc.replace_with_mask(column, mask, pa.array(list(decided.values()), column.type))
        left = doubt & ~mask
        return column, left if left.any() else None

    def _list(self, made: pa.ListArray, declared: pa.DataType, level: Level) -> tuple[pa.Array, Doubt]:
        offsets = _offsets(made)
        inner = Elements(level, offsets)
        elements, doubt = self._part(made.values, declared.value_field, inner)
        return _rebuilt(made, declared, elements), _lifted(offsets, doubt)

    def _map(self, made: pa.MapArray, declared: pa.DataType, level: Level) -> tuple[pa.Array, Doubt]:
        offsets = _offsets(made)
        keys = made.keys if made.keys.type == pa.string() else made.keys.cast(pa.string())
        items, doubt = self._part(made.items, declared.item_field, Items(level, offsets, keys))
        entry = stored_type(declared).field(0).type
        entries = pa.Array.from_buffers(entry, len(items), [None], children=[keys, items])
        return _rebuilt(made, declared, entries), _lifted(offsets, doubt)

    def _part(self, made: pa.Array, declared: pa.Field, level: Level) -> tuple[pa.Array, Doubt]:
        """The elements of lists or maps: what does not fit in one is a doubt about the whole."""
        if not declared.nullable and made.null_count:
            self._missing(made.is_null().to_numpy(zero_copy_only=False), declared.type, level)
        return self._column(made, declared.type, level)

    def _why(self, made: pa.Array, at: int, declared: pa.DataType) -> Misfit:
        """The reason why a value does not fit, from inside lists, maps and structs."""
        types = pa.types
        if types.is_struct(made.type) and types.is_struct(declared):
            for each in declared:
                place = made.type.get_field_index(each.name)
                if place >= 0 and self._unfit(made.field(place), [at], each.type) is not None:
                    return self._why(made.field(place), at, each.type).within(each.name)
        if types.is_list(made.type) and types.is_list(declared):
            return self._why_inside(made, at, made.values, declared.value_type, None)
        if types.is_map(made.type) and types.is_map(declared):
            return self._why_inside(made, at, made.items, declared.item_type, made.keys)
        try:
            self._conversions.decide(made, at, declared)
        except Misfit as misfit:
            return misfit
        raise AssertionError("only what does not fit is asked for")

    def _why_inside(
        self, made: pa.Array, at: int, parts: pa.Array, declared: pa.DataType, keys: pa.Array | None
    ) -> Misfit:
        start, end = _offsets(made)[at : at + 2].tolist()
        doubt = self._unfit(parts, range(start, end), declared)
        assert doubt is not None, "only what does not fit is asked for"
        first = int(np.flatnonzero(doubt)[0])
        misfit = self._why(parts, start + first, declared)
        return misfit.within(first if keys is None else str(keys[start + first].as_py()))

    def _unfit(self, made: pa.Array, places: Sequence[int], declared: pa.DataType) -> Doubt:
        """Which values at some places do not fit, nothing noted."""
        quiet = _Fit(Rules("ignore", "rescue"), self._conversions, {})
        some = made.take(pa.array(places, pa.int64()))
        return quiet._column(some, declared, Elements(Rows(), np.arange(len(some) + 1)))[1]

    def _new(self, new: dict[str, pa.Array], known: set[str], level: Level) -> None:
        """What the rules say about fields that the table has not."""
        rule = self._rules.new_column
        if rule not in ("rescue", "dead_letter"):
            self._refuse_names(new, known, level)
            return
        for name, values in new.items():
            places = _present(values)
            if rule == "rescue":
                self._rescue(values, places, level.field(name))
            else:
                for at in places.tolist():
                    self._refuse(at, new_column(json_text(values, at)), level.field(name))

    def _refuse_names(self, new: dict[str, pa.Array], known: set[str], level: Level) -> None:
        """Refuse payloads with a value under a name that no column may have, also inside new columns."""
        taken = self._rules.taken if level.is_top else frozenset()
        seen: dict[str, tuple[str, set[int]]] = {}
        for name, values in new.items():
            if level.is_top and name in self._rules.renamed:
                self._refuse_inside(values, level.field(name))
                continue
            problem = name_problem(name, known, taken)
            other, both = seen.get(name.lower(), (name, set()))
            if problem is not None:
                for at in _present(values).tolist():
                    self._refuse(at, name_problem(name, known, taken) or problem, level.field(name))
            elif other != name:
                for at in both.intersection(_present(values).tolist()):
                    self._refuse(at, clash(other), level.field(name))
            elif sum(each.lower() == name.lower() for each in new) > 1:
                seen[name.lower()] = name, set(_present(values).tolist())
            self._refuse_inside(values, level.field(name))

    def _refuse_inside(self, values: pa.Array, level: Level) -> None:
        if pa.types.is_nested(values.type) and level.depth >= DEEPEST:
            for at in _present(values).tolist():
                self._refuse(at, too_deep_column(), level)
        elif pa.types.is_struct(values.type):
            members = zip((each.name for each in values.type), values.flatten(), strict=True)
            self._refuse_names(dict(members), set(), level)
        elif pa.types.is_list(values.type):
            self._refuse_inside(values.values, Elements(level, _offsets(values)))
        elif pa.types.is_map(values.type):
            self._refuse_inside(values.items, Items(level, _offsets(values), values.keys))

    def _missing(self, places: Mask, declared: pa.DataType, level: Level) -> None:
        for at in np.flatnonzero(places).tolist():
            message = f"expected {type_text(declared)} not null, got null"
            self._refuse(at, Misfit("missing_value", message), level)

    def _refuse(self, at: int, misfit: Misfit, level: Level) -> None:
        if level.row(at) not in self.misfits:
            misfit.path[:0] = level.path(at)
            self.misfits[level.row(at)] = misfit

    def _rescue(self, made: pa.Array, places: np.ndarray[Any, Any], level: Level) -> None:
        if not len(places):
            return
        texts = json_texts(made.take(pa.array(places)))
        for at, text in zip(places.tolist(), texts, strict=True):
            put(self.rescued.setdefault(level.row(at), {}), level.trail(at), text)


def _good(count: int, misfits: Misfits) -> Mask:
    good = np.ones(count, np.bool_)
    good[list(misfits)] = False
    return good


def _present(values: pa.Array) -> np.ndarray[Any, Any]:
    return np.flatnonzero(telling(values))


def _without(made: pa.StructArray, names: frozenset[str]) -> pa.StructArray:
    kept = [place for place, member in enumerate(made.type) if member.name not in names]
    kind = pa.struct([made.type.field(place) for place in kept])
    children = [made.field(place) for place in kept]
    return pa.Array.from_buffers(kind, len(made), [made.buffers()[0]], children=children)


def _offsets(made: pa.Array) -> np.ndarray[Any, Any]:
    assert made.offset == 0, "columns come whole from the format"
    offsets: np.ndarray[Any, Any] = made.offsets.to_numpy()
    return offsets


def _rebuilt(made: pa.Array, declared: pa.DataType, child: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(stored_type(declared), len(made), made.buffers()[:2], children=[child])


def _lifted(offsets: np.ndarray[Any, Any], doubt: Doubt) -> Doubt:
    """Doubt about elements as doubt about the lists that hold them."""
    if doubt is None:
        return None
    lists = np.zeros(len(offsets) - 1, np.bool_)
    lists[np.searchsorted(offsets, np.flatnonzero(doubt), side="right") - 1] = True
    return lists
