"""Tables as kafka-delta-ingest leaves them, and `lakefeed ingest` on them, without Spark."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake

from lakefeed.commands.ingest import ingest_pipeline
from lakefeed.commands.ingest_arguments import IngestArguments
from lakefeed.engine.inline import InlineFlow, run_inline
from lakefeed.engine.run_events import Watcher, unwatched
from lakefeed.engine.spark.local_tasks import LocalTasks
from lakefeed.engine.supervisor import Supervisor
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline

APP = "test"
STATSD = "127.0.0.1:9"
"""Where nobody listens: sent by UDP, it is lost."""


def make_table(path: Path, columns: pa.Schema, partition_by: Sequence[str] = ()) -> Path:
    """A table as its owner makes it before the first run of kafka-delta-ingest."""
    DeltaTable.create(str(path), Schema.from_arrow(columns), partition_by=list(partition_by))
    return path


class OldTool:
    """Writes a table as kafka-delta-ingest does: rows, and `txn` actions `<app_id>-<partition>`."""

    def __init__(self, table: Path, app_id: str = APP) -> None:
        self.table, self.app_id = table, app_id

    def write(self, rows: Sequence[dict[str, Any]], last: dict[int, int]) -> None:
        """Commit rows that were read up to these offsets."""
        schema = pa.schema(DeltaTable(str(self.table)).schema().to_arrow())
        moved = [Transaction(f"{self.app_id}-{number}", at) for number, at in last.items()]
        write_deltalake(
            str(self.table),
            pa.Table.from_pylist(list(rows), schema=schema),
            mode="append",
            commit_properties=CommitProperties(app_transactions=moved),
        )

    def positions(self) -> dict[int, int]:
        """The last offsets, as it reads them at its start."""
        table = DeltaTable(str(self.table))
        found = {number: table.transaction_version(f"{self.app_id}-{number}") for number in range(8)}
        return {number: at for number, at in found.items() if at is not None}


def arguments(topic: str, table: Path, broker: str, **others: Any) -> IngestArguments:
    """What `lakefeed ingest` is called with; the rest as by default."""
    given: dict[str, Any] = {
        "kafka": broker,
        "consumer_group": f"group-{topic}",
        "app_id": APP,
        "statsd_endpoint": STATSD,
    }
    return IngestArguments(topic=topic, table=str(table), **{**given, **others})


def ingest_once(given: IngestArguments, watch: Watcher = unwatched) -> Pipeline:
    """`lakefeed ingest --ends_at_latest_offsets`; returns the pipeline that ran."""
    _, pipeline = ingest_pipeline(given, [f"state={Path(given.table).parent / 'state'}"])
    run_inline(pipeline, watch)
    return pipeline


class Worker:
    """A process of `lakefeed ingest` that runs until it is stopped, as a thread of the test."""

    def __init__(self, given: IngestArguments, watch: Watcher = unwatched) -> None:
        _, self.pipeline = ingest_pipeline(given, [f"state={Path(given.table).parent / 'state'}"])
        self.stop = threading.Event()
        self.error: BaseException | None = None
        self._watch = watch
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> None:
        """Stop it as SIGTERM does; raises what has ended it."""
        self.stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        tables = Tables(self.pipeline)
        state = Path(self.pipeline.state) / "checkpoints"
        with LocalTasks(lambda: None) as local:
            flows: list[Any] = [
                InlineFlow(tables, name, local, state, self._watch, once=False)
                for name in self.pipeline.inputs
            ]
            try:
                Supervisor(self.pipeline, flows, self._watch, self.stop).run()
            except BaseException as error:
                self.error = error


@contextmanager
def working(given: IngestArguments, watch: Watcher = unwatched) -> Iterator[Worker]:
    """A worker for the length of a block."""
    worker = Worker(given, watch)
    try:
        yield worker
    finally:
        worker.end()


def rows_of(table: Path) -> list[dict[str, Any]]:
    """All rows of a table."""
    found: list[dict[str, Any]] = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    return found


def ids(table: Path) -> list[int]:
    """The ids in a table, in order, each as often as it is there."""
    return sorted(row["id"] for row in rows_of(table))


def version(table: Path) -> int:
    return DeltaTable(str(table)).version()


def payloads(*numbers: int, **fields: Any) -> list[bytes]:
    """A message for each id."""
    return [json.dumps({"id": number, **fields}).encode() for number in numbers]


def eventually(holds: Callable[[], bool], seconds: float = 120) -> None:
    """Wait until something holds."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it does not come to hold"
        time.sleep(0.05)
