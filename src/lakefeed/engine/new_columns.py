"""New columns of a table that is there: those that events bring, and those that its SQL reads by now."""

from __future__ import annotations

import pyarrow as pa

from lakefeed.columns.column_types import event_name
from lakefeed.columns.inferred import events_seen, inferred_lines
from lakefeed.columns.naming import cleaned_names, cleaned_text
from lakefeed.engine.assignment import Assignments
from lakefeed.engine.run_events import SchemaInferred, TableChanged
from lakefeed.errors import SqlError
from lakefeed.handles.growth import coming_columns, refuse_too_wide
from lakefeed.handles.handle import COPIES, TableHandle
from lakefeed.handles.modes import open_until
from lakefeed.handles.routed_tables import RoutedTables
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.options.route import safe_value
from lakefeed.sources import SourceClient
from lakefeed.tables.rewrite.stored_defaults import fill, intend, literal
from lakefeed.tables.schema import additions
from lakefeed.tables.table import LakeTable


def learn_original_names(handle: TableHandle, client: SourceClient) -> None:
    """Let a table that keeps names know those of the source, which events do not have."""
    spec = handle.spec
    if spec is not None and spec.keeps_names and handle.has_exact_names:
        streams = handle.id.key if spec.route else None
        handle.original_names = client.original_names(
            lambda one: safe_value(one) in streams if streams else spec.takes(one)
        )


class NewColumns:
    """Adds columns to the tables of one flow."""

    def __init__(self, tables: Tables, assignments: Assignments) -> None:
        self._pipeline, self._watch = tables.pipeline.name, assignments.watch
        self._commit_info = {"pipeline": self._pipeline, "source": assignments.source, "kind": "evolve"}

    def open(self, handle: TableHandle, client: SourceClient) -> LakeTable | None:
        """Open a table; columns that its SQL reads and that only its stream has so far are added.

        Events bring them, but not before SQL that is wrong without them has stopped the table.
        """
        try:
            return handle.open(self._pipeline)
        except SqlError as error:
            coming = coming_columns(handle, client, handle.events()) if error.may_come else None
            if coming is None:
                raise
            refuse_too_wide(handle, handle.events(), coming)
            self.add(handle, coming, client)
        return handle.open(self._pipeline)

    def beginning(self, handle: TableHandle, client: SourceClient) -> tuple[pa.Schema, dict[str, str]] | None:
        """`handle.beginning()`, with the columns of the stream where the SQL of the table reads them."""
        try:
            return handle.beginning()
        except SqlError as error:
            coming = coming_columns(handle, client, handle.events()) if error.may_come else None
            if coming is None:
                raise
        refuse_too_wide(handle, handle.events(), coming)
        handle.assumed = coming
        try:
            return handle.beginning()
        finally:
            handle.assumed = pa.schema([])

    def project(self, route: RoutedTables, client: SourceClient) -> None:
        """Raise SqlError for wrong SQL of a route; it learns the columns of streams that its SQL reads."""
        try:
            route.projection()
        except SqlError as error:
            coming = coming_columns(route.front, client, route.events()) if error.may_come else None
            if coming is None:
                raise
            refuse_too_wide(route.front, route.events(), coming)
            route.learn(coming)

    def add(
        self,
        handle: TableHandle,
        proposal: pa.Schema,
        client: SourceClient,
        returned: pa.Schema | None = None,
    ) -> None:
        """Add the proposed columns that the table lacks, with what rows that are there have in them.

        `returned` are columns that a function of the user's has returned.
        """
        before = handle.table.schema
        self._intend(handle, [one for one in proposal if one.name not in before.names], client)
        for text in additions(before, handle.add(proposal, self._commit_info, returned)):
            self._watch(TableChanged(handle.name, text))
        with handle.lock:
            filled = fill(handle.table, self._commit_info, open_until(handle.spec) if handle.spec else None)
        for column in filled:
            text = f"rows that were there before have the default of the database in the new column {column}"
            self._watch(TableChanged(handle.name, text))
        self.tell(handle, proposal)

    def _intend(self, handle: TableHandle, columns: list[pa.Field], client: SourceClient) -> None:
        """Keep what the source gives old rows in new columns: a copy of its table has them as well."""
        spec = handle.spec
        if spec is None or spec.mode not in COPIES or not columns:
            return
        own = {new: old for old, new in spec.rename.items()}
        streams = handle.id.key if spec.route else None
        known = client.stored_defaults(lambda one: safe_value(one) in streams if streams else spec.takes(one))
        found = {one: known[name] for one in columns if (name := own.get(one.name, event_name(one))) in known}
        # What a function or an expression would have made of it is not known.
        is_same = spec.python is None and "*" in (spec.select or "*")
        texts = {one.name: literal(value, one.type) if is_same else None for one, value in found.items()}
        for name in (name for name, text in texts.items() if text is None):
            text = f"the default of the new column {name} is not filled into rows that were there before"
            self._watch(TableChanged(handle.name, text))
        told = {name: text for name, text in texts.items() if text is not None}
        intend(handle.table, told, self._commit_info)

    def tell(self, handle: TableHandle, proposal: pa.Schema) -> None:
        """Tell the types of columns that were inferred."""
        assert handle.spec is not None
        if handle.exists and handle.spec.select and (known := handle.events()) is not None:
            # Fields that `select` does not read are nobody's concern.
            proposal = pa.schema([field for field in proposal if field.name in known.names])
        if names := dict(cleaned_names(proposal)):
            self._watch(TableChanged(handle.name, cleaned_text(names)))
        if lines := inferred_lines(proposal, handle.spec.evolve.type_change):
            self._watch(SchemaInferred(handle.name, lines, events_seen(proposal)))
