"""Where the tables of a flow begin: what their logs say, and what a table without a position reads first."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import closing

import pyarrow as pa

from lakefeed.dead_letters.pending import pending_dead_letters, start_of, told_of_new
from lakefeed.dead_letters.reconcile import reconcile
from lakefeed.engine.assignment import Assignments
from lakefeed.engine.run_events import TableChanged
from lakefeed.errors import LakefeedError, TableError
from lakefeed.events import Offsets, lowest
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.progress import TableProgress
from lakefeed.handles.routed_tables import RoutedTables
from lakefeed.handles.sharing import refuse_ingested, refuse_second_copy, refuse_seek_ahead
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.table import Table
from lakefeed.sources import SourceClient, source_of
from lakefeed.sources.held_positions import held_positions, ingest_transactions, own_positions
from lakefeed.sources.subscription import StreamsClient, refuse_streams, taken, taken_marks
from lakefeed.tables.positions import application_id, mark_id, marks_of, positions_of
from lakefeed.tables.rewrite.stored_defaults import fill
from lakefeed.tables.table import LakeTable

_log = logging.getLogger("lakefeed")


class StartPositions:
    """Opens the tables of a source, creates those whose schema is declared, and tells how far each is."""

    def __init__(self, tables: Tables, assignments: Assignments) -> None:
        self._tables = tables
        self._assignments = assignments
        self._source = assignments.source
        self._watch = assignments.watch

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

    def begin(
        self,
        client: SourceClient,
        handle: TableHandle,
        held: Offsets | None = None,
        dead_letters: Offsets | None = None,
    ) -> Offsets:
        """Where a table without a position begins, or the partitions that are not held begin.

        Asked once, as `latest` moves on while nothing is recorded yet; partitions that have come since are
        read from their beginning.
        """
        client = self._seen_by(handle, client)
        known = self._assignments.starts.get(handle.name)
        if known is not None:
            start = client.check(known, {})
        elif held:
            start = client.start_beside(held)
        else:
            start = start_of(self._tables, client, self._source, handle.name, dead_letters or {})
        self._assignments.starts[handle.name] = start
        return start

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
        last = {partition: at - 1 for partition, at in start.items()}
        transactions |= ingest_transactions(self._tables.pipeline, source, handle.spec, last)
        transactions |= {mark_id(name, source, mark): number for mark, number in marks.items()}
        commit_info = {"pipeline": name, "source": source, "kind": "create"}
        table = handle.create(columns, transactions, commit_info, kept)
        self._watch(TableChanged(handle.name, f"created at {handle.path}"))
        return table

    def _progress_of(self, client: SourceClient, handle: TableHandle, dead_letters: Offsets) -> TableProgress:
        name, source = self._tables.pipeline.name, self._source
        assert handle.spec is not None
        refuse_streams(client, self._tables.sources_of(handle.spec), handle.name, handle.spec)
        client = self._seen_by(handle, client)
        table = handle.open(name)
        if table is not None:
            self._reconcile_dead_letters(handle)
            fill(table, {"pipeline": name, "source": source, "kind": "evolve"})
        transactions = dict(table.transactions) if table else {}
        held = self._held(handle, transactions)
        is_new = not held
        rows_from = self._go_on_from(client, handle, held, transactions, dead_letters)
        beginning = handle.beginning() if table is None else None
        if beginning is not None:
            columns, kept = beginning
            table = self.create(handle, columns, rows_from, client.marks(), kept)
            transactions = dict(table.transactions)
            held = self._held(handle, transactions)
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
        own = own_positions(self._tables.pipeline, source, handle.spec, transactions)
        refuse_ingested(self._tables.pipeline, source, handle, rows_from, own)
        names = ingest_transactions(self._tables.pipeline, source, handle.spec, dict.fromkeys(rows_from, 0))
        moved = {p: (own.get(p, at), rows_from[p]) for p, at in held.items() if rows_from.get(p, at) != at}
        return TableProgress(
            handle,
            rows_from,
            logged={p: at - 1 for p, at in own.items()},
            dead_letters_logged={p: at - 1 for p, at in dead_letters.items()},
            pending=pending,
            marks=marks_of(transactions, name, source),
            ingest={one: transactions[one] for one in names if one in transactions},
            adopted={p: (at, held[p]) for p, at in own.items() if held[p] > at and p not in moved},
            jumps=moved,
            shape=handle.shape,
        )

    def _held(self, handle: TableHandle, transactions: Mapping[str, int]) -> Offsets:
        assert handle.spec is not None
        return held_positions(self._tables.pipeline, self._source, handle.spec, transactions)

    def _go_on_from(
        self,
        client: SourceClient,
        handle: TableHandle,
        held: Offsets,
        transactions: Mapping[str, int],
        dead_letters: Offsets,
    ) -> Offsets:
        """Where a table goes on, or begins.

        With `app_id`, partitions that no log knows begin at `start`, as kafka-delta-ingest has it: it writes
        nothing of partitions that it has read nothing of.
        """
        assert handle.spec is not None
        marks = marks_of(transactions, self._tables.pipeline.name, self._source)
        if not held:
            return self.begin(client, handle, dead_letters=dead_letters)
        if handle.spec.app_id is None:
            return client.check(held, marks)
        own = own_positions(self._tables.pipeline, self._source, handle.spec, transactions)
        refuse_seek_ahead(self._tables.pipeline, self._source, handle, held)
        return client.check(held if own else {**self.begin(client, handle, held), **held}, marks)

    def _routed_progress(
        self, client: SourceClient, route: RoutedTables, dead_letters: Offsets
    ) -> list[TableProgress]:
        """How far each table of a route has come, and all of them together.

        A table without a position holds no event of the source that its neighbours have passed: it was made
        before any of them went on.
        """
        name, source = self._tables.pipeline.name, self._source
        assert route.front.spec is not None
        refuse_streams(client, self._tables.sources_of(route.front.spec), route.front.name, route.front.spec)
        whole, client = client, self._seen_by(route.front, client)
        held = {handle.name: (handle, self._opened(handle)) for handle in route.find()}
        logged = {
            each: self._taken(handle, positions_of(txns, name, source))
            for each, (handle, txns) in held.items()
        }
        passed = {
            each: self._seen_by(handle, whole).check(logged[each], marks_of(txns, name, source))
            for each, (handle, txns) in held.items()
            if logged[each]
        }
        # What is wrong with its SQL is told before anything is read.
        route.projection()
        start = self._route_start(client, route, passed, dead_letters)
        if not passed:
            for handle, _ in held.values():
                refuse_second_copy(self._tables.pipeline, source, handle, start, client.marks())
        opened = [
            TableProgress(
                handle,
                passed.get(each) or self._taken(handle, start),
                logged={p: at - 1 for p, at in logged[each].items()},
                dead_letters_logged={},
                pending={},
                marks=marks_of(txns, name, source),
                jumps=_moved(logged[each], passed.get(each, {})),
                by_stream=route.by_stream,
                shape=handle.shape,
            )
            for each, (handle, txns) in held.items()
        ]
        known = {partition: at - 1 for partition, at in dead_letters.items()}
        pending = pending_dead_letters(self._tables, source, route.front.name, {}, start, dead_letters)
        return [TableProgress(route.front, start, {}, known, pending, {}), *opened]

    def _route_start(
        self, client: SourceClient, route: RoutedTables, passed: Mapping[str, Offsets], dead_letters: Offsets
    ) -> Offsets:
        """Where a route goes on, given how far its tables have come."""
        if passed:
            start = lowest(passed.values())
        else:
            start = self.begin(client, route.front, dead_letters=dead_letters)
        # Streams whose table is still to be made are read from their beginning.
        return client.check(start, {}) if route.by_stream else start

    def _opened(self, handle: TableHandle) -> dict[str, int]:
        """Open a table of a route, finish what was cut short there, and return what its log holds."""
        table = handle.open(self._tables.pipeline.name)
        if table is None:
            return {}
        self._reconcile_dead_letters(handle)
        fill(table, {"pipeline": self._tables.pipeline.name, "source": self._source, "kind": "evolve"})
        return dict(table.transactions)

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


def _moved(held: Offsets, going_on: Offsets) -> dict[str, tuple[int, int]]:
    """Where a source has lost events: the offset that was wanted, and the one from which it goes on."""
    return {p: (at, going_on[p]) for p, at in held.items() if going_on.get(p, at) != at}


def confirm_positions(tables: Tables, source: str) -> None:
    """Raise DataLoss where a source has lost what a table needs next; it changes nothing.

    A table that cannot be looked at is left to its flow, which tells why.
    """
    pipeline, spec = tables.pipeline, source_of(tables.pipeline, source)
    with closing(spec.client(pipeline.name, source)) as client:
        for name, table in pipeline.tables_of(source).items():
            seen = StreamsClient(client, spec, table)
            for own, transactions in _transactions(tables, name):
                if held := held_positions(pipeline, source, own, transactions):
                    seen.check(held, marks_of(transactions, pipeline.name, source))


def _transactions(tables: Tables, name: str) -> list[tuple[Table, dict[str, int]]]:
    """What the log of a table holds, or those of the tables of a route; nothing where it is not readable."""
    try:
        routed = name in tables.routes
        handles = list(tables.routed_handles(name).values()) if routed else [tables.handles[name]]
        found = [(handle.spec, handle.look()) for handle in handles]
    except TableError as error:
        _log.debug("%s", error)
        return []
    return [(spec, dict(table.transactions)) for spec, table in found if spec and table]
