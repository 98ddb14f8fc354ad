"""Sending again: the dead letters of a route, each into the table that its event belongs to by now.

A letter is of the route, and only its row says which table it is for. Every table commits its own rows with
the list of its own letters, so a kill between two tables leaves letters of the second one, and they are sent
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakefeed.columns.column_types import stored, type_text
from lakefeed.columns.widening import merge_proposals
from lakefeed.dead_letters.reconcile import reconcile, unreconciled
from lakefeed.engine.batch.manifest import TableManifest
from lakefeed.events import Offsets
from lakefeed.handles.growth import refuse_new_columns, refuse_too_wide
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.routed_tables import RoutedTables
from lakefeed.handles.table_plan import RoutedTable, TableId, TablePlan
from lakefeed.pipeline.options.route import Key
from lakefeed.reprocess.resend import Resend, taken_dead_letters
from lakefeed.rows.route import key_of
from lakefeed.tables.schema import missing_columns
from lakefeed.tables.shape import Shape

Results = Mapping[TableId, TableManifest]


class ResendRoute(Resend):
    """Sends the dead letters of a route again. Its handle stands for all tables, and has none itself."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._route = RoutedTables(self._tables, self._handle.name)
        if self._route.has_own_types:
            self._apart = ("source", "topic")
        self._shapes: dict[Key, Shape] = {}
        """What each table of the route is, or would be after a dry run."""

    def _foresee(self) -> None:
        self._find()
        known = [unreconciled(self._tables, handle) for handle in self._opened()]
        self._done = frozenset().union(*known)

    def _reconcile(self) -> None:
        self._find()
        for handle in self._opened():
            reconcile(self._tables, handle)

    def _find(self) -> None:
        for handle in self._route.find():
            if self._dry_run:
                handle.look()
            else:
                handle.open(self._tables.pipeline.name)
            if shape := handle.shape:
                self._shapes[handle.id.key] = shape

    def _opened(self) -> list[TableHandle]:
        return [handle for handle in self._route.handles if handle.exists]

    def _ready(self, source: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not self._opened():
            self.report.of_no_table += rows.num_rows
            return rows.slice(0, 0)
        if not self._has_table(rows):
            self.report.waiting += rows.num_rows
            return rows.slice(0, 0)
        return super()._ready(source, rows)

    def _table_of(self, stream: str | None) -> TableHandle | None:
        """The table of a stream, or one of several that have its rows."""
        opened = {one.id.key: one for one in self._opened()}
        if self._route.by_stream:
            key, _ = key_of([stream], self._route.route)
            return opened.get(key) if key else None
        return next(iter(opened.values()), None)

    def _has_table(self, rows: pa.RecordBatch) -> bool:
        """Whether letters have a table, or may make one: types of a stream are known to a run only."""
        if not self._route.has_own_types:
            return True
        key, _ = key_of([rows.column("topic")[0].as_py()], self._route.route)
        return key in self._shapes

    def _passed(self, source: str) -> Offsets:
        return self._route.passed(source)

    def _has_one_stream(self, source: str) -> bool:
        return False

    def _table_plan(self, rows_from: Offsets, scratch: Path) -> TablePlan:
        route, front = self._route, self._handle
        if not self._dry_run:
            self._shapes = {one.id.key: one.shape for one in self._opened() if one.shape}
        routed: dict[Key, RoutedTable] = {}
        for key, shape in self._shapes.items():
            handle = self._tables.routed_handle(front.name, key)
            path = str(scratch / "rows" / str(len(routed))) if self._dry_run else handle.path
            routed[key] = replace(route.member(handle, shape, rows_from), path=path)
        plan = route.plan(rows_from, {}, routed)
        return replace(plan, tells_events=True, storage={} if self._dry_run else front.storage)

    def _delete(self, results: Results) -> None:
        for table, one in results.items():
            handle = self._tables.routed_handle(table.table, table.key) if table.key else self._handle
            handle.drop(one.files)

    def _evolve(self, source: str, table: TableId, proposal: pa.Schema, returned: pa.Schema | None) -> None:
        """Learn columns; make a table of the route, or give it those that its letters fill."""
        route = self._route
        if not table.key:
            route.learn(route.front.named(proposal, route.events()))
            return
        handle = route.handle(table.key)
        if handle is None:
            # There are as many tables as there may be, which the next attempt tells of its letters.
            return
        proposal = handle.named(proposal, handle.events())
        refuse_too_wide(handle, handle.columns(), proposal)
        if route.has_own_types:
            refuse_new_columns(handle, proposal)
        if self._dry_run:
            self._foresee_table(handle, proposal)
        elif not handle.exists:
            self._create(handle, source, route.columns_for(proposal))
        else:
            handle.events_of_route = route.events()
            commit_info = {"pipeline": self._tables.pipeline.name, "source": source, "kind": "evolve"}
            self._tell_added(handle, handle.add(route.without_made(proposal), commit_info))

    def _foresee_table(self, handle: TableHandle, proposal: pa.Schema) -> None:
        key = handle.id.key
        if key in self._shapes:
            before = self._shapes[key].schema
            added = missing_columns(before, stored(self._route.without_made(proposal)))
            self._shapes[key] = self._shapes[key].with_columns(merge_proposals(before, pa.schema(added)))
            self._tell_added(handle, added)
            return
        # Of what it will be, only the columns and the partitions matter.
        template = next(iter(self._shapes.values()))
        schema = handle.table_schema(self._route.columns_for(proposal))
        self._shapes[key] = template.with_columns(schema)

    def _tell_added(self, handle: TableHandle, added: list[pa.Field]) -> None:
        self.report.new_columns += [f"{handle.name}: {one.name} {type_text(one.type)}" for one in added]

    def _create(self, handle: TableHandle, source: str, columns: pa.Schema) -> None:
        """Make a table that stands where its neighbours do: what lies behind them has no row for it."""
        name = self._tables.pipeline.name
        transactions: dict[str, int] = {}
        for each in handle.spec.from_ if handle.spec else ():
            head = f"{name}/{each}/"
            for neighbour in self._opened():
                for known, at in neighbour.table.transactions.items():
                    if known.startswith(head):
                        transactions[known] = min(at, transactions.get(known, at))
        commit_info = {"pipeline": name, "source": source, "kind": "create"}
        handle.create(columns, transactions, commit_info, self._route.kept())

    def _land(self, rows: pa.RecordBatch, refused: list[dict[str, Any]], results: Results) -> None:
        self._count(refused)
        good = {at for at, taken in enumerate(taken_dead_letters(rows, refused)) if taken}
        found = {table: one for table, one in sorted(results.items()) if table.key and one.files}
        # An event may be changes in two tables: its letter goes when the last of them has got its own.
        last = {event: table for table, one in found.items() for event in one.events if event in good}
        left_out = sorted(good - last.keys())
        self.report.rows += sum(one.rows for one in found.values())
        self.report.left_out += len(left_out)
        if not self._dry_run:
            self._commit_each(rows, found, last, left_out)

    def _commit_each(
        self,
        rows: pa.RecordBatch,
        found: dict[TableId, TableManifest],
        last: dict[int, TableId],
        left_out: list[int],
    ) -> None:
        """Letters that have no row leave with those of the last table."""
        waiting = dict(found) or ({self._opened()[0].id: TableManifest(self._opened()[0].id)})
        waiting = waiting if found or left_out else {}
        try:
            for table, one in list(waiting.items()):
                own = sorted(event for event, owner in last.items() if owner == table)
                own += left_out if len(waiting) == 1 else []
                handle = self._tables.routed_handle(table.table, table.key)
                del waiting[table]
                self._commit(handle, rows.take(pa.array(own, pa.int64())), one.files, self._shapes[table.key])
        except BaseException:
            self._delete(waiting)
            raise
