"""Upkeep beside the stream: one thread that looks after all tables of a run, step by step."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime

import pyarrow as pa

from lakefeed.engine.faultpoints import passing
from lakefeed.engine.run_events import UpkeepDone, Watcher
from lakefeed.errors import Conflict, LakefeedError, TableError
from lakefeed.pipeline.upkeep import Compact, DeleteAfter, Vacuum
from lakefeed.tables.data_files import data_files
from lakefeed.tables.log.data_file import Extent, Partition, by_partition, extent, partition_text
from lakefeed.tables.operations import vacuum
from lakefeed.tables.rewrite import z_order
from lakefeed.tables.rewrite.compact import table_is_worn
from lakefeed.tables.rewrite.conditions import partition_conditions, text_literal
from lakefeed.tables.rewrite.tiers import Due, due_for_compaction, even_size
from lakefeed.tables.table import LakeTable
from lakefeed.text import in_backticks
from lakefeed.upkeep.jobs import UpkeepJob
from lakefeed.upkeep.rewriter import BeyondMemory, FileChange
from lakefeed.upkeep.schedule import Schedule

_log = logging.getLogger("lakefeed")
_LOOK = 0.2
"""Seconds between two looks at whether the run is to stop."""
_AGAIN = 60.0
"""Seconds after which an operation that gave way is tried again, if its interval is not shorter."""
_WORN_LOOK = 2.0
"""Seconds between two looks at how many rows of a table deletion vectors delete."""
_COLD_AFTER = 6
"""A partition is cold when it got no file for so many intervals of compaction."""


class SteadyClock:
    """The machine's clock, but for what it was set forward since the start of the run.

    A clock that is set forward makes files look old that were written a moment ago, and rows too.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall, self._steady = wall, steady
        self._began = wall() - steady()

    def now(self) -> float:
        """Seconds since 1970."""
        return min(self._wall(), self._began + self._steady())


class Scheduler:
    """Does what is due, one step after the other, and rests in between so that the stream has its time.

    No error of upkeep ends the run: what fails is logged once, and tried again at its next interval.
    """

    def __init__(
        self,
        jobs: Sequence[UpkeepJob] | Callable[[], Sequence[UpkeepJob]],
        schedule: Schedule,
        watch: Watcher,
        stop: threading.Event,
        clock: SteadyClock | None = None,
    ) -> None:
        self._look = jobs if callable(jobs) else lambda: jobs
        self._jobs: Sequence[UpkeepJob] = ()
        self._schedule = schedule
        self._watch = watch
        self._stop = stop
        self._ended = threading.Event()
        self._clock = clock or SteadyClock()
        self._told: set[str] = set()
        self._in_vain: set[str] = set()
        """Tables whose last compaction found nothing to do, or failed: the next waits for its interval."""

    def run(self) -> None:
        """Look after the tables until `end` is called or the run is stopped.

        Tables take turns, a step each, so that one with much to do does not keep the others waiting; each has
        one operation at a time.
        """
        at_work: dict[int, tuple[str, Iterator[None]]] = {}
        while not self._stopping():
            try:
                self._jobs = self._look()
                waits = self._waits()
            except Exception as error:
                # A store that is away, most often: the tables of a route are looked for anew.
                self._tell("all tables", "the search for work", error)
                if self.rest(_AGAIN):
                    return
                continue
            for wait, at, name in waits:
                if wait <= 0 and at not in at_work:
                    at_work[at] = (name, self._steps(self._jobs[at], name))
            for at, (name, steps) in list(at_work.items()):
                if not self._advance(self._jobs[at], name, steps):
                    del at_work[at]
            if not waits or (not at_work and self.rest(self._pause(waits[0][0]))):
                return

    def end(self) -> None:
        """Do not begin another step."""
        self._ended.set()

    def rest(self, seconds: float) -> bool:
        """Wait; True when the run is to stop."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self._stop.is_set() or self._ended.wait(min(_LOOK, left)):
                return True
        return self._stopping()

    def _stopping(self) -> bool:
        return self._stop.is_set() or self._ended.is_set()

    def _waits(self) -> list[tuple[float, int, str]]:
        """Every operation with the seconds until it is due and the number of its table, soonest first."""
        waits = []
        for at, job in enumerate(self._jobs):
            for name, every in job.intervals().items():
                wait = self._schedule.seconds_until(job.handle.name, name, every)
                if name == "compact" and wait > 0 and self._is_worn(job):
                    wait = 0.0
                waits.append((wait, at, name))
        return sorted(waits)

    def _pause(self, wait: float) -> float:
        """How long to rest until the next look, where the next operation is due after some seconds."""
        marks = any(job.handle.exists and job.handle.table.has_vectors for job in self._jobs)
        return min(_WORN_LOOK if marks else 60.0, max(_LOOK, wait))

    def _is_worn(self, job: UpkeepJob) -> bool:
        """Whether readers of the table read too many deleted rows, and a compaction can help.

        The stream's own snapshot tells, so that its store is asked only for what others have committed. A
        log that cannot be read is told by the compaction, when it is due.
        """
        spec, handle = job.upkeep.compact, job.handle
        if not isinstance(spec, Compact) or handle.name in self._in_vain or not handle.exists:
            return False
        with handle.lock, suppress(LakefeedError, OSError):
            return table_is_worn(handle.table, spec.max_deleted)
        return False

    def _advance(self, job: UpkeepJob, operation: str, steps: Iterator[None]) -> bool:
        """Do one step; False when the operation is over, and its interval is counted anew."""
        name = job.handle.name
        try:
            next(steps)
            return True
        except StopIteration:
            wait = job.intervals()[operation]
        except Conflict as error:
            # Somebody else has changed what was being rewritten: theirs stands, ours is done later.
            _log.debug(
                "%s: %s was abandoned, another writer committed first", name, operation, exc_info=error
            )
            wait = _AGAIN
        except Exception as error:
            self._tell(name, operation, error)
            wait = job.intervals()[operation]
        # What a stop cuts short is still due at the next start.
        if not self._stopping():
            self._schedule.wait(name, operation, job.intervals()[operation], wait)
        return False

    def _steps(self, job: UpkeepJob, operation: str) -> Iterator[None]:
        steps = {"compact": self._compact, "cluster": self._cluster, "delete": self._delete}
        steps["vacuum"] = self._vacuum
        began = time.monotonic()
        for change in steps[operation](job) if job.handle.exists else ():
            passing(f"{operation}_done")
            # The stream's own snapshot moves on here, and not when its next batch wants to commit.
            with job.handle.lock:
                job.handle.table.refresh()
            seconds = time.monotonic() - began
            if change != FileChange():
                self._watch(UpkeepDone(job.handle.name, operation, **asdict(change), seconds=seconds))
            if self.rest(seconds * (1 / job.upkeep.max_share - 1)):
                return
            yield
            began = time.monotonic()

    def _compact(self, job: UpkeepJob) -> Iterator[FileChange]:
        self._in_vain.add(job.handle.name)
        due = _due(job)
        if not due:
            return
        while due:
            self._in_vain.add(job.handle.name)
            passing("compact_started")
            change = job.rewriter.compact(*due[0])
            self._in_vain.discard(job.handle.name)
            yield change
            # Where rows are marked, other files are the most worn by now, and small ones have come.
            marks = len(due) > 1 and job.handle.table.has_vectors
            due = _due(job)[: len(due) - 1] if marks else due[1:]
        job.rewriter.checkpoint()
        yield FileChange()

    def _cluster(self, job: UpkeepJob) -> Iterator[FileChange]:
        """Order the partitions that got files since they were last put in order."""
        name, table = job.handle.name, job.rewriter.table()
        known = self._schedule.ordered(name)
        first = 0 if known is None else table.version + 1
        plan = z_order.plan(table, job.cluster_by, target_size=_target_size(job), first_entry=first)
        marks = self._marks(job, plan, known)
        for step in plan.steps:
            key = partition_text(step.partition)
            if max(file.modified for file in step.files) / 1000 <= marks.get(key, 0.0):
                continue
            passing("cluster_started")
            try:
                size = even_size(step.before.bytes, plan.target_size)
                change = job.rewriter.cluster(replace(plan, target_size=size), step)
            except BeyondMemory as error:
                self._tell(name, "cluster", error)
                continue
            count, newest = self._files(job).get(step.partition, (0, 0.0))
            # With a file that the stream has added meanwhile, the partition is not in order yet.
            if count == change.files_after:
                marks[key] = newest
            self._schedule.set_ordered(name, marks)
            yield change

    def _marks(
        self, job: UpkeepJob, plan: z_order.ZOrderPlan, known: dict[str, float] | None
    ) -> dict[str, float]:
        """Up to when each partition that there still is is in order, by the schedule or else by the log."""
        there = {partition_text(partition): at for partition, (_, at) in self._files(job).items()}
        if known is not None:
            return {key: at for key, at in known.items() if key in there}
        waiting = {partition_text(step.partition) for step in plan.steps}
        return {key: at for key, at in there.items() if key not in waiting}

    def _files(self, job: UpkeepJob) -> dict[Partition, tuple[int, float]]:
        """How many files each partition has, and when the newest was added, in seconds since 1970."""
        groups = by_partition(data_files(job.rewriter.table()))
        return {
            partition: (len(files), max(file.modified for file in files) / 1000)
            for partition, files in groups.items()
        }

    def _delete(self, job: UpkeepJob) -> Iterator[FileChange]:
        spec, table = job.upkeep.delete_after, job.rewriter.table()
        assert isinstance(spec, DeleteAfter)
        before = datetime.fromtimestamp(self._clock.now() - spec.age, UTC)
        condition = f"{in_backticks(spec.column)} < {_moment(table, spec.column, before)}"
        whole = spec.column in table.partition_columns
        for partition in [()] if whole else by_partition(data_files(table, condition)):
            passing("delete_started")
            yield job.rewriter.delete(" AND ".join([condition, *partition_conditions(partition)]))

    def _vacuum(self, job: UpkeepJob) -> Iterator[FileChange]:
        spec = job.upkeep.vacuum
        assert isinstance(spec, Vacuum)
        try:
            plan = vacuum.plan(
                job.rewriter.table(),
                retain=spec.retain,
                allow_short=spec.allow_short_retention,
                now=self._clock.now(),
            )
        except TableError as error:
            told = str(error).replace("--allow-short-retention", "allow_short_retention: true")
            raise TableError(told) from error
        passing("vacuum_started")
        yield job.rewriter.vacuum(plan, lambda: passing("vacuum_deleted"))

    def _tell(self, table: str, operation: str, error: Exception) -> None:
        """Log what could not be done, each thing once."""
        _log.debug("upkeep failed", exc_info=error)
        text = str(error) if isinstance(error, LakefeedError) else str(error).strip().split("\n")[0]
        told = f"{table}: {operation} of upkeep failed, the stream continues: {text}"
        if not self._stopping() and told not in self._told:
            self._told.add(told)
            _log.warning("%s", told)


def _due(job: UpkeepJob) -> list[Due]:
    spec = job.upkeep.compact
    assert isinstance(spec, Compact)
    return due_for_compaction(
        job.rewriter.table(),
        target_size=_target_size(job),
        min_files=spec.min_files,
        where=spec.where,
        cold_before=time.time() - _COLD_AFTER * spec.every,
        max_deleted=spec.max_deleted,
    )


def _target_size(job: UpkeepJob) -> int:
    """The size of a full file; with `max_rows_per_file`, of one that has so many rows."""
    spec, table = job.upkeep.compact, job.rewriter.table()
    size = (spec.target_file_size if isinstance(spec, Compact) else None) or job.target_file_size
    most = job.handle.spec.max_rows_per_file if job.handle.spec else None
    there = extent(data_files(table)) if most else Extent()
    return min(size, max(1, there.bytes * most // there.rows)) if most and there.rows else size


def _moment(table: LakeTable, column: str, before: datetime) -> str:
    if column not in table.schema.names:
        raise TableError(
            f"{table.path} has no column {column!r}, which `delete_after` needs for the age of a row."
        )
    kind = table.schema.field(column).type
    if pa.types.is_date(kind):
        return text_literal(before.date().isoformat())
    if pa.types.is_timestamp(kind):
        return text_literal(before.isoformat().replace("+00:00", "Z"))
    raise TableError(f"{table.path}: `delete_after` needs a timestamp or date, {column!r} is {kind}.")


@contextmanager
def running(scheduler: Scheduler, timeout: float) -> Iterator[None]:
    """Run upkeep in a thread of its own while the body runs; a step that runs on is waited for briefly."""
    thread = threading.Thread(target=scheduler.run, name="upkeep", daemon=True)
    thread.start()
    try:
        yield
    finally:
        scheduler.end()
        thread.join(timeout)
        if thread.is_alive():
            _log.info("a step of upkeep did not end in time and was abandoned; it is tried again later")
