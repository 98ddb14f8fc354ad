"""A task in two halves, with Spark's operators between them: one reads and decodes, the other writes.

Both halves run in one task of Spark, each in a Python process of its own, and rows pass from one to the
other in their order. The reading half says in a first row what it is to read, and in a last one what it has
read. The writing half answers with one manifest for both, so that a batch is committed as any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.engine.batch.carried import (
    CARRIED,
    KEPT,
    NOTE,
    REASON,
    CarriedEvents,
    carried,
    event_columns,
    note,
)
from lakefeed.engine.batch.decoding import payloads_of
from lakefeed.engine.batch.manifest import Manifest, merged
from lakefeed.engine.batch.plan import FlowPlan
from lakefeed.engine.batch.steps import event_steps, table_steps
from lakefeed.engine.batch.table_task import TableTask
from lakefeed.engine.batch.task import MOST_WAITING, taking, told
from lakefeed.engine.faultpoints import passing
from lakefeed.errors import TableError
from lakefeed.events import Events, OffsetRange, Refused
from lakefeed.files.names import Serial
from lakefeed.handles.table_plan import TablePlan
from lakefeed.rows import Rows, Step, StepResult
from lakefeed.sql.projection import Projection
from lakefeed.sql.spark_words import SparkWords


def read_half(
    plan: FlowPlan,
    names: Sequence[str],
    ranges: Sequence[OffsetRange],
    serial: Serial,
    given: Iterable[Events] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the ranges; yields these columns of the events, with the events beside them, and two notes."""
    (table,) = plan.tables
    columns = [name for name in names if name not in CARRIED.names]
    assert table.projection is not None
    schema = pa.schema([event_columns(table.projection).field(name) for name in columns])
    spans = [(span.partition, span.start, span.end) for span in ranges]
    begun = {"ranges": spans, "serial": [serial.batch, serial.task]}
    yield note(orjson.dumps(begun).decode(), schema)
    task = _ReadingTask(plan, table, ranges, serial, columns)
    passes = taking(plan, [task], ranges, given)
    while True:
        try:
            next(passes)
        except StopIteration as end:
            yield from task.taken_out()
            yield note(end.value.to_json(), schema)
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
    passing("task_shaped")
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
        self._columns = list(columns)
        self._out: list[pa.RecordBatch] = []

    @staticmethod
    def steps(table: TablePlan, dropped: Sequence[pa.Field], serial: Serial | None) -> list[Step]:
        return event_steps(table, dropped)

    def taken_out(self) -> list[pa.RecordBatch]:
        """The rows that have come since the last time."""
        out, self._out = self._out, []
        return out

    def _put(self, rows: Rows) -> None:
        columns = rows.batch.select(self._columns)
        self._out.append(carried(columns, payloads_of(rows.events, rows.indexes), rows.origin()))


class _WritingTask(TableTask):
    """A table's way from Spark's operators to its files."""

    @staticmethod
    def steps(table: TablePlan, dropped: Sequence[pa.Field], serial: Serial | None) -> list[Step]:
        assert table.projection is not None
        return [TakeShaped(table.projection), *table_steps(table)]

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows as Spark hands them over."""
        if self._result.error:
            return
        events = CarriedEvents(batch, self._plan.source.partition_of)
        try:
            self._shape(Rows(batch, events, range(batch.num_rows)))
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
            or any(one.error or one.proposal is not None for one in known.values())
        ):
            self.drop_files()
            return read
        read.tables = merged([read, Manifest(tables=self.close())])
        return read


class TakeShaped:
    """Takes the columns of the table out of what came from Spark, and refuses rows that threw."""

    def __init__(self, projection: Projection) -> None:
        self._names = [item.name for item in projection.items]
        self._texts = ", ".join(item.text for item in projection.items)

    def __call__(self, rows: Rows) -> StepResult:
        """The rows that `where` keeps."""
        kept = rows.batch.column(KEPT)
        refused = []
        if kept.null_count:
            for at in pc.indices_nonzero(kept.is_null()).to_pylist():
                text = rows.batch.column(REASON)[at].as_py()
                words = SparkWords(text or "")
                refused.append(
                    Refused(at, "select", words.code or "select_failed", words.sentence or self._texts)
                )
        mask = pc.fill_null(kept, False)
        batch = rows.batch.select(self._names)
        if not refused and mask.true_count == len(mask):
            return StepResult(rows.of(batch))
        gone = pc.indices_nonzero(pc.invert(mask)).to_pylist()
        dead = {one.index for one in refused}
        return StepResult(rows.of(batch).without(gone), refused, [one for one in gone if one not in dead])
