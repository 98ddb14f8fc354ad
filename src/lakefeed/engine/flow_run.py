"""One run of a flow: a Structured Streaming query that reads batch after batch until something changes."""

from __future__ import annotations

import logging
import math
import pickle
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lakefeed.engine.assignment import Assignment, waiting
from lakefeed.engine.batch.committer import Committer
from lakefeed.engine.batch.event_counter import EventCounter
from lakefeed.engine.batch.limits import BatchLimits
from lakefeed.engine.batch.manifest import Manifest
from lakefeed.engine.batch.outcome import Outcome
from lakefeed.engine.batch.plan import FlowPlan, spans, splits
from lakefeed.engine.cores import ONE_CORE, Cores
from lakefeed.engine.faultpoints import passing
from lakefeed.engine.run_events import BatchDone, CoresSeen, SourceSeen, Watcher
from lakefeed.engine.spark.offset_channel import OffsetChannel
from lakefeed.engine.task.shuffle import JoinTask, join_tasks, replaced
from lakefeed.errors import BatchFailed, LakefeedError, Reassigned, SourceUnavailable, StoreUnavailable
from lakefeed.events import OffsetRange, Offsets, Reload
from lakefeed.handles.table_plan import TableId
from lakefeed.sources import SourceClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_log = logging.getLogger("lakefeed")
_RECORD_EVERY = 120.0
"""Seconds after which the positions of tables without rows are recorded; ever more while they get none."""
_RECORD_REFUSED_EVERY = 10.0
"""Seconds after which the positions of tables are recorded whose events all become dead letters."""
_CORES_EVERY = 1.0
"""Seconds for which the number of cores holds: to ask costs a millisecond."""
_WORTH_RECORDING = 10_000
"""Events that a table has read without getting rows, from which on it says so before a run ends."""


@dataclass
class FlowRun:
    """Plans a batch, lets Spark run it, and commits it; over and over, from the positions at its start."""

    client: SourceClient
    committer: Committer
    plan: FlowPlan
    cores: Callable[[], Cores]
    """Asked before each batch."""
    start: Offsets
    until: Offsets | None
    limits: BatchLimits
    stop: threading.Event
    watch: Watcher
    assignment: Assignment
    generation: int = 0
    """What was assigned to this process when the positions were read."""
    counter: EventCounter = field(default_factory=EventCounter)
    after_failure: bool = False
    """Whether the run before this one was lost with a batch in hand, or while it was planned: then only a
    commit tells that the trouble is over."""
    channel: OffsetChannel = field(init=False)
    query: StreamingQuery | None = None
    busy: bool = False
    """Whether a batch is in hand, or could not be planned."""

    def __post_init__(self) -> None:
        """Open the channel to Spark, which may read nothing yet."""
        self.channel = self._opened_channel()
        self.position = dict(self.start)
        """Where the next batch begins, or the one that is in hand has begun."""
        self._marks = self.committer.marks
        self._planned: list[OffsetRange] = []
        self._cores, self._cores_at = ONE_CORE, -math.inf
        self._reloads: list[Reload] = []
        self.counter.begin(self._marks)
        self._done = threading.Event()
        self._outcome: Outcome | None = None
        self._failure: BaseException | None = None
        self._recorded_at = self._refused_at = time.monotonic()
        self._calm = self._is_acknowledged = False
        self._landed_before, self._logged_before = self.assignment.batches, self.committer.committed()

    def _opened_channel(self) -> OffsetChannel:
        return OffsetChannel(self.start)

    def begin(self, spark: SparkSession, checkpoint: Path) -> None:
        """Start the query."""
        # Imports Spark, which a run that runs its tasks itself does not need.
        from lakefeed.engine.spark.query import manifests

        # Spark folds case in names, and pipelines of one program share its session.
        number = self.assignment.number
        mark = zlib.crc32(f"{self.plan.pipeline}/{self.plan.source_name}/{number}".encode())
        name = f"lakefeed_{self.plan.source_name}_{mark:08x}"
        frame = manifests(spark, name, self.channel.address, self.start, self.plan)
        writer = frame.writeStream.foreachBatch(self.take).option(
            "checkpointLocation", f"file://{checkpoint.absolute()}"
        )
        title = f"{self.plan.pipeline} {self.plan.source_name}" + (f" {number}" if number else "")
        self.query = writer.queryName(title).start()

    def run(self) -> Outcome | None:
        """Run until stopped or drained; an Outcome says which tables must change before the next run."""
        while not self.stop.is_set():
            seen = self.client.latest() if self.until is None else self.until
            ends = self.assignment.ends(seen) if self.until is None else self.until
            ends = self.assignment.own(ends)
            if self._has_changed(ends) or self.committer.awaiting_schema.is_made:
                return Outcome()
            self._tell(seen, ends)
            if self.assignment.is_over(self.client, self.position, ends, self.committer.is_kept):
                return self._hand_over()
            end = self._next_end(ends)
            if end is None and self.until is not None and self._is_settled:
                break
            outcome = self._rest() if end is None else self._batch(self.plan.cut(self.position, end), ends)
            if outcome.is_unfinished:
                # The next run reads again what no log holds. After small events without rows it would
                # plan the same batch of large ones, for ever.
                worth = 1 if outcome.overfull else _WORTH_RECORDING
                outcome.failures |= self.committer.record_positions(worth)
                return outcome
        failures = self._record()
        if self.until is not None and not self.stop.is_set():
            if self.committer.awaiting_schema.is_made and not failures:
                return Outcome()
            failures |= self.committer.awaiting_schema.failures()
        return Outcome(failures=failures) if failures else None

    @property
    def _is_settled(self) -> bool:
        """Whether what this process reads was known, and the same, for as long as the run has asked."""
        return self.assignment.is_settled and self.assignment.generation == self.generation

    def _next_end(self, ends: Offsets) -> Offsets | None:
        """Where the batch ends that is due now; None while none is."""
        count = waiting(self.client, self.position, ends)
        if count and time.monotonic() - self._cores_at >= _CORES_EVERY:
            self._cores, self._cores_at = self.cores(), time.monotonic()
        allowed = self.limits.allowed(count, self._cores.tasks)
        try:
            end = self.client.next_end(self.position, ends, allowed) if allowed else None
        except SourceUnavailable:
            # What was read without rows is kept: to read it again would look like progress.
            self.committer.record_positions()
            # An answer to the next look is not the end of this: the same batch has to be planned first.
            self.busy = True
            raise
        return None if end == self.position and self.until is None else end

    def _has_changed(self, ends: Offsets) -> bool:
        """Whether the source must be looked at as at a start: other partitions, topics or leaders.

        An end before the position means that the source has lost events which were read.
        """
        if set(ends) - set(self.position) or self.client.marks() != self._marks:
            return True
        if self.assignment.generation != self.generation:
            return True
        return self.until is None and any(ends.get(name, at) < at for name, at in self.position.items())

    def _hand_over(self) -> Outcome:
        """Let the logs say how far every table has come: whoever feeds it next goes on from there."""
        failures = self._record()
        return Outcome(failures=failures, over=not failures)

    def _record(self) -> dict[TableId, LakefeedError]:
        """Record all positions at the end of a run.

        What no log says, the next run reads again: then the batches of this one were no progress, and the
        patience with the store goes on to run out.
        """
        self._pass_over()
        failures = self.committer.record_positions()
        if failures and self.committer.committed() == self._logged_before:
            self.assignment.batches, self.busy = self._landed_before, True
        self._acknowledge()
        return failures

    def _acknowledge(self) -> None:
        """Tell the source what every table of the file has, whichever flow feeds it."""
        self._is_acknowledged = True
        if positions := self.assignment.committed(self.committer.committed()):
            self.assignment.acknowledge(self.client, positions)

    def _tell(self, seen: Offsets, ends: Offsets) -> None:
        """The source has answered; an old trouble is over if there is nothing left that could fail again."""
        client = self.client
        name = self.plan.source_name
        left_out = self.assignment.assignments.left_out(client)
        self.watch(SourceSeen(name, seen, client.rows_between, client.outstanding, client.remark, *left_out))
        if not self._calm and (not self.after_failure or not waiting(self.client, self.position, ends)):
            self._calm = True
            self.assignment.trouble("")

    def take(self, frame: DataFrame, number: int) -> None:
        """Commit a batch: Spark's callback. The one action on its frame runs the tasks.

        Errors are kept for `run`, as Spark would bury them in a Java stack trace. A query that finds nothing
        to read when it starts runs a first batch without tasks, which nobody has planned. It may even end
        after the next batch was planned, and says nothing about that one.
        """
        try:
            manifests = [Manifest.from_json(row[0]) for row in frame.collect()]
            if not manifests and (number == 0 or not self._planned):
                return
            self._shuffle(frame, manifests)
            passing("files_written")
            self._outcome = self.committer.commit(self._planned, manifests, self._confirm, self._reloads)
            passing("batch_committed")
        except BaseException as error:
            self._failure = error
        self._done.set()

    def _confirm(self) -> None:
        """Raise unless what was read may be committed: by the source, and by who is to read it."""
        self.client.confirm()
        if self.assignment.generation != self.generation:
            raise Reassigned(
                f"source {self.plan.source_name}: its partitions were assigned anew while a batch was read; "
                "reading continues from the tables"
            )

    def _shuffle(self, frame: DataFrame, manifests: list[Manifest]) -> None:
        """Let rows of one partition value meet, in tables that ask for it; the files before are deleted."""
        if any(manifest.error or manifest.overfull or manifest.ends for manifest in manifests):
            return
        tasks = join_tasks(self.plan, manifests, sum(self.position.values()), self._cores.tasks)
        if not tasks:
            return
        joined = self._join(frame, tasks)
        for manifest in joined:
            if manifest.error:
                raise manifest.error
        replaced(manifests, tasks, joined)
        for task in tasks:
            self.committer.delete_files(task.files)

    def _join(self, frame: DataFrame, tasks: Sequence[JoinTask]) -> list[Manifest]:
        """Run the tasks of the second stage on Spark's workers."""
        from lakefeed.engine.spark.worker import join_packed

        packed = [pickle.dumps(task) for task in tasks]
        work = frame.sparkSession.sparkContext.parallelize(packed, len(packed))
        return [
            Manifest.from_json(text)
            for text in work.map(partial(join_packed, pickle.dumps(self.plan))).collect()
        ]

    def _batch(self, end: Offsets, ends: Offsets) -> Outcome:
        began = time.monotonic()
        self.busy = True
        passing("batch_planned")
        self._planned = spans(self.position, end)
        self.client.rows_a_task = self.limits.rows_a_task
        tasks = splits(self.client, self.position, end, self.plan, self._cores.tasks)
        self._reloads = self.client.reloads(self._planned)
        if not tasks:
            # Its first batch without any task looks like the one that nobody has planned: see `take`.
            raise RuntimeError(f"source {self.plan.source_name} has planned no task for {self._planned}")
        self.watch(CoresSeen(self.plan.source_name, self._cores.running, self._cores.executors))
        self._done.clear()
        self.channel.open_to(end, tasks)
        while not self._done.wait(0.5):
            self._check_query()
        if self._failure:
            raise self._failure
        assert self._outcome is not None
        outcome, planned, self._planned = self._outcome, self._planned, []
        if outcome.overfull:
            self.limits.learn(*outcome.overfull)
            # `learn` doubles; a source that knows sizes only roughly would plan the same batch for ever.
            self.limits.shrink()
            self.limits.shrink()
            self.busy = False
            return outcome
        if outcome.ends:
            self.client.end_earlier(outcome.ends)
            self.busy = False
            return outcome
        outcome.start, self.position = self.position, dict(end)
        again = self.counter.again(planned, outcome.read)
        self._tell_batch(outcome, len(tasks), again, ends, time.monotonic() - began)
        if not outcome.failures:
            # A table that is empty is not one that was not read: those who look at its log can tell.
            if self.until is None and not outcome.proposals:
                outcome.failures |= self.committer.record_empty()
            outcome.failures |= self._record_now_and_then()
        if outcome.failures:
            return outcome
        if not outcome.proposals and not outcome.lacking:
            # A batch that a table must change for is no progress: the change may fail for good.
            self.assignment.batches += 1
            self.busy, self._calm = False, True
            self.assignment.trouble("")
        self.client.note(outcome.parts)
        self._acknowledge()
        self.limits.learn(sum(outcome.read.values()), outcome.size)
        return outcome

    def _tell_batch(self, outcome: Outcome, tasks: int, again: int, ends: Offsets, seconds: float) -> None:
        """Tell what was read, also by a batch that must run again for a table."""
        read, lag = sum(outcome.read.values()), waiting(self.client, self.position, ends)
        self.watch(BatchDone(self.plan.source_name, read, outcome.size, seconds, lag, again, tasks))

    def _rest(self) -> Outcome:
        """Wait a little for events."""
        self._check_query()
        if not self._is_acknowledged:
            # What a run before this one could not tell: a source that is full of it might send nothing more.
            self._acknowledge()
        self.stop.wait(self.limits.nap)
        return Outcome(failures=self._record_now_and_then())

    def _record_now_and_then(self) -> dict[TableId, LakefeedError]:
        """Record the positions of tables that get no rows, also while the others get some all the time."""
        now = time.monotonic()
        if now - self._recorded_at < _RECORD_EVERY:
            if now - self._refused_at < _RECORD_REFUSED_EVERY:
                return {}
            self._refused_at = now
            return self.committer.record_refused()
        self._recorded_at = self._refused_at = now
        self._pass_over()
        failures = self.committer.record_when_due()
        self._acknowledge()
        return failures

    def _pass_over(self) -> None:
        """Move on over offsets that hold no event: a source need not keep for ever what is of no use.

        Spark is not told; to it, the next batch begins where the last one has ended.
        """
        while True:
            end = self.plan.cut(self.position, self.client.pass_over(self.position))
            if not (passed := spans(self.position, end)):
                return
            self.committer.pass_over(passed)
            self.position = end

    def close(self) -> None:
        """End the query, and let go of what was opened for it."""
        # Between batches only: stopping a query inside its Python callback can kill the stream's thread.
        with suppress(Exception):
            if self.query:
                self.query.stop()
        self.channel.close()
        self.committer.close()

    def _check_query(self) -> None:
        if self._failure:
            raise self._failure
        assert self.query is not None
        if not self.query.isActive and not self._done.is_set():
            error = self.query.exception()
            raise _batch_failed(error) if error else BatchFailed("Spark ended the query")


@contextmanager
def spark_errors() -> Iterator[None]:
    """Turn what Spark raises into BatchFailed: a query that does not start, or a JVM that has gone.

    The same for what the machine refuses the driver, such as one more open file.
    """
    try:
        yield
    except Exception as error:
        if _is_spark(error):
            raise _batch_failed(error) from error
        if isinstance(error, OSError):
            raise BatchFailed(f"a batch could not be run on this machine: {error}") from error
        raise


def _is_spark(error: BaseException) -> bool:
    """Whether the error is Spark's by its type or by the code that raised it.

    What a JVM that has gone leaves behind may be a refused connection, or a slip in PySpark's own clean-up.
    """
    frame = error.__traceback__
    while frame and frame.tb_next:
        frame = frame.tb_next
    raised_in = frame.tb_frame.f_globals.get("__name__", "") if frame else ""
    packages = {name.partition(".")[0] for name in (type(error).__module__, raised_in)}
    return not packages.isdisjoint(("pyspark", "py4j")) or isinstance(error, ConnectionError)


def _batch_failed(error: BaseException) -> LakefeedError:
    """The line of a Spark error that says what happened; the whole of it is in Spark's log."""
    if "No space left on device" in str(error):
        # Not a batch that is lost: it runs as soon as there is space, be it in an hour.
        return StoreUnavailable(
            "Spark has no space left for its checkpoints (`state`) or its scratch files\n"
            "Free some space; the batch is tried again."
        )
    _log.debug("Spark failed", exc_info=error)
    # A slip while cleaning up hides what there was to clean up after.
    told = error.__context__ if isinstance(error, NameError) and error.__context__ else error
    # Behind what happened, Spark tells of the query that it happened to.
    text = str(told).partition("=== Streaming Query ===")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line or "Exception" in line] or lines or [repr(told)]
    return BatchFailed(f"Spark lost a batch: {telling[-1][:300]}")
