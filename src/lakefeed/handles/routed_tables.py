"""The tables of a route on the driver: which there are, what they hold together, and new ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from lakefeed.columns.column_types import stored_type, type_text
from lakefeed.columns.naming import named_as
from lakefeed.columns.widening import merge_proposals
from lakefeed.errors import TableError
from lakefeed.events import Offsets, lowest
from lakefeed.handles.growth import refuse_new_columns
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.read_columns import read_columns
from lakefeed.handles.shaping import Shaping
from lakefeed.handles.table_plan import RoutedTable, Stamp, TablePlan
from lakefeed.handles.tables import Tables
from lakefeed.handles.widening import widenable
from lakefeed.pipeline.options.partition_by import check_partitioning
from lakefeed.pipeline.options.route import Key
from lakefeed.rows.conform import holds
from lakefeed.sources.held_positions import own_positions
from lakefeed.sources.subscription import has_types_by_stream, is_by_stream
from lakefeed.sql.projection import Projection
from lakefeed.tables.shape import Shape

_MOST_TABLES = 100


class RoutedTables:
    """The tables of one route, as one flow sees them.

    Events are decoded once for all of them, into the columns that any of them has. A column of one name has
    one type in all tables of a route, but where each table is that of one stream with types of its own.
    """

    def __init__(self, tables: Tables, name: str) -> None:
        self.front = tables.routes[name]
        """Stands for all tables: what it learns, refuses and begins with is the route's."""
        spec = tables.pipeline.tables[name]
        assert spec.routed is not None
        self.route = spec.routed
        self.most = spec.max_tables or _MOST_TABLES
        self.by_stream = is_by_stream(spec, tables.sources_of(spec))
        """Whether each table takes one stream, and has positions in that alone."""
        self.has_own_types = has_types_by_stream(spec, tables.sources_of(spec))
        """Whether each table has the columns of one stream, with the types that they have there."""
        self._declared = spec.declared
        self._tables = tables
        self.handles: list[TableHandle] = []
        """The tables that were found, and those that were made since."""
        self._learned = pa.schema([])

    def find(self) -> list[TableHandle]:
        """Look for the tables that are there."""
        self.handles = list(self._tables.routed_handles(self.front.name).values())
        return self.handles

    def handle(self, key: Key) -> TableHandle | None:
        """The handle of the table for a value; None when the route has as many tables as it may."""
        known = {handle.id.key: handle for handle in self.handles}
        if key not in known and len(known) >= self.most:
            return None
        handle = known.get(key) or self._tables.routed_handle(self.front.name, key)
        if key not in known:
            self.handles.append(handle)
        return handle

    def passed(self, source: str) -> Offsets:
        """Up to where all tables that were opened have read a source: which one an event is for is not known.

        A table that has no position in a partition has read nothing of it, unless it takes another stream.
        """
        pipeline = self._tables.pipeline
        found = [
            own_positions(pipeline, source, one.spec, one.table.transactions)
            for one in self.handles
            if one.exists and one.spec
        ]
        if self.by_stream:
            return lowest(found)
        held = [positions for positions in found if positions]
        partitions = {partition for positions in held for partition in positions}
        return {one: min(positions.get(one, 0) for positions in held) for one in partitions}

    def columns(self) -> pa.Schema | None:
        """The columns that tables of the route may have; None while none is known.

        Raises TableError if tables disagree.
        """
        if self.has_own_types:
            return None
        merged = self._made()
        for name, columns in self._existing():
            self._refuse_other_types(name, columns, merged)
        if not len(merged):
            return None
        check_partitioning(self.front.partition_fields, merged)
        return merged

    def events(self) -> pa.Schema | None:
        """The columns to decode; None while none is known."""
        if not self._shaping.spec.reshapes:
            return self.columns()
        merged = self._declared or pa.schema([])
        for handle in self.handles:
            if handle.exists:
                merged = merge_proposals(merged, handle.events() or pa.schema([]))
        merged = merge_proposals(merged, self._learned)
        return merged if len(merged) else None

    def projection(self) -> Projection | None:
        """`where`, `select` and `expect` over what is decoded for all tables."""
        events = self.events()
        return self._shaping.settled(events, None if events is None else self.columns())

    def kept(self) -> dict[str, str]:
        """The properties of each table that keep the columns of the events."""
        return self._shaping.kept(self.events())

    def learn(self, proposal: pa.Schema) -> None:
        """Expect more columns; the tables get those that their events fill."""
        if self.events() is not None and len(proposal):
            refuse_new_columns(self.front, proposal)
        before, self._learned = self._learned, merge_proposals(self._learned, proposal)
        try:
            events = self.events()
            self._shaping.projection(events)
            if events is not None and self._shaping.spec.reshapes:
                needed = self._shaping.needed(events)
                self._learned = pa.schema([field for field in needed if field.name in self._learned.names])
        except TableError:
            self._learned = before
            raise

    def plan(
        self,
        rows_from: Offsets,
        pending: Mapping[str, frozenset[Stamp]],
        routed: Mapping[Key, RoutedTable],
    ) -> TablePlan:
        """How tasks write to the tables of the route, given those that there are."""
        front, events, projection = self.front, self.events(), self.projection()
        if events is not None and self._shaping.spec.reshapes:
            # The front is never a table, and knows by itself only what `schema` declares.
            front.assumed = events
        plan = front.plan(None, rows_from, pending)
        is_open = events is not None and not front.has_exact_names
        plan = replace(
            plan,
            fixed=widenable(self._shaping.spec, events, {})[1] if is_open else {},
            columns=self.columns(),
            events=events if self._shaping.spec.reshapes else None,
            projection=projection,
            rename=front.rename_of(events),
            reads=read_columns(self._shaping.spec, front.rename_of(events), projection, plan.changes),
            rules=front.rules(events),
            route=self.route,
            routed=routed,
            reserved=self._tables.reserved(self.route),
            full=len(routed) >= self.most,
            by_stream=self.by_stream,
            own_types=self.has_own_types,
        )
        # What a table must have is known when it is made.
        return replace(plan, changes=front.change_plan(None, None)) if self.has_own_types else plan

    def member(self, handle: TableHandle, shape: Shape, rows_from: Offsets) -> RoutedTable:
        """How tasks write to one table of the route, which is there."""
        plan = handle.plan(shape, rows_from, {}) if self.has_own_types else None
        return RoutedTable(handle.path, handle.task_target(shape), rows_from, plan)

    def columns_for(self, filled: pa.Schema) -> pa.Schema:
        """The columns of a new table whose first events fill these: the declared ones are always there."""
        if self.has_own_types:
            declared = self._declared or pa.schema([])
            return pa.schema([*declared, *(one for one in filled if one.name not in declared.names)])
        every = self.columns() or pa.schema([])
        always = {*(self._declared or pa.schema([])).names}
        if self._shaping.spec.select:
            # What `select` names is in every table; what a `*` stands for, where events fill it.
            always = set() if self._shaping.grows else {*every.names}
        always |= {field.column for field in self.front.partition_fields}
        types = {field.name: field for field in self.without_made(filled)}
        return pa.schema(
            [
                field if field.name in always else types[field.name]
                for field in every
                if field.name in always or field.name in types
            ]
        )

    @property
    def _shaping(self) -> Shaping:
        assert self.front.shaping is not None
        return self.front.shaping

    def _existing(self) -> list[tuple[str, pa.Schema]]:
        return [(handle.name, handle.columns() or pa.schema([])) for handle in self.handles if handle.exists]

    def _made(self) -> pa.Schema:
        """The columns that the events of the route fill, whichever table they are for."""
        merged = pa.schema([]) if self._shaping.spec.select else self._declared or pa.schema([])
        for _, columns in self._existing():
            merged = merge_proposals(merged, columns)
        if not self._shaping.spec.select:
            return merge_proposals(merged, self._learned)
        events = self.events()
        if events is None or self._shaping.settled(events) is None:
            return merged
        # A wider column of the tables takes what `select` makes.
        have = {field.name: field.type for field in merged}
        made = self._shaping.made(events)
        new = [one for one in made if one.name not in have or not holds(have[one.name], one.type)]
        return merge_proposals(merged, pa.schema(new))

    def without_made(self, columns: Iterable[pa.Field]) -> pa.Schema:
        """The columns that come from events, with the names that these have for them."""
        own = [field for field in columns if field.name not in self.front.made]
        return pa.schema(own if self.has_own_types else named_as(own, self.columns() or ()))

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
