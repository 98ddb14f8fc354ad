"""The fitter: columns that a writer made meet the schema of a table, under the rules of that table.

For every format and every source that knows the types of its columns before it looks at values. Whole
columns are looked at first, and only then the values that are in doubt. JSON decides payload by payload what
its own fast path leaves in doubt; both use the conversions, values and names of this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import DEEPEST, type_text
from lakefeed.errors import TableError
from lakefeed.formats import Decoded, Rules
from lakefeed.formats.fit.columns import ColumnFitter, is_whole, offsets_of
from lakefeed.formats.fit.conversions import Conversions
from lakefeed.formats.fit.doubt import Doubt
from lakefeed.formats.fit.json_text import json_text, json_texts, shown_json
from lakefeed.formats.fit.names import clash, name_misfit, new_column, spellings, too_deep_column
from lakefeed.formats.fit.new_columns import Proposals, telling
from lakefeed.formats.fit.paths import Elements, Level
from lakefeed.formats.fit.rescue import Rescued, put, rescued_column
from lakefeed.formats.fit.spellings import Clash, spellings_of, two_spellings
from lakefeed.formats.fit.type_rules import refused_keys
from lakefeed.formats.refusal import Misfit, Misfits
from lakefeed.text import yaml_mapping

_Indexes = np.ndarray[Any, Any]


class Fitter:
    """Fits what writers made into one schema. Lives on a worker, used many times."""

    def __init__(self, schema: pa.Schema, rules: Rules, conversions: Conversions | None = None) -> None:
        self._schema = schema
        self._rules = rules
        self._conversions = conversions or Conversions()
        self._proposals = Proposals(rules)
        self._spellings = spellings_of(schema, rules)

    def fit(
        self,
        made: pa.StructArray,
        misfits: Mapping[int, Misfit] | None = None,
        types: pa.Schema | None = None,
        rescued: Mapping[int, Rescued] | None = None,
    ) -> Decoded:
        """Fit one struct for each payload or row; one that is a misfit already has null for its values.

        A null struct or list holds no values. `types` says what to propose for a column that was read as
        another type than it is meant to be, `rescued` what else did not fit. Raises TableError where a column
        is a map with keys that no table holds.
        """
        if not is_whole(made):
            made = pa.concat_arrays([made])
        work = _Fit(self._rules, self._conversions, dict(misfits or {}))
        made = self._named(made, work.clash)
        self._refuse_keys(made.type)
        rows, _ = work.rows(made, pa.struct(list(self._schema)))
        good = None
        if work.misfits:
            good = np.ones(len(made), np.bool_)
            good[list(work.misfits)] = False
            rows, made = rows.filter(pa.array(good)), made.filter(pa.array(good))
        for at, parts in (rescued or {}).items():
            work.rescued.setdefault(at, {}).update(parts)
        kept = range(len(made)) if good is None else np.flatnonzero(good).tolist()
        return Decoded(
            pa.RecordBatch.from_struct_array(rows),
            [work.misfits[at].refused(at) for at in sorted(work.misfits)],
            self._proposed(made, types) if len(made) else None,
            rescued_column(work.rescued, kept) if work.rescued else None,
        )

    def _named(self, made: pa.StructArray, clash: Clash) -> pa.StructArray:
        """The fields under the names of the columns, without those that are dropped."""
        if self._spellings is not None:
            made = self._spellings.array(made, Level(), clash)
        return _without(made, self._rules.dropped) if self._rules.dropped else made

    def _refuse_keys(self, made: pa.StructType) -> None:
        """Raise TableError for a column with map keys that no table holds."""
        adds = self._rules.new_column in ("add", "fail")
        for column in made:
            at = self._schema.get_field_index(column.name)
            known = self._schema.field(at).type if at >= 0 else None
            if (key := refused_keys(column.type, known, adds)) is not None:
                raise TableError(
                    f"column {column.name} has a map with keys of type {type_text(key)}; tables have maps "
                    "with keys of type string only, and other keys are not turned into text.\n"
                    f"Declare it as JSON text, `schema: {yaml_mapping({column.name: 'json'})}`, "
                    f"or leave it out, `drop: [{column.name}]`."
                )

    def _proposed(self, made: pa.StructArray, types: pa.Schema | None = None) -> pa.Schema | None:
        if self._rules.new_column not in ("add", "fail"):
            return None
        return self._proposals.of(made, self._schema, types) or None

    def nothing(self, columns: pa.Schema | None = None) -> Decoded:
        """What no payloads become; `columns` are those that they would have."""
        if not columns:
            return self.fit(pa.array([], pa.struct([])))
        none = self._named(pa.array([], pa.struct(list(columns))), lambda *_: None)
        return replace(self.nothing(), unknown=self._proposed(none))


class _Fit(ColumnFitter):
    """One pass over the columns of some payloads. Notes by the index of the payload what did not fit."""

    def __init__(self, rules: Rules, conversions: Conversions, misfits: Misfits) -> None:
        super().__init__(conversions)
        self._rules = rules
        self._strict = rules.names == "strict"
        self.misfits = misfits
        self.rescued: dict[int, Rescued] = {}
        self._new: list[tuple[dict[str, pa.Array], pa.DataType, Level]] = []

    def clash(self, level: Level, indexes: _Indexes, _: str, name: str) -> None:
        """Refuse payloads that have a field in two spellings."""
        for at in indexes.tolist():
            self._refuse(at, two_spellings(name), level)

    def rows(self, made: pa.StructArray, declared: pa.DataType) -> tuple[pa.StructArray, Doubt]:
        """The payloads as stored; a value that does not fit is noted before a new field is."""
        found = super().rows(made, declared)
        for new, known, level in self._new:
            self._judge_new(new, known, level)
        return found

    def member(self, made: pa.Array, declared: pa.Field, level: Level, live: Doubt) -> tuple[pa.Array, Doubt]:
        """The field as stored; in lists, where something inside that was not noted here does not fit."""
        inside = level.field(declared.name)
        self._refuse_nulls(made, declared, inside, live)
        column, doubt = self.column(made, declared.type, inside)
        if doubt is None:
            return column, None
        if self._rules.type_change == "rescue":
            if level.in_list:
                # A list is kept or rescued whole, by the field that holds it.
                return column, doubt
            if declared.nullable:
                self._rescue(made, np.flatnonzero(doubt), inside)
                return column.take(pa.array(np.arange(len(made)), mask=doubt)), None
        for at in np.flatnonzero(doubt).tolist():
            self._refuse(at, self._why(made, at, declared.type), inside)
        return column, None

    def part(self, made: pa.Array, declared: pa.Field, level: Level) -> tuple[pa.Array, Doubt]:
        """The elements of lists or maps: what does not fit in one is a doubt about the whole."""
        self._refuse_nulls(made, declared, level, None)
        return self.column(made, declared.type, level)

    def plain(self, made: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
        """The column with what is in doubt decided, value by value."""
        column, doubt = super().plain(made, declared)
        if doubt is None or self.conversions.conversion(made.type, declared) is None:
            return column, doubt
        decided: dict[int, Any] = {}
        for at in np.flatnonzero(doubt).tolist():
            try:
                decided[at] = self.conversions.decide(made, at, declared)
            except Misfit:
                continue
        if not decided:
            return column, doubt
        mask = np.zeros(len(column), np.bool_)
        mask[list(decided)] = True
        column = pc.replace_with_mask(column, mask, pa.array(list(decided.values()), column.type))
        left = doubt & ~mask
        return column, left if left.any() else None

    def new_members(self, new: dict[str, pa.Array], known: pa.DataType, level: Level) -> None:
        """New fields wait until all others have been fitted."""
        self._new.append((new, known, level))

    def _judge_new(self, new: dict[str, pa.Array], known: pa.DataType, level: Level) -> None:
        """What the rules say about fields that the table has not."""
        rule = self._rules.new_column
        if rule in ("add", "fail"):
            self._refuse_names(new, spellings(each.name for each in known), level)
        elif rule != "ignore":
            for name, values in new.items():
                indexes = _present(values)
                if rule == "rescue":
                    self._rescue(values, indexes, level.field(name))
                    continue
                for at in indexes.tolist():
                    self._refuse(at, new_column(shown_json(json_text(values, at))), level.field(name))

    def _why(self, made: pa.Array, at: int, declared: pa.DataType) -> Misfit:
        """The reason why a value does not fit, from inside lists, maps and structs."""
        types = pa.types
        if types.is_struct(made.type) and types.is_struct(declared):
            for each in declared:
                index = made.type.get_field_index(each.name)
                if index >= 0 and self._unfit(made.field(index), [at], each.type) is not None:
                    return self._why(made.field(index), at, each.type).within(each.name)
        if types.is_list(made.type) and types.is_list(declared):
            return self._why_inside(made, at, made.values, declared.value_type, None)
        if types.is_map(made.type) and types.is_map(declared):
            return self._why_inside(made, at, made.items, declared.item_type, made.keys)
        try:
            self.conversions.decide(made, at, declared)
        except Misfit as misfit:
            return misfit
        raise AssertionError("only what does not fit is asked for")

    def _why_inside(
        self, made: pa.Array, at: int, parts: pa.Array, declared: pa.DataType, keys: pa.Array | None
    ) -> Misfit:
        start, end = offsets_of(made)[at : at + 2].tolist()
        doubt = self._unfit(parts, range(start, end), declared)
        assert doubt is not None, "only what does not fit is asked for"
        first = int(np.flatnonzero(doubt)[0])
        misfit = self._why(parts, start + first, declared)
        return misfit.within(first if keys is None else str(keys[start + first].as_py()))

    def _unfit(self, made: pa.Array, indexes: Sequence[int], declared: pa.DataType) -> Doubt:
        """Which values at some indexes do not fit, nothing noted."""
        quiet = _Fit(Rules("ignore", "rescue"), self.conversions, {})
        some = made.take(pa.array(indexes, pa.int64()))
        return quiet.column(some, declared, Elements(Level(), np.arange(len(some) + 1)))[1]

    def _refuse_names(self, new: dict[str, pa.Array], known: dict[str, str], level: Level) -> None:
        """Refuse payloads with a value under a name that no column may have, also inside new columns."""
        taken = self._rules.taken if level.is_top else frozenset()
        seen: dict[str, tuple[str, set[int]]] = {}
        for name, values in new.items():
            inside = level.field(name)
            if level.is_top and name in self._rules.renamed:
                self._refuse_inside(values, inside)
                continue
            other, both = seen.get(name.lower(), (name, set()))
            misfit = name_misfit(name, known, taken, strict=self._strict)
            if misfit:
                for at in _present(values).tolist():
                    # One for each payload: it gets the path there.
                    self._refuse(at, Misfit(misfit.code, misfit.message), inside)
            elif not self._strict:
                pass
            elif other != name:
                for at in both.intersection(_present(values).tolist()):
                    self._refuse(at, clash(other), inside)
            elif sum(each.lower() == name.lower() for each in new) > 1:
                seen[name.lower()] = name, set(_present(values).tolist())
            self._refuse_inside(values, inside)

    def _refuse_inside(self, values: pa.Array, level: Level) -> None:
        if pa.types.is_nested(values.type) and level.depth >= DEEPEST:
            for at in _present(values).tolist():
                self._refuse(at, too_deep_column(), level)
        elif pa.types.is_struct(values.type):
            members = zip((each.name for each in values.type), values.flatten(), strict=True)
            self._refuse_names(dict(members), {}, level)
        elif pa.types.is_list(values.type):
            self._refuse_inside(values.values, Elements(level, offsets_of(values)))
        elif pa.types.is_map(values.type):
            self._refuse_inside(values.items, Elements(level, offsets_of(values), values.keys))

    def _refuse_nulls(self, made: pa.Array, declared: pa.Field, level: Level, live: Doubt) -> None:
        if declared.nullable or not made.null_count:
            return
        absent = made.is_null().to_numpy(zero_copy_only=False)
        for at in np.flatnonzero(absent if live is None else absent & live).tolist():
            message = f"expected {type_text(declared.type)} not null, got null"
            self._refuse(at, Misfit("missing_value", message), level)

    def _refuse(self, at: int, misfit: Misfit, level: Level) -> None:
        if level.row(at) not in self.misfits:
            misfit.path[:0] = level.path(at)
            self.misfits[level.row(at)] = misfit

    def _rescue(self, made: pa.Array, indexes: _Indexes, level: Level) -> None:
        if not len(indexes):
            return
        texts = json_texts(made.take(pa.array(indexes)))
        for at, text in zip(indexes.tolist(), texts, strict=True):
            put(self.rescued.setdefault(level.row(at), {}), level.steps(at), text)


def _present(values: pa.Array) -> _Indexes:
    return np.flatnonzero(telling(values))


def _without(made: pa.StructArray, names: frozenset[str]) -> pa.StructArray:
    kept = [index for index, member in enumerate(made.type) if member.name not in names]
    kind = pa.struct([made.type.field(index) for index in kept])
    children = [made.field(index) for index in kept]
    return pa.Array.from_buffers(kind, len(made), [made.buffers()[0]], children=children)
