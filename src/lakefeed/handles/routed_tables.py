"""The tables of a route on the driver: which there are, what they hold together, and new ones."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from lakefeed.columns.column_types import stored_type, type_text
from lakefeed.columns.widening import merge_proposals
from lakefeed.errors import TableError
from lakefeed.handles.growth import refuse_new_columns
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.options.partition_by import check_partitioning
from lakefeed.pipeline.options.route import Key

_MOST_TABLES = 100


class RoutedTables:
    """The tables of one route, as one flow sees them.

    Events are decoded once for all of them, into the columns that any of them has. A column of one name has
    one type in all tables of a route.
    """

    def __init__(self, tables: Tables, name: str) -> None:
        self.front = tables.routes[name]
        """Stands for all tables: what it learns, refuses and begins with is the route's."""
        spec = tables.pipeline.tables[name]
        assert spec.routed is not None
        self.route = spec.routed
        self.most = spec.max_tables or _MOST_TABLES
        self._declared = spec.declared
        self._tables = tables
        self._handles: list[TableHandle] = []
        self._learned = pa.schema([])

    def find(self) -> list[TableHandle]:
        """Look for the tables that are there."""
        self._handles = list(self._tables.routed_handles(self.front.name).values())
        return self._handles

    def handle(self, key: Key) -> TableHandle | None:
        """The handle of the table for a value; None when the route has as many tables as it may."""
        known = {handle.id.key: handle for handle in self._handles}
        if key not in known and len(known) >= self.most:
            return None
        handle = known.get(key) or self._tables.routed_handle(self.front.name, key)
        if key not in known:
            self._handles.append(handle)
        return handle

    def columns(self) -> pa.Schema | None:
        """The columns to decode; None while none is known. Raises TableError if tables disagree."""
        merged = self._declared or pa.schema([])
        tables = [
            (handle.name, handle.columns() or pa.schema([])) for handle in self._handles if handle.exists
        ]
        for _, columns in tables:
            merged = merge_proposals(merged, columns)
        merged = merge_proposals(merged, self._learned)
        for name, columns in tables:
            self._refuse_other_types(name, columns, merged)
        if not len(merged):
            return None
        check_partitioning(self.front.partition_fields, merged)
        return merged

    def learn(self, proposal: pa.Schema) -> None:
        """Expect more columns; the tables get those that their events fill."""
        if self.columns() is not None:
            refuse_new_columns(self.front, proposal)
        self._learned = merge_proposals(self._learned, proposal)

    def columns_for(self, filled: pa.Schema) -> pa.Schema:
        """The columns of a new table whose first events fill these: the declared ones are always there."""
        every = self.columns() or pa.schema([])
        always = {*(self._declared or pa.schema([])).names}
        always |= {field.column for field in self.front.partition_fields}
        types = {field.name: field for field in self.without_made(filled)}
        return pa.schema(
            [
                field if field.name in always else types[field.name]
                for field in every
                if field.name in always or field.name in types
            ]
        )

    def without_made(self, columns: Iterable[pa.Field]) -> pa.Schema:
        """The columns that come from events."""
        return pa.schema([field for field in columns if field.name not in self.front.made])

    def _refuse_other_types(self, name: str, columns: pa.Schema, merged: pa.Schema) -> None:
        for field in columns:
            if not _holds(merged.field(field.name).type, field.type):
                raise TableError(
                    f"table {name}: column {field.name} is {type_text(field.type)} in this table and of "
                    f"another type in other tables of the route {self.route.template}.\n"
                    "Tables of one route share the types of their columns; correct that table, or move it."
                )


def _holds(outer: pa.DataType, inner: pa.DataType) -> bool:
    """Whether one type is the other, or a struct with more fields."""
    if pa.types.is_struct(outer) and pa.types.is_struct(inner):
        types = {field.name: field.type for field in outer}
        return all(field.name in types and _holds(types[field.name], field.type) for field in inner)
    if pa.types.is_list(outer) and pa.types.is_list(inner):
        return _holds(outer.value_type, inner.value_type)
    return bool(stored_type(outer).equals(stored_type(inner)))
