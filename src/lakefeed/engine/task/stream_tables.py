"""The tables of a route in a task, where each is that of one stream and has the types of that."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from lakefeed.columns.widening import merged_proposals
from lakefeed.engine.batch.manifest import Manifest, TableManifest, merged
from lakefeed.engine.batch.plan import FlowPlan
from lakefeed.engine.task.routed_writers import CLOSED_AT_ONCE
from lakefeed.engine.task.table_task import TableTask
from lakefeed.errors import TableError
from lakefeed.events import Events, OffsetRange
from lakefeed.files.names import Serial
from lakefeed.handles.table_plan import TableId, TablePlan
from lakefeed.pipeline.options.route import Key
from lakefeed.rows import Rows
from lakefeed.rows.route import key_of


class StreamTables:
    """Takes events for the tables of a route: those of each stream as a table of its own would.

    When one of them is missing, or must change, nothing is written to any: events of a new table would be
    behind the positions of the others. Dead letters are those of the route.
    """

    def __init__(
        self, plan: FlowPlan, table: TablePlan, ranges: Sequence[OffsetRange], serial: Serial | None
    ) -> None:
        assert table.route is not None
        self.given = plan, ranges, serial
        """What every task of a table is made of."""
        self.table, self._route = table, table.route
        self._tasks: dict[str, _StreamTask] = {}
        """By stream."""
        streams = {plan.source.stream_of(span.partition) for span in ranges}
        self._awaited = {one for one in streams if key_of([one], self._route)[0] not in table.routed}
        """Streams whose table is not there: their columns are told before their first events."""
        self.done = {key for key in table.routed if table.has_passed(key, ranges[0])}
        """Tables that have the events of this task already."""

    def taker(self, events: Events) -> TableTask:
        """The task of the table that events belong to."""
        assert events.stream is not None, "events of streams with types of their own say of which they are"
        if events.stream not in self._tasks:
            self._tasks[events.stream] = self._task(events.stream)
        return self._tasks[events.stream]

    def _task(self, stream: str) -> _StreamTask:
        """Raises no error where there is no table for a stream: its task has it."""
        key, error = key_of([stream], self._route)
        closed = self.table.closed_to(key) if key else None
        task = _StreamTask(self, self._own(key or ()), key or ())
        # As dead letters, a whole table would wait for somebody to replay it; and no log would have its
        # position.
        if closed is not None:
            task.stop(
                f"table {self.table.name}: {stream} is read, and has no table: {closed[1]}.\n"
                "Raise `max_tables`, or name with `streams` those that the route takes."
            )
        elif key is None:
            task.stop(
                f"table {self.table.name}: {stream} is read, and has no table: {error}.\n"
                f"Give {stream} a table with a `path`, and name with `streams` those that the route takes."
            )
        return task

    def _own(self, key: Key) -> TablePlan:
        """How one table takes its events; where it is not there, their columns are only looked at."""
        known = self.table.routed.get(key)
        if known is None:
            return replace(self.table, route=None)
        assert known.plan is not None
        front = self.table
        return replace(
            known.plan,
            name=front.name,
            path=known.path,
            target=known.target,
            storage=front.storage,
            pending=front.pending,
            held_back=front.held_back,
            tells_partial=front.tells_partial,
        )

    @property
    def is_changing(self) -> bool:
        """Whether a table must change before any of them takes rows."""
        return any(task.proposes for task in self._tasks.values())

    @property
    def proposes(self) -> bool:
        """Whether all that is to change is known: the columns of every table that is not there."""
        proposing = {stream for stream, task in self._tasks.items() if task.proposes}
        return bool(proposing) and self._awaited <= proposing

    @property
    def waiting_bytes(self) -> int:
        """What all tables together hold in memory."""
        return sum(task.waiting_bytes for task in self._tasks.values())

    def flush(self) -> None:
        """Let every table write what it holds."""
        for task in self._tasks.values():
            task.flush()

    def drop_files(self) -> None:
        """Nothing of this task is wanted."""
        for task in self._tasks.values():
            task.drop_files()

    def close(self) -> dict[TableId, TableManifest]:
        """Finish the files; what was done for each table, and what was refused for the route."""
        front = TableId(self.table.name)
        with ThreadPoolExecutor(max_workers=CLOSED_AT_ONCE) as pool:
            closed = [one[front] for one in pool.map(TableTask.close, self._tasks.values())]
        failed = {
            task.fails_as: replace(one, table=task.fails_as)
            for task, one in zip(self._tasks.values(), closed, strict=True)
            if one.error
        }
        if failed:
            self.drop_files()
            return failed
        told = [Manifest(tables={front: replace(one, files=[], proposal=None)}) for one in closed]
        found = {front: merged(told).get(front, TableManifest(front))}
        for task, one in zip(self._tasks.values(), closed, strict=True):
            if task.key in self.table.routed or one.proposal is not None:
                # Two streams may have one table, where their names make one path.
                own = found.setdefault(task.id, TableManifest(task.id))
                own.files += one.files
                own.events += task.written
                own.partial += one.partial
                own.partial_changes += one.partial_changes
                own.former_keys += one.former_keys
                own.newest = one.newest if own.newest is None else max(own.newest, one.newest or 0.0)
                own.proposal = merged_proposals(own.proposal, one.proposal)
        return found


class _StreamTask(TableTask):
    """Takes the events of one stream for its table."""

    def __init__(self, tables: StreamTables, table: TablePlan, key: Key) -> None:
        plan, ranges, serial = tables.given
        super().__init__(plan, table, ranges, serial)
        self._tables, self.key = tables, key
        self.id = self.fails_as = TableId(table.name, key)
        """`fails_as`: what an error stops, the table alone or the route."""
        self.written: list[int] = []
        """Where that is asked for: the indexes of the events that are rows."""

    def stop(self, reason: str) -> None:
        """Take nothing: the route cannot go on."""
        self.fails_as = TableId(self.table.name)
        self._fail(TableError(reason))

    def _put(self, rows: Rows) -> None:
        if self._tables.is_changing or self.key in self._tables.done:
            return
        super()._put(rows)
        if self._tables.table.tells_events:
            self.written += [int(at) for at in rows.indexes]
