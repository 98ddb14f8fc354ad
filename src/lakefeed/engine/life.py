"""One life of a flow: a Structured Streaming query that reads batch after batch until something changes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lakefeed.engine.faultpoints import passing
from lakefeed.engine.landing import Landing, Outcome
from lakefeed.engine.manifest import Manifest
from lakefeed.engine.pace import Pace
from lakefeed.engine.plan import FlowPlan, spans
from lakefeed.engine.report import BatchDone, Watcher
from lakefeed.engine.stream import Gate, data_source
from lakefeed.errors import BatchFailed
from lakefeed.sources import Offsets, SourceClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_log = logging.getLogger("lakefeed")
_RECORD_EVERY = 120.0
"""Seconds after which the positions of tables without rows are recorded."""


@dataclass
class Life:
    """Plans a batch, lets Spark run it, and lands it; over and over, from the positions it was born with."""

    client: SourceClient
    landing: Landing
    plan: FlowPlan
    start: Offsets
    until: Offsets | None
    pace: Pace
    stop: threading.Event
    watcher: Watcher
    gate: Gate = field(init=False)
    query: StreamingQuery | None = None
    landed: int = 0

    def __post_init__(self) -> None:
        """Open the gate to Spark, still shut."""
        self.gate = Gate(self.start)
        self._position = dict(self.start)
        self._marks = self.client.marks()
        self._done = threading.Event()
        self._outcome: Outcome | None = None
        self._failure: BaseException | None = None
        self._recorded_at = time.monotonic()

    def run(self) -> Outcome | None:
        """Run until stopped or drained; an Outcome says which tables must change before the next life."""
        while not self.stop.is_set():
            ends = self.client.latest() if self.until is None else self.until
            if set(ends) - set(self._position) or self.client.marks() != self._marks:
                return Outcome()
            self.watcher.lag(self.plan.source_name, _distance(self._position, ends))
            end = self.pace.next_end(self._position, ends)
            if end is None:
                if self.until is not None:
                    break
                self._rest()
                continue
            outcome = self._batch(self.plan.cut(self._position, end), ends)
            if outcome.failures or outcome.proposals:
                return outcome
        failures = self.landing.record_positions()
        return Outcome(failures=failures) if failures else None

    def take(self, frame: DataFrame, _: int) -> None:
        """Land a batch: Spark's callback. The one action on its frame runs the tasks.

        Errors are kept for `run`, as Spark would bury them in a Java stack trace.
        """
        try:
            manifests = [Manifest.from_json(row[0]) for row in frame.collect()]
            passing("files_written")
            self._outcome = self.landing.land(self._spans, manifests)
            passing("batch_committed")
        except BaseException as error:
            self._failure = error
        finally:
            self._done.set()

    def _batch(self, end: Offsets, ends: Offsets) -> Outcome:
        began = time.monotonic()
        passing("batch_planned")
        self._spans = spans(self._position, end)
        self._done.clear()
        self.gate.open_to(end)
        while not self._done.wait(0.5):
            self._check_query()
        if self._failure:
            raise self._failure if not _is_spark(self._failure) else _batch_failed(self._failure)
        assert self._outcome is not None
        outcome, self._position = self._outcome, dict(end)
        self.landed += 1
        self.watcher.trouble(self.plan.source_name, "")
        self.pace.learn(outcome.read, outcome.size)
        lag = _distance(self._position, ends)
        seconds = time.monotonic() - began
        self.watcher.batch_done(BatchDone(self.plan.source_name, outcome.read, outcome.size, seconds, lag))
        return outcome

    def _rest(self) -> None:
        """Wait a little for events; record positions now and then."""
        self._check_query()
        if time.monotonic() - self._recorded_at > _RECORD_EVERY:
            self.landing.record_positions()
            self._recorded_at = time.monotonic()
        self.stop.wait(self.pace.nap)

    def _check_query(self) -> None:
        assert self.query is not None
        if not self.query.isActive and not self._done.is_set():
            error = self.query.exception()
            raise _batch_failed(error) if error else BatchFailed("Spark ended the query")


@contextmanager
def running(spark: SparkSession, life: Life, checkpoint: Path) -> Iterator[None]:
    """Start the query of a life, and end it whatever happens."""
    name = f"lakefeed_{life.plan.source_name}"
    spark.dataSource.register(data_source(name, life.gate.address, life.start, life.plan))
    frame = spark.readStream.format(name).load()
    writer = frame.writeStream.foreachBatch(life.take).option("checkpointLocation", str(checkpoint))
    life.query = writer.queryName(f"{life.plan.pipeline} {life.plan.source_name}").start()
    try:
        yield
    finally:
        # Between batches only: stopping a query inside its Python callback can kill the stream's thread.
        with suppress(Exception):
            life.query.stop()
        life.gate.close()
        life.landing.close()


def _distance(position: Offsets, ends: Offsets) -> int:
    return sum(max(0, ends.get(partition, at) - at) for partition, at in position.items())


def _is_spark(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def _batch_failed(error: BaseException) -> BatchFailed:
    """The line of a Spark error that says what happened; the whole of it is in Spark's log."""
    _log.debug("Spark failed", exc_info=error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line or "Exception" in line] or lines or [repr(error)]
    return BatchFailed(f"Spark lost a batch: {telling[-1][:300]}")
