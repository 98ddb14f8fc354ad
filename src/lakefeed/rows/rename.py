"""Fields that have another name in the table than in the events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import pyarrow as pa

from lakefeed.columns.column_types import DECLARED, EVENT_NAME, event_name, naming, stored
from lakefeed.columns.naming import renames_inside
from lakefeed.rows import Rows, StepResult
from lakefeed.rows.unchanged import translated

_NO_EVENT = "\U0010ffff"
"""Ends the name of a nested field that no event fills, as the field of that name has another name since."""


def as_in_events(columns: pa.Schema, rename: Mapping[str, str]) -> pa.Schema:
    """The columns of a table under the names that events have for them; `rename` is from old to new.

    Without `left_columns`, which no event fills.
    """
    left = left_columns(columns, rename).names
    return pa.schema(_events_fields([one for one in columns if one.name not in left], rename, [()]))


def _events_fields(
    fields: Iterable[pa.Field], rename: Mapping[str, str], paths: Sequence[tuple[str, ...]]
) -> list[pa.Field]:
    own = {old: new for path in paths for old, new in renames_inside(rename, path).items()}
    old = {new: name for name, new in own.items()}
    found = []
    for one in fields:
        name, metadata = event_name(one), naming(one)
        metadata.pop(EVENT_NAME, None)
        if one.name in old and old[one.name] != name:
            name, metadata = old[one.name], metadata | {DECLARED: b"true"}
        elif name in own and () not in paths:
            name = f"{name}{_NO_EVENT}"
        steps = sorted({(*path, part) for path in paths for part in (name, one.name)})
        kind = _events_type(one.type, rename, steps)
        found.append(pa.field(name, kind, one.nullable, metadata or None))
    return found


def _events_type(
    kind: pa.DataType, rename: Mapping[str, str], paths: Sequence[tuple[str, ...]]
) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(_events_fields(kind, rename, paths))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_events_type(kind.value_type, rename, paths)))
    if pa.types.is_map(kind):
        item = kind.item_field
        return pa.map_(kind.key_type, item.with_type(_events_type(item.type, rename, paths)))
    return kind


def other_names(columns: Iterable[pa.Field]) -> dict[str, str]:
    """The fields of events that the columns of a table have another name for, with that."""
    return {event_name(one): one.name for one in columns if event_name(one) != one.name}


def _named(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Nested values with the names of the fields in a type, field by field."""
    if not pa.types.is_nested(kind) or _names_of(values.type) == _names_of(kind):
        return values
    if values.offset:
        values = pa.concat_arrays([values])
    if pa.types.is_struct(kind):
        children = [_named(values.field(at), one.type) for at, one in enumerate(kind)]
        return pa.Array.from_buffers(kind, len(values), values.buffers()[:1], children=children)
    if pa.types.is_list(kind):
        children = [_named(values.values, kind.value_type)]
    else:
        entries = [values.keys, _named(values.items, kind.item_type)]
        children = [pa.Array.from_buffers(kind.field(0).type, len(entries[0]), [None], children=entries)]
    return pa.Array.from_buffers(kind, len(values), values.buffers()[:2], children=children)


def _names_of(kind: pa.DataType) -> list[object]:
    fields = [kind.field(at) for at in range(kind.num_fields)]
    names = [one.name for one in fields] if pa.types.is_struct(kind) else []
    return [*names, *(_names_of(one.type) for one in fields)]


def left_columns(columns: pa.Schema, rename: Mapping[str, str]) -> pa.Schema:
    """Columns that a table has by the name of a field, or its cleaned name, that gets another name since."""
    return pa.schema(
        [
            field
            for field in columns
            if (event_name(field) in rename or field.name in rename) and field.name not in rename.values()
        ]
    )


def as_in_table(columns: pa.Schema, rename: Mapping[str, str]) -> pa.Schema:
    """The fields of events under the names that the table has for them."""
    return pa.schema([field.with_name(rename.get(field.name, field.name)) for field in columns])


class Rename:
    """Gives columns the names that the table has for them.

    `unchanged` is the column that lists columns by their names, if there is one: it lists the new names, and
    none of those that are `dropped`.
    """

    def __init__(
        self,
        rename: Mapping[str, str],
        dropped: Collection[str] = (),
        unchanged: str | None = None,
        columns: pa.Schema | None = None,
    ) -> None:
        self._rename, self._dropped, self._unchanged = rename, dropped, unchanged
        self._types = {one.name: one.type for one in stored(columns or pa.schema([]))}

    def __call__(self, rows: Rows) -> StepResult:
        """The same columns under other names."""
        batch = rows.batch
        at = batch.schema.get_field_index(self._unchanged) if self._unchanged else -1
        if at >= 0:
            batch = batch.set_column(at, batch.schema.field(at), translated(batch.column(at), self._columns))
        return StepResult(rows.of(self.batch(batch)))

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same columns under the names of the table, the fields inside them too."""
        schema = as_in_table(batch.schema, self._rename)
        kinds = [self._types.get(one.name, one.type) for one in schema]
        columns = [_named(values, kind) for values, kind in zip(batch.columns, kinds, strict=True)]
        fields = [one.with_type(values.type) for one, values in zip(schema, columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)) if columns else batch

    def _columns(self, name: str) -> list[str]:
        return [] if name in self._dropped else [self._rename.get(name, name)]
