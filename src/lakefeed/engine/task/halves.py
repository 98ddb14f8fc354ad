"""A task in two halves, with Spark's operators between them: one reads and decodes, the other writes.

Both halves run in one task of Spark, each in a Python process of its own, and rows pass from one to the
other in their order. The reading half says in a first row what it is to read, and in a last one what it has
read. The writing half returns one manifest for both, so that a batch is committed as any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import orjson
import pyarrow as pa

from lakefeed.columns.column_types import TIMESTAMP
from lakefeed.engine.batch.manifest import Manifest, merged
from lakefeed.engine.batch.plan import FlowPlan
from lakefeed.engine.faultpoints import SHAPED_POINT, passing
from lakefeed.engine.task.carried import (
    NOTE,
    OPS,
    UNCHANGED,
    CarriedEvents,
    beside,
    by_key,
    carried,
    event_columns,
    note,
)
from lakefeed.engine.task.shaped_rows import BySpark, RefuseThrown
from lakefeed.engine.task.steps import event_steps, sql_steps, table_steps
from lakefeed.engine.task.table_task import TableTask
from lakefeed.engine.task.task import MOST_WAITING, taking, told
from lakefeed.errors import TableError
from lakefeed.events import Events, OffsetRange
from lakefeed.files.names import Serial
from lakefeed.handles.table_plan import TablePlan
from lakefeed.rows import Rows, Step
from lakefeed.sql.projection import BATCH_TIME


def read_half(
    plan: FlowPlan,
    names: Sequence[str],
    ranges: Sequence[OffsetRange],
    serial: Serial,
    given: Iterable[Events] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the ranges; yields these columns of the events, with the events beside them, and two notes."""
    (table,) = plan.tables
    columns = [name for name in names if name not in beside(table).names]
    assert table.projection is not None
    schema = pa.schema([event_columns(table.projection).field(name) for name in columns])
    spans = [(span.partition, span.start, span.end) for span in ranges]
    begun = {"ranges": spans, "serial": [serial.batch, serial.task, serial.planned]}
    yield note(orjson.dumps(begun).decode(), schema, table)
    task = _ReadingTask(plan, table, ranges, serial, columns)
    passes = taking(plan, [task], ranges, given)
    while True:
        try:
            next(passes)
        except StopIteration as end:
            yield from task.taken_out()
            yield note(end.value.to_json(), schema, table)
            return
        yield from task.taken_out()


def write_half(plan: FlowPlan, batches: Iterable[pa.RecordBatch]) -> Manifest | None:
    """Write what Spark made of the rows of a task; None for one that no reading half has begun."""
    task: _WritingTask | None = None
    ranges: list[OffsetRange] = []
    read: Manifest | None = None
    try:
        for batch in batches:
            for piece in _parted(batch):
                if isinstance(piece, pa.RecordBatch):
                    assert task is not None
                    task.write(piece)
                elif task is None:
                    begun = orjson.loads(piece)
                    ranges = [OffsetRange(*span) for span in begun["ranges"]]
                    task = _WritingTask(plan, plan.tables[0], ranges, Serial(*begun["serial"]))
                else:
                    read = Manifest.from_json(piece)
        if task is None:
            return None
        if read is None or read.ranges != ranges:
            raise RuntimeError("the reading half of a task has not come to its end")
        manifest = task.ended(read)
    except BaseException as error:
        if task:
            task.drop_files()
        return Manifest(ranges, error=told(error, ranges))
    passing(SHAPED_POINT)
    return manifest


def _parted(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | str]:
    """The rows of a batch, and the notes between them as text."""
    notes = batch.column(NOTE)
    if notes.null_count == len(notes):
        yield batch
        return
    start = 0
    for at in notes.is_valid().to_numpy(zero_copy_only=False).nonzero()[0].tolist():
        if at > start:
            yield batch.slice(start, at - start)
        yield notes[at].as_py()
        start = at + 1
    if start < batch.num_rows:
        yield batch.slice(start)


class _ReadingTask(TableTask):
    """A table's way to Spark's operators: dead letters of decoding are written, rows are handed on."""

    def __init__(
        self,
        plan: FlowPlan,
        table: TablePlan,
        ranges: Sequence[OffsetRange],
        serial: Serial,
        columns: Sequence[str],
    ) -> None:
        super().__init__(plan, table, ranges, serial)
        self._columns = columns
        self._planned = serial.planned
        self._out: list[pa.RecordBatch] = []

    def _made_steps(self, dropped: Sequence[pa.Field]) -> list[Step]:
        return event_steps(self.table, dropped)

    def taken_out(self) -> list[pa.RecordBatch]:
        """The rows that have come since the last time."""
        out, self._out = self._out, []
        return out

    def _put(self, rows: Rows) -> None:
        if BATCH_TIME in self._columns and BATCH_TIME not in rows.batch.schema.names:
            moment = pa.repeat(pa.scalar(self._planned, TIMESTAMP), rows.batch.num_rows)
            rows = rows.of(rows.batch.append_column(BATCH_TIME, moment))
        self._out.append(carried(rows, self._columns, self.table))


class _WritingTask(TableTask):
    """A table's way from Spark's operators to its files."""

    def _made_steps(self, dropped: Sequence[pa.Field]) -> list[Step]:
        table = self.table
        assert table.projection is not None
        shaped = sql_steps(table, BySpark(table.projection))
        return [RefuseThrown(table.projection), *shaped, *table_steps(table)]

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows as Spark hands them over."""
        for part in by_key(batch):
            if not self._result.error:
                self._write(part)

    def _write(self, batch: pa.RecordBatch) -> None:
        events = CarriedEvents(batch, self._plan.source.partition_of)
        rows = Rows(batch, events, range(batch.num_rows))
        if OPS in batch.schema.names:
            # Where nothing has judged what rows do, they are null.
            ops = None if batch.column(OPS).null_count else batch.column(OPS)
            rows = replace(rows, ops=ops, unchanged=batch.column(UNCHANGED))
        try:
            self._shape(rows)
            if self.waiting_bytes > MOST_WAITING:
                self.flush()
        except TableError as error:
            self._fail(error)

    def ended(self, read: Manifest) -> Manifest:
        """The manifest of both halves; nothing is written when the reading half says so."""
        known = merged([read])
        if (
            read.error
            or read.overfull
            or read.ends
            or any(one.error or one.proposal is not None for one in known.values())
        ):
            self.drop_files()
            return read
        read.tables = merged([read, Manifest(tables=self.close())])
        return read
