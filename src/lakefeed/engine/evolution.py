"""Changes of tables that events ask for: a first schema, new columns, a new table of a route."""

from __future__ import annotations

import pyarrow as pa

from lakefeed.columns.column_types import type_text
from lakefeed.columns.inferred import events_seen, inferred_lines
from lakefeed.engine.assignment import Assignments
from lakefeed.engine.run_events import SchemaInferred, TableChanged
from lakefeed.engine.start_positions import StartPositions
from lakefeed.errors import TableError
from lakefeed.events import Offsets
from lakefeed.handles.growth import refuse_new_columns, refuse_too_wide
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.table_plan import TableId
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.options.route import safe_value
from lakefeed.sources import SourceClient
from lakefeed.tables.rewrite.stored_defaults import fill, intend, literal
from lakefeed.tables.schema import additions

_MOST_ASKED = 3
"""How often events may ask for the same columns while no batch is committed: another writer may interfere."""


class Evolution:
    """Makes and alters the tables of one flow as its batches propose."""

    def __init__(self, tables: Tables, assignments: Assignments, start_positions: StartPositions) -> None:
        self._tables = tables
        self._assignments = assignments
        self._source = assignments.source
        self._start_positions = start_positions
        self._watch = assignments.watch
        self._commit_info = {"pipeline": tables.pipeline.name, "source": self._source, "kind": "evolve"}
        self._asked: dict[TableId, list[pa.Schema]] = {}
        self._asked_at = 0

    def apply(
        self,
        table: TableId,
        proposal: pa.Schema,
        client: SourceClient,
        start: Offsets,
        batches: int,
        returned: pa.Schema | None = None,
    ) -> None:
        """Change one table; `start` is where the batch began, `batches` how many were committed so far.

        `returned` are columns that a function of the user's has returned.
        """
        asked = pa.schema([*proposal, *(returned or ())])
        self._refuse_to_be_asked_again(table, asked, batches)
        if table.table in self._assignments.routes:
            self._evolve_route(table, proposal, client, start)
        else:
            self._evolve(self._tables.handles[table.table], proposal, client, returned)
        self._asked.setdefault(table, []).append(asked)

    def _refuse_to_be_asked_again(self, table: TableId, proposal: pa.Schema, batches: int) -> None:
        """Raise TableError when a table was changed, and events ask for the same again and again.

        A column that the table never gets would be added for ever.
        """
        if self._asked_at != batches:
            self._asked, self._asked_at = {}, batches
        if self._asked.get(table, []).count(proposal) >= _MOST_ASKED:
            columns = ", ".join(f"{field.name!r} {type_text(field.type)}" for field in list(proposal)[:3])
            raise TableError(
                f"table {table}: the same new columns were needed {_MOST_ASKED} times, although they were "
                f"added each time: "
                f"{columns}.\nName them in `drop` or declare them in `schema`, then start again."
            )

    def _evolve_route(
        self, table: TableId, proposal: pa.Schema, client: SourceClient, start: Offsets
    ) -> None:
        """Make a table of a route or give it columns; or remember columns until it shows whose they are."""
        route = self._assignments.routes[table.table]
        if not table.key:
            refuse_too_wide(table.table, route.events(), proposal)
            route.learn(proposal)
            self._assignments.refusals.inferred(table.table, proposal)
            return self._tell_inferred(route.front, proposal)
        handle = route.handle(table.key)
        if handle is None:
            return None
        if not handle.exists and handle.open(self._tables.pipeline.name) is None:
            columns = route.columns_for(proposal)
            self._start_positions.create(handle, columns, start, client.marks(), route.kept())
            return self._tell_inferred(handle, proposal) if route.has_own_types else None
        if route.has_own_types:
            return self._evolve(handle, proposal, client)
        handle.events_of_route = route.events()
        return self._add(handle, route.without_made(proposal), client)

    def _evolve(
        self,
        handle: TableHandle,
        proposal: pa.Schema,
        client: SourceClient,
        returned: pa.Schema | None = None,
    ) -> None:
        events = handle.events()
        refuse_too_wide(handle.name, events, proposal)
        if not handle.exists:
            if handle.learn(proposal, returned):
                # Its function has not returned anything yet.
                return self._tell_inferred(handle, proposal)
            columns, kept = handle.grown(proposal, returned)
            self._start_positions.create(
                handle, columns, self._start_positions.begin(client, handle), client.marks(), kept
            )
            self._assignments.refusals.inferred(handle.name, proposal)
            return self._tell_inferred(handle, proposal)
        if events is not None and len(proposal):
            refuse_new_columns(handle, proposal)
        if (
            returned is not None
            and handle.shaping
            and handle.shaping.returned(handle.shape, handle.columns())
        ):
            refuse_new_columns(handle, returned)
        return self._add(handle, proposal, client, returned)

    def _add(
        self,
        handle: TableHandle,
        proposal: pa.Schema,
        client: SourceClient,
        returned: pa.Schema | None = None,
    ) -> None:
        before = handle.table.schema
        self._intend(handle, [one.name for one in proposal if one.name not in before.names], client)
        for text in additions(before, handle.add(proposal, self._commit_info, returned)):
            self._watch(TableChanged(handle.name, text))
        with handle.lock:
            filled = fill(handle.table, self._commit_info)
        for column in filled:
            text = f"rows that were there before have the default of the database in the new column {column}"
            self._watch(TableChanged(handle.name, text))
        self._tell_inferred(handle, proposal)

    def _intend(self, handle: TableHandle, columns: list[str], client: SourceClient) -> None:
        """Keep what the source gives old rows in new columns: a copy of its table has them as well."""
        spec = handle.spec
        if spec is None or spec.mode != "upsert" or spec.reshapes or not columns:
            return
        own = {new: old for old, new in spec.rename.items()}
        streams = handle.id.key if spec.route else None
        known = client.stored_defaults(lambda one: safe_value(one) in streams if streams else spec.takes(one))
        found = {name: known[own.get(name, name)] for name in columns if own.get(name, name) in known}
        texts = {name: literal(value) for name, value in found.items()}
        for name in (name for name, text in texts.items() if text is None):
            text = f"the default of the new column {name} is not filled into rows that were there before"
            self._watch(TableChanged(handle.name, text))
        told = {name: text for name, text in texts.items() if text is not None}
        intend(handle.table, told, self._commit_info)

    def _tell_inferred(self, handle: TableHandle, proposal: pa.Schema) -> None:
        assert handle.spec is not None
        if handle.exists and handle.spec.select and (known := handle.events()) is not None:
            # Fields that `select` does not read are nobody's concern.
            proposal = pa.schema([field for field in proposal if field.name in known.names])
        if lines := inferred_lines(proposal, handle.spec.evolve.type_change):
            self._watch(SchemaInferred(handle.name, lines, events_seen(proposal)))
