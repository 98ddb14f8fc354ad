"""The Structured Streaming source: Spark asks it for offsets, and it runs one task for each split.

The task is a fused one and yields its manifest. Where Spark's operators shape the rows of a table, it is the
reading half of one and yields events.

The flow in the driver program decides which offsets come next. The reader that Spark asks runs in a Python
process of its own, so the two talk over a Unix socket: the reader says where it stands and waits until
there is more.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lakefeed.engine.batch.plan import FlowPlan
    from lakefeed.events import Offsets, Split
    from lakefeed.files.names import Serial

MANIFEST_SCHEMA = "manifest string"


@dataclass
class Task(InputPartition):
    """The work of one Spark task."""

    split: Split
    serial: Serial


class FlowReader(DataSourceStreamReader):
    """What Spark asks for offsets and tasks; `packed` is the plan, and with `columns` a task yields events.

    The plan is unpacked only where it is used, as Spark starts a process of its own just to look at a source.
    """

    def __init__(self, address: str, start: Offsets, packed: bytes, columns: list[str] | None) -> None:
        from lakefeed.engine.spark.offset_channel import ReaderEnd

        self._channel = ReaderEnd(address)
        self._start, self._packed, self._columns = start, packed, columns

    def initialOffset(self) -> dict[str, Any]:
        return dict(self._start)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        return self._channel.beyond(start)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        # A query that finds nothing to read when it starts runs a batch of no events.
        if start == end:
            return []
        batch = sum(start.values())
        return [Task(split, replace(serial, batch=batch)) for split, serial in self._channel.tasks(end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        from lakefeed.engine.spark.worker import begin_task
        from lakefeed.engine.task.task import run_task

        begin_task()
        plan: FlowPlan = pickle.loads(self._packed)
        if self._columns is not None:
            from lakefeed.engine.task.halves import read_half

            yield from read_half(plan, self._columns, partition.split, partition.serial)
            return
        text = run_task(plan, partition.split, serial=partition.serial).to_json()
        yield pa.record_batch({"manifest": pa.array([text], pa.string())})


def data_source(
    name: str, address: str, start: Offsets, plan: FlowPlan, events: StructType | None = None
) -> type[DataSource]:
    """A data source class for one flow. With `events`, it yields events that have these columns.

    The plan travels inside the class, not in Spark's options, because it may hold secrets: options are
    shown in plans and logs, a pickled class is not.
    """
    packed = pickle.dumps(plan)

    class FlowSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType | str:
            return MANIFEST_SCHEMA if events is None else events

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return FlowReader(address, start, packed, None if events is None else events.names)

    return FlowSource
