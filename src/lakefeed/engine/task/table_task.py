"""One table's way through a task: its rows, and its dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from lakefeed.columns.widening import merged_proposals
from lakefeed.engine.batch.manifest import TableManifest
from lakefeed.engine.batch.plan import FlowPlan
from lakefeed.engine.task.dead_letter_writer import DeadLetterWriter, count, count_parts
from lakefeed.engine.task.decoding import key_column
from lakefeed.engine.task.routed_writers import RoutedWriters
from lakefeed.engine.task.steps import event_steps, steps_for
from lakefeed.engine.task.stream_columns import decoder_of
from lakefeed.errors import TableError
from lakefeed.events import Events, OffsetRange, Refused
from lakefeed.files.names import Serial
from lakefeed.files.parquet import TableWriter
from lakefeed.formats import Decoded
from lakefeed.handles.table_plan import TableId, TablePlan
from lakefeed.rows import Rows, Step, StepResult
from lakefeed.rows.attribution import rows_of, told
from lakefeed.rows.rename import as_in_events, as_in_table
from lakefeed.stores import open_store

_NO_COLUMNS = pa.schema([])


class TableTask:
    """Takes events for one table: rows pass its steps and are written, refusals become dead letters."""

    def __init__(
        self, plan: FlowPlan, table: TablePlan, ranges: Sequence[OffsetRange], serial: Serial | None
    ) -> None:
        self.table = table
        self._serial = serial
        columns = table.decoded or _NO_COLUMNS
        if table.changes:
            columns = table.changes.decoded(columns)
        columns = as_in_events(columns, table.rename)
        dropped = [field for field in columns if field.name in table.rules.dropped]
        columns = pa.schema([field for field in columns if field.name not in table.rules.dropped])
        key = key_column(plan.source, table.changes, table.rename)
        self.wants = columns, table.rules, key
        self.decoder = decoder_of(plan.source, plan.format, columns, table.rules, key)
        self._dropped = dropped
        self._steps = self._made_steps(dropped)
        self._plan = plan
        self._pending = {
            (span.partition, offset, moment, number)
            for span in ranges
            for offset, moment, number in table.pending.get(span.partition, ())
        }
        self._rows: TableWriter | None = None
        self._routes = RoutedWriters(table, ranges, serial) if table.route else None
        self._dead_letters: DeadLetterWriter | None = None
        self._result = TableManifest(TableId(table.name))

    def _made_steps(self, dropped: Sequence[pa.Field]) -> list[Step]:
        """What rows pass on their way."""
        return steps_for(self.table, dropped, self._serial)

    def taker(self, events: Events) -> TableTask:
        """Who takes these events."""
        return self

    def take(self, events: Events, decoded: Decoded) -> None:
        """Take events that were decoded for this table."""
        if self._result.error:
            return
        try:
            before = self._dead_before(events) if self._pending else set()
            if before:
                self._judge_again(events, decoded, before)
                decoded = _without(before, events, decoded)
            self._refuse(events, decoded.refused)
            if decoded.skipped:
                count(self._result.skipped, events, decoded.skipped)
            if decoded.unknown is not None:
                self._propose(as_in_table(decoded.unknown, self.table.rename))
            if self.table.is_inferring:
                self._result.without_columns += decoded.rows.num_rows
                if self.table.decoded is not None and decoded.rows.num_rows:
                    self._look(Rows(decoded.rows, events, _kept(len(events), _gone(decoded) | before)))
                return
            if self._result.proposal is None and self._routes and self.table.by_stream:
                self._expect_table(self._routes, events, decoded.rows.schema)
            if self._result.proposal is None and decoded.rows.num_rows:
                indexes = _kept(len(events), _gone(decoded) | before)
                self._shape(Rows(decoded.rows, events, indexes, decoded.rescued))
        except TableError as error:
            self._fail(error)

    def _expect_table(self, routes: RoutedWriters, events: Events, columns: pa.Schema) -> None:
        """Let the stream of these events have its table, with those columns that it has itself."""
        if events.stream is None or events.columns is None:
            # A replay: only a run makes tables.
            return
        own = {*events.columns.schema.names}
        columns = pa.schema([field for field in columns if field.name in own])
        routes.expect(events.stream, as_in_table(columns, self.table.rename))

    @property
    def proposes(self) -> bool:
        """Whether the table must change before it takes rows."""
        return self._result.proposal is not None and not self._result.error

    @property
    def waiting_bytes(self) -> int:
        """What the table holds in memory: its rows, or those of all tables of its route, and dead letters."""
        return sum(writer.waiting_bytes for writer in self._writers())

    def flush(self) -> None:
        """Write what is held. All tables do so together, as one's rows are slices of what others hold."""
        try:
            for writer in self._writers():
                writer.flush()
        except TableError as error:
            self._fail(error)

    def note(self, newest: float | None) -> None:
        """Keep the time of the newest event, for those who ask how fresh the table is."""
        if newest is not None:
            self._result.newest = max(newest, self._result.newest or newest)

    def close(self) -> dict[TableId, TableManifest]:
        """Finish the files; what was done for the table, and for each table of its route."""
        routed: Mapping[TableId, TableManifest] = {}
        try:
            self._result.files = self._rows.close() if self._rows else []
            if self._routes and not self._result.error:
                routed = self._routes.close()
            self._result.dead_letter_files = self._dead_letters.close() if self._dead_letters else []
        except TableError as error:
            self._fail(error)
            routed = {}
        return {self._result.table: self._result, **routed}

    def drop_files(self) -> None:
        """A table that must change first, or cannot be written, gets nothing of this task."""
        for writer in self._writers():
            writer.abort()
        self._rows = self._dead_letters = None

    def _writers(self) -> list[TableWriter | RoutedWriters]:
        return [writer for writer in (self._rows, self._dead_letters, self._routes) if writer]

    def _fail(self, error: TableError) -> None:
        self.drop_files()
        self._result = TableManifest(TableId(self.table.name), error=error)

    def _propose(self, unknown: pa.Schema) -> None:
        self._result.proposal = merged_proposals(self._result.proposal, unknown)
        for writer in (self._rows, self._routes):
            if writer:
                writer.abort()
        self._rows = None

    def _dead_before(self, events: Events) -> set[int]:
        """The indexes of events that are dead letters already."""
        name, origin = self._plan.source.partition_of, events.origin()
        streams, numbers, offsets = (
            origin.column(at).to_pylist() for at in ("stream", "partition", "offset")
        )
        moments = origin.column("timestamp").cast(pa.int64()).to_pylist()
        stamps = zip(map(name, streams, numbers), offsets, moments, numbers, strict=True)
        found = {at for at, stamp in enumerate(stamps) if stamp in self._pending}
        count(self._result.dead_letters, events, sorted(found))
        count_parts(self._result.refused_parts, self._plan, events.origin(sorted(found)))
        return found

    def _judge_again(self, events: Events, decoded: Decoded, before: set[int]) -> None:
        """Count what the rules of `expect` say of letters whose run was killed before it counted them."""
        table = self.table
        if table.is_inferring or not table.projection or not table.projection.rules:
            return
        indexes = np.asarray(_kept(len(events), _gone(decoded)))
        rows = Rows(decoded.rows, events, indexes.tolist(), decoded.rescued)
        rows = rows.where(np.isin(indexes, list(before)))
        for step in self._steps:
            done = step(rows)
            self._result.expected(done.counts, {})
            rows = done.rows

    def _refuse(self, events: Events, refused: list[Refused]) -> None:
        if refused:
            self._dead_letters = self._dead_letters or DeadLetterWriter(self._plan, self.table)
            self._dead_letters.refuse(events, refused, self._result)

    def _look(self, rows: Rows) -> None:
        """Ask for what the table lacks: columns that the function returns, or that `select` reads."""
        if not self.table.python:
            # Whatever columns there are: the driver says what `select` lacks among them.
            return self._propose(_NO_COLUMNS)
        self._result.taken += rows.batch.num_rows
        for step in event_steps(self.table, self._dropped):
            done = step(rows)
            self._return(done.unknown)
            rows = self._refused(done)
        if rows.batch.num_rows or self.table.returned is not None:
            self._propose(_NO_COLUMNS)
        return None

    def _return(self, unknown: pa.Schema | None) -> None:
        """Propose columns that the function returns and nobody knows."""
        if unknown is not None:
            self._result.returned = merged_proposals(self._result.returned, unknown)
            self._propose(_NO_COLUMNS)

    def _shape(self, rows: Rows) -> None:
        """Let rows pass the steps, and hand on what is left of them."""
        if self.table.python:
            self._result.taken += rows.batch.num_rows
        for step in self._steps:
            done = step(rows)
            rows = self._refused(done)
            self._return(done.unknown)
            self._result.expected(done.counts, done.failed)
            if len(done.filtered):
                count(self._result.filtered, rows.events, told(done.filtered))
        if self._result.proposal is None:
            self._put(rows)

    def _refused(self, done: StepResult) -> Rows:
        """Refuse what a step has refused; returns the rows that are left.

        A function may have made several rows of an event. It is taken whole or is a dead letter, and that
        once: a replay makes all of its rows again.
        """
        rows, refused = done.rows, done.refused
        if refused and self.table.python:
            refused = list({one.index: one for one in reversed(refused)}.values())
            self._result.taken -= len(refused)
            rows = rows.without(rows_of(rows.indexes, [one.index for one in refused]))
        self._refuse(rows.events, refused)
        return rows

    def _put(self, rows: Rows) -> None:
        """Write rows that have passed every step."""
        if self._routes:
            self._refuse(rows.events, self._routes.write(rows.batch, rows.indexes))
            return
        table = self.table
        assert table.target is not None
        if self._rows is None:
            self._rows = TableWriter(open_store(table.path, dict(table.storage)), table.target, self._serial)
        self._rows.write(rows.batch)


def _without(before: set[int], events: Events, decoded: Decoded) -> Decoded:
    """Leave out dead letters, whether they would be rows by now or be refused again."""
    kept = _kept(len(events), _gone(decoded))
    new = pa.array([index not in before for index in kept], pa.bool_())
    return Decoded(
        decoded.rows.filter(new),
        [one for one in decoded.refused if one.index not in before],
        decoded.unknown,
        None if decoded.rescued is None else decoded.rescued.filter(new),
        [index for index in decoded.skipped if index not in before],
    )


def _gone(decoded: Decoded) -> set[int]:
    """The indexes of the events that are no rows."""
    return {one.index for one in decoded.refused} | set(decoded.skipped)


def _kept(number: int, gone: set[int]) -> Sequence[int]:
    """The indexes of the events that became rows."""
    if not gone:
        return range(number)
    mask = np.ones(number, np.bool_)
    mask[list(gone)] = False
    kept: list[int] = np.flatnonzero(mask).tolist()
    return kept
