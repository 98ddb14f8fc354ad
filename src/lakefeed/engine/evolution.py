"""Changes of tables that events ask for: a first schema, new columns, a new table of a route."""

from __future__ import annotations

import pyarrow as pa

from lakefeed.columns.column_types import type_text
from lakefeed.engine.assignment import Assignments
from lakefeed.engine.faultpoints import passing
from lakefeed.engine.followed_types import follow, follow_with_rows, split
from lakefeed.engine.new_columns import NewColumns, learn_original_names
from lakefeed.engine.run_events import TableChanged
from lakefeed.engine.start_positions import StartPositions
from lakefeed.errors import TableError
from lakefeed.events import Offsets
from lakefeed.handles.growth import refuse_new_columns, refuse_too_wide
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.table_plan import TableId
from lakefeed.handles.tables import Tables
from lakefeed.handles.widening import widen
from lakefeed.pipeline.options.route import safe_value
from lakefeed.rows.rename import as_in_table
from lakefeed.sources import SourceClient, source_of

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
        self._new_columns = NewColumns(tables, assignments)
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
        wider: pa.Schema | None = None,
    ) -> None:
        """Change one table; `start` is where the batch began, `batches` how many were committed so far.

        `returned` are columns that a function of the user's has returned, `wider` columns in the types that
        they need.
        """
        asked = pa.schema([*proposal, *(returned or ()), *(wider or ())])
        self._refuse_to_be_asked_again(table, asked, batches)
        self._asked.setdefault(table, []).append(asked)
        if wider is not None:
            self._widen(self._tables.handles[table.table], wider)
            if not len(proposal) and returned is None:
                return
        proposal = self._named(table, proposal, client)
        proposal, is_done = self._follow_types(table, proposal, client)
        if is_done:
            return
        if table.table in self._assignments.routes:
            self._evolve_route(table, proposal, client, start)
        else:
            self._evolve(self._tables.handles[table.table], proposal, client, returned)

    def _widen(self, handle: TableHandle, columns: pa.Schema) -> None:
        """Give columns of a table the types that events need, in one commit."""
        passing("widening_started")
        widen(
            handle,
            columns,
            self._commit_info,
            lambda text: self._watch(TableChanged(handle.name, text)),
            lambda: passing("widening_written"),
        )
        passing("widening_committed")

    def _named(self, table: TableId, proposal: pa.Schema, client: SourceClient) -> pa.Schema:
        """The columns for the fields that events have beyond those of the table."""
        route = self._assignments.routes.get(table.table)
        if route is None or table.key:
            handle = self._tables.handles[table.table] if route is None else route.handle(table.key)
            if handle is None:
                return proposal
            if handle.exists:
                # The flow of another source may have given a field a name meanwhile.
                handle.table.refresh()
            learn_original_names(handle, client)
            return handle.named(proposal, handle.events())
        return route.front.named(proposal, route.events())

    def _follow_types(
        self, table: TableId, proposal: pa.Schema, client: SourceClient
    ) -> tuple[pa.Schema, bool]:
        """Give columns the types of their stream; what else is proposed, and whether that is nothing."""
        handle = self._tables.handles.get(str(table))
        has_types = source_of(self._tables.pipeline, self._source).types_by_stream
        if handle is None or not handle.exists or handle.spec is None or not has_types:
            return proposal, False
        columns, others = split(handle, proposal)
        if not columns:
            return proposal, False
        streams = handle.id.key if handle.spec.route else None
        takes = handle.spec.takes
        found = client.column_types(lambda one: safe_value(one) in streams if streams else takes(one))
        current = as_in_table(found[0], handle.rename) if len(found) == 1 else None
        if handle.is_replaced and current is not None:
            texts = follow_with_rows(handle, columns, current)
        else:
            texts = follow(handle, columns, current, {**self._commit_info, "kind": "replace"})
        for text in texts:
            self._watch(TableChanged(handle.name, text))
        return others, not len(others)

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
            route.learn(proposal)
            self._assignments.refusals.inferred(table.table, proposal)
            return self._new_columns.tell(route.front, proposal)
        handle = route.handle(table.key)
        if handle is None:
            return None
        refuse_too_wide(handle, handle.columns(), proposal)
        if not handle.exists and handle.open(self._tables.pipeline.name) is None:
            columns = route.columns_for(proposal)
            self._start_positions.create(handle, columns, start, client, route.kept())
            return self._new_columns.tell(handle, proposal) if route.has_own_types else None
        if route.has_own_types:
            return self._evolve(handle, proposal, client)
        handle.events_of_route = route.events()
        return self._new_columns.add(handle, route.without_made(proposal), client)

    def _evolve(
        self,
        handle: TableHandle,
        proposal: pa.Schema,
        client: SourceClient,
        returned: pa.Schema | None = None,
    ) -> None:
        events = handle.events()
        refuse_too_wide(handle, events, proposal)
        if not handle.exists:
            if handle.learn(proposal, returned):
                # Its function has not returned anything yet.
                return self._new_columns.tell(handle, proposal)
            columns, kept = handle.grown(proposal, returned)
            self._start_positions.create(
                handle, columns, self._start_positions.begin(client, handle), client, kept
            )
            has_sql = handle.spec is not None and handle.spec.reshapes
            self._assignments.refusals.inferred(handle.name, proposal, has_sql=has_sql)
            return self._new_columns.tell(handle, proposal)
        if events is not None and len(proposal):
            refuse_new_columns(handle, proposal)
        if (
            returned is not None
            and handle.shaping
            and handle.shaping.returned(handle.shape, handle.columns())
        ):
            refuse_new_columns(handle, returned)
        return self._new_columns.add(handle, proposal, client, returned)
