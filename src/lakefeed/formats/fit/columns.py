"""Columns of nested types meet declared ones: structs, lists and maps, taken apart and put together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lakefeed.columns.column_types import stored_type
from lakefeed.formats.fit.conversions import Conversions
from lakefeed.formats.fit.doubt import Doubt, either, lifted
from lakefeed.formats.fit.paths import Elements, Level


class ColumnFitter:
    """Fits whole columns; a row with a value that does not fit, or has to be looked at, is in doubt."""

    def __init__(self, conversions: Conversions) -> None:
        self.conversions = conversions

    def rows(self, made: pa.StructArray, declared: pa.DataType) -> tuple[pa.StructArray, Doubt]:
        """The payloads as stored, and those in doubt."""
        return self.struct(made, declared, Level())

    def struct(
        self, made: pa.StructArray, declared: pa.DataType, level: Level
    ) -> tuple[pa.StructArray, Doubt]:
        """The structs as stored. Fields that are not declared are left out."""
        assert made.offset == 0, "a column is not a slice here"
        members = dict(zip((each.name for each in made.type), made.flatten(), strict=True))
        live = made.is_valid().to_numpy(zero_copy_only=False) if made.null_count else None
        children: list[pa.Array] = []
        doubt: Doubt = None
        for each in declared:
            child = members.pop(each.name, None)
            fitted, unfit = self.member(pa.nulls(len(made)) if child is None else child, each, level, live)
            children.append(fitted)
            doubt = either(doubt, unfit)
        if members:
            self.new_members(members, declared, level)
        validity = made.buffers()[0] if made.null_count else None
        rows = pa.Array.from_buffers(stored_type(declared), len(made), [validity], children=children)
        return rows, doubt

    def member(self, made: pa.Array, declared: pa.Field, level: Level, live: Doubt) -> tuple[pa.Array, Doubt]:
        """A field of the structs of a level, of which some may be null."""
        column, doubt = self.part(made, declared, level.field(declared.name))
        return column, doubt if doubt is None or live is None else doubt & live

    def part(self, made: pa.Array, declared: pa.Field, level: Level) -> tuple[pa.Array, Doubt]:
        """The elements of lists, the items of maps or the values of a field: null only where that may be."""
        column, doubt = self.column(made, declared.type, level)
        if not declared.nullable and made.null_count:
            doubt = either(doubt, made.is_null().to_numpy(zero_copy_only=False))
        return column, doubt

    def new_members(self, new: dict[str, pa.Array], known: pa.DataType, level: Level) -> None:
        """What happens to fields that the declared struct has not."""

    def column(self, made: pa.Array, declared: pa.DataType, level: Level) -> tuple[pa.Array, Doubt]:
        """The column as stored, null where it does not fit, and where that is."""
        types = pa.types
        if types.is_null(made.type):
            return pa.nulls(len(made), stored_type(declared)), None
        if types.is_struct(made.type) and types.is_struct(declared):
            return self.struct(made, declared, level)
        if types.is_list(made.type) and types.is_list(declared):
            offsets = offsets_of(made)
            elements, doubt = self.part(made.values, declared.value_field, Elements(level, offsets))
            return rebuilt(made, declared, elements), lifted(offsets, doubt)
        if types.is_map(made.type) and types.is_map(declared):
            return self._map(made, declared, level)
        return self.plain(made, declared)

    def plain(self, made: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
        """A column that is not taken apart."""
        convert = self.conversions.conversion(made.type, declared)
        if convert is not None:
            return convert(made, declared)
        doubt = made.is_valid().to_numpy(zero_copy_only=False)
        return pa.nulls(len(made), stored_type(declared)), doubt if doubt.any() else None

    def _map(self, made: pa.MapArray, declared: pa.DataType, level: Level) -> tuple[pa.Array, Doubt]:
        offsets = offsets_of(made)
        keys = made.keys if made.keys.type == pa.string() else made.keys.cast(pa.string())
        items, doubt = self.part(made.items, declared.item_field, Elements(level, offsets, keys))
        entry = stored_type(declared).field(0).type
        entries = pa.Array.from_buffers(entry, len(items), [None], children=[keys, items])
        return rebuilt(made, declared, entries), lifted(offsets, doubt)


def is_whole(made: pa.Array) -> bool:
    """Whether no struct, list or map in the column is a slice of a longer one."""
    if not pa.types.is_nested(made.type):
        return True
    if pa.types.is_struct(made.type):
        parts = [made.field(index) for index in range(made.type.num_fields)]
    elif pa.types.is_map(made.type):
        parts = [made.keys, made.items]
    else:
        parts = [made.values]
    return made.offset == 0 and all(map(is_whole, parts))


def offsets_of(made: pa.Array) -> np.ndarray[Any, Any]:
    """Where each list or map begins among the elements, and where the last one ends."""
    assert made.offset == 0, "a column is not a slice here"
    offsets: np.ndarray[Any, Any] = made.offsets.to_numpy()
    return offsets


def rebuilt(made: pa.Array, declared: pa.DataType, child: pa.Array) -> pa.Array:
    """Lists or maps as stored, with other elements or entries."""
    return pa.Array.from_buffers(stored_type(declared), len(made), made.buffers()[:2], children=[child])
