"""Where the tables of a flow begin: what their logs say, and what a table without a position reads first."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import pyarrow as pa

from lakefeed.dead_letters.pending import pending_dead_letters, told_of_new
from lakefeed.dead_letters.reconcile import reconcile
from lakefeed.engine.assignment import Assignments
from lakefeed.engine.run_events import TableChanged, Watcher
from lakefeed.errors import LakefeedError, TableError
from lakefeed.events import Offsets, lowest
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.progress import TableProgress
from lakefeed.handles.routed_tables import RoutedTables
from lakefeed.handles.sharing import refuse_second_copy
from lakefeed.handles.tables import Tables
from lakefeed.sources import SourceClient, StreamsClient, source_of, taken, taken_marks
from lakefeed.tables.positions import application_id, mark_id, marks_of, positions_of
from lakefeed.tables.table import LakeTable

_log = logging.getLogger("lakefeed")


class StartPositions:
    """Opens the tables of a source, creates those whose schema is declared, and tells how far each is."""

    def __init__(self, tables: Tables, assignments: Assignments, watch: Watcher) -> None:
        self._tables = tables
        self._assignments = assignments
        self._source = assignments.source
        self._watch = watch

    def find(
        self, client: SourceClient, names: Iterable[str]
    ) -> tuple[list[TableProgress], dict[str, LakefeedError]]:
        """How far each table has come, and the tables that cannot be opened."""
        pipeline = self._tables.pipeline.name
        dead_letters = self._tables.dead_letters.open(pipeline)
        found: list[TableProgress] = []
        failures: dict[str, LakefeedError] = {}
        for name in names:
            try:
                # A copy, as other flows may add to it meanwhile.
                transactions = dict(dead_letters.transactions) if dead_letters else {}
                held = positions_of(transactions, pipeline, self._source, dead_letters_of=name)
                if name in self._assignments.routes:
                    found += self._routed_progress(client, self._assignments.routes[name], held)
                else:
                    found.append(self._progress_of(client, self._tables.handles[name], held))
            except TableError as error:
                failures[name] = error
        return found, failures

    def begin(self, client: SourceClient, handle: TableHandle) -> Offsets:
        """Where a table without a position begins.

        Asked once, as `latest` moves on while nothing is recorded yet; partitions that have come since are
        read from their beginning.
        """
        client = self._seen_by(handle, client)
        known = self._assignments.starts.get(handle.name)
        self._assignments.starts[handle.name] = client.start() if known is None else client.check(known, {})
        return self._assignments.starts[handle.name]

    def create(
        self,
        handle: TableHandle,
        columns: pa.Schema,
        start: Offsets,
        marks: dict[str, int],
        kept: Mapping[str, str] | None = None,
    ) -> LakeTable:
        """Create a table with its first positions; another instance may be faster.

        `kept` are properties for columns that only the events have.
        """
        name, source = self._tables.pipeline.name, self._source
        assert handle.spec is not None
        start = self._taken(handle, start)
        marks = taken_marks(source_of(self._tables.pipeline, source), handle.spec, marks)
        transactions = {application_id(name, source, partition): at - 1 for partition, at in start.items()}
        transactions |= {mark_id(name, source, mark): number for mark, number in marks.items()}
        commit_info = {"pipeline": name, "source": source, "kind": "create"}
        table = handle.create(columns, transactions, commit_info, kept)
        self._watch(TableChanged(handle.name, f"created at {handle.path}"))
        return table

    def _progress_of(self, client: SourceClient, handle: TableHandle, dead_letters: Offsets) -> TableProgress:
        name, source = self._tables.pipeline.name, self._source
        client = self._seen_by(handle, client)
        table = handle.open(name)
        if table is not None:
            self._reconcile_dead_letters(handle)
        transactions = dict(table.transactions) if table else {}
        held = self._taken(handle, positions_of(transactions, name, source))
        is_new = not held
        rows_from = (
            client.check(held, marks_of(transactions, name, source)) if held else self.begin(client, handle)
        )
        beginning = handle.beginning() if table is None else None
        if beginning is not None:
            columns, kept = beginning
            table = self.create(handle, columns, rows_from, client.marks(), kept)
            transactions = dict(table.transactions)
            held = self._taken(handle, positions_of(transactions, name, source))
            # Another instance may have been faster, and have begun elsewhere or come further.
            if held and held != rows_from:
                rows_from = client.check(held, marks_of(transactions, name, source))
        if not held:
            refuse_second_copy(self._tables.pipeline, source, handle, rows_from, client.marks())
        pending = pending_dead_letters(self._tables, source, handle.name, held, rows_from, dead_letters)
        told = self._assignments.told
        if is_new and handle.name not in told and (text := told_of_new(handle.file, handle.name, pending)):
            told.add(handle.name)
            self._watch(TableChanged(handle.name, text))
        return TableProgress(
            handle,
            rows_from,
            logged={p: at - 1 for p, at in held.items()},
            dead_letters_logged={p: at - 1 for p, at in dead_letters.items()},
            pending=pending,
            marks=marks_of(transactions, name, source),
            jumps={p: (at, rows_from[p]) for p, at in held.items() if rows_from.get(p, at) != at},
            shape=handle.shape,
        )

    def _routed_progress(
        self, client: SourceClient, route: RoutedTables, dead_letters: Offsets
    ) -> list[TableProgress]:
        """How far each table of a route has come, and all of them together.

        A table without a position holds no event of the source that its neighbours have passed: it was made
        before any of them went on.
        """
        name, source = self._tables.pipeline.name, self._source
        client = self._seen_by(route.front, client)
        held = {}
        for handle in route.find():
            table = handle.open(name)
            held[handle.name] = (handle, dict(table.transactions) if table else {})
        logged = {
            each: self._taken(route.front, positions_of(txns, name, source))
            for each, (_, txns) in held.items()
        }
        passed = {
            each: client.check(logged[each], marks_of(txns, name, source))
            for each, (_, txns) in held.items()
            if logged[each]
        }
        # What is wrong with its SQL is told before anything is read.
        route.projection()
        start = lowest(passed.values()) if passed else self.begin(client, route.front)
        if not passed:
            for handle, _ in held.values():
                refuse_second_copy(self._tables.pipeline, source, handle, start, client.marks())
        opened = [
            TableProgress(
                handle,
                passed.get(each, start),
                logged={p: at - 1 for p, at in logged[each].items()},
                dead_letters_logged={},
                pending={},
                marks=marks_of(txns, name, source),
                shape=handle.shape,
            )
            for each, (handle, txns) in held.items()
        ]
        known = {partition: at - 1 for partition, at in dead_letters.items()}
        pending = pending_dead_letters(self._tables, source, route.front.name, {}, start, dead_letters)
        return [TableProgress(route.front, start, {}, known, pending, {}), *opened]

    def _seen_by(self, handle: TableHandle, client: SourceClient) -> StreamsClient:
        """The source as a table sees it: with the streams that it takes."""
        assert handle.spec is not None
        return StreamsClient(client, source_of(self._tables.pipeline, self._source), handle.spec)

    def _taken(self, handle: TableHandle, positions: Offsets) -> Offsets:
        """The positions in streams that a table takes; its log keeps those of any that it once took."""
        assert handle.spec is not None
        return taken(source_of(self._tables.pipeline, self._source), handle.spec, positions)

    def _reconcile_dead_letters(self, handle: TableHandle) -> None:
        """Finish a replay or rewind that was killed; nothing that the flow reads depends on it."""
        try:
            if reconcile(self._tables, handle):
                self._watch(
                    TableChanged(handle.name, "dead letters settled after a replay or rewind was cut short")
                )
        except TableError as error:
            if error.retryable:
                raise
            _log.warning("%s", error)
