"""Fields that a writer has and a table has not: which can become columns, and what they are proposed as."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from lakefeed.columns.column_types import DEEPEST, LARGEST_PRECISION, TIMESTAMP
from lakefeed.columns.evidence import is_quiet
from lakefeed.formats import Rules
from lakefeed.formats.fit.names import name_misfit, spellings
from lakefeed.formats.fit.type_rules import is_binary, is_text


class Proposals:
    """Proposes new columns: all that a writer knows or, where a table stops at them, those with a value.

    To add what a writer knows all at once costs one repeated batch, not one for each field that gets its
    first value later.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._by_value = rules.new_column == "fail"
        self._strict = rules.names == "strict"

    def of(
        self, made: pa.StructArray, known: Iterable[pa.Field], types: pa.Schema | None = None
    ) -> pa.Schema:
        """The new columns, and new fields inside known ones; `types` has those that were not read as such."""
        return pa.schema(self._fields(made, known, {field.name: field.type for field in types or ()}, 0))

    def _fields(
        self, made: pa.StructArray, known: Iterable[pa.Field], better: Mapping[str, pa.DataType], level: int
    ) -> list[pa.Field]:
        types = {field.name: field.type for field in known}
        others, spelled = spellings(types), Counter(field.name.lower() for field in made.type)
        taken, renamed = (self._rules.taken, self._rules.renamed) if level == 0 else ((), ())
        fields: list[pa.Field] = []
        for member, values in zip(made.type, made.flatten(), strict=True):
            name, kind = member.name, better.get(member.name, member.type)
            needs_value = self._by_value or spelled[name.lower()] > 1
            if name in types:
                inside = self._inside(values, types[name], level + 1)
                fields += [pa.field(name, inside)] if inside else []
            elif is_quiet(kind) or (
                name not in renamed and name_misfit(name, others, taken, strict=self._strict)
            ):
                continue
            elif not needs_value or telling(values).any():
                inner = proposed_type(kind, DEEPEST - level, strict=self._strict)
                fields.append(pa.field(name, inner))
        return [field for field in fields if not is_quiet(field.type)]

    def _inside(self, values: pa.Array, known: pa.DataType, level: int) -> pa.DataType | None:
        """What is new inside a known column, in its shape; None if nothing is, or it is no such column."""
        if pa.types.is_struct(known) and pa.types.is_struct(values.type):
            fields = self._fields(values, known, {}, level)
            return pa.struct(fields) if fields else None
        if pa.types.is_list(known) and pa.types.is_list(values.type):
            inner = self._inside(values.flatten(), known.value_type, level + 1)
            return pa.list_(pa.field("element", inner)) if inner else None
        if pa.types.is_map(known) and pa.types.is_map(values.type):
            inner = self._inside(values.items, known.item_type, level + 1)
            return pa.map_(pa.string(), inner) if inner else None
        return None


def proposed_type(made: pa.DataType, room: int = DEEPEST, *, strict: bool = True) -> pa.DataType:
    """The column that a table gets for what a writer made; what it cannot hold is left out.

    These are fields with names that no column may have, and all that is nested deeper than there is room.
    """
    if pa.types.is_nested(made) and not room:
        return pa.null()
    if pa.types.is_struct(made):
        good = [one for one in made if not name_misfit(one.name, {}, strict=strict)]
        fields = [pa.field(one.name, proposed_type(one.type, room - 1, strict=strict)) for one in good]
        return pa.struct([field for field in fields if not is_quiet(field.type)])
    if pa.types.is_list(made):
        return pa.list_(pa.field("element", proposed_type(made.value_type, room - 1, strict=strict)))
    if pa.types.is_map(made):
        return pa.map_(pa.string(), proposed_type(made.item_type, room - 1, strict=strict))
    if pa.types.is_timestamp(made):
        return TIMESTAMP
    if pa.types.is_decimal256(made):
        return pa.decimal128(LARGEST_PRECISION, min(made.scale, LARGEST_PRECISION))
    if is_text(made):
        return pa.string()
    return pa.binary() if is_binary(made) else made


def telling(values: pa.Array) -> np.ndarray[Any, Any]:
    """Which values say something: null does not, nor does what is empty or holds nothing but such."""
    valid: np.ndarray[Any, Any] = values.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_struct(values.type):
        members = [telling(member) for member in values.flatten()]
        return valid & np.logical_or.reduce(members) if members else np.zeros(len(values), np.bool_)
    if pa.types.is_list(values.type) or pa.types.is_map(values.type):
        inner = values.values if pa.types.is_list(values.type) else values.items
        offsets = values.offsets.to_numpy()
        indexes = np.flatnonzero(telling(inner))
        owners = np.searchsorted(
            offsets, indexes[(indexes >= offsets[0]) & (indexes < offsets[-1])], side="right"
        )
        some = np.zeros(len(values), np.bool_)
        some[owners - 1] = True
        return valid & some
    return valid
