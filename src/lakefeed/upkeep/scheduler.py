"""Upkeep during a run: a few threads rewrite files of all tables step by step, others vacuum."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

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
from lakefeed.upkeep.rewriter import BeyondMemory, FileChange, Stopped
from lakefeed.upkeep.schedule import Schedule

_log = logging.getLogger("lakefeed")
_LOOK = 0.2
"""Seconds between two looks at whether the run is to stop."""
_AGAIN = 60.0
"""Seconds after which an operation that gave way is tried again, if its interval is not shorter."""
_VACUUMS = 4
"""Tables that are vacuumed at the same time."""
_STEPS = 4
"""Steps of other operations that are done at the same time."""
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


@dataclass
class _Work:
    """An operation on a table that has begun."""

    job: UpkeepJob
    operation: str
    steps: Iterator[float]
    due: float = 0.0
    """When the next step may begin, by the monotonic clock."""
    step: threading.Thread | None = None
    """The step that is being done."""
    is_done: bool = False
    rest: float | None = None
    """For how many seconds the table rests after it; None when the operation is over."""

    @property
    def is_vacuum(self) -> bool:
        """Whether it mostly waits for the store."""
        return self.operation == "vacuum"


class Scheduler:
    """Does what is due, step by step; a table rests between two steps so that the stream has its time.

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
        self._done = threading.Event()
        """Set when a step is done."""
        self._clock = clock or SteadyClock()
        self._told: set[str] = set()
        self._in_vain: set[str] = set()
        """Tables whose last compaction found nothing to do, or failed: the next waits for its interval."""
        self._ordering = threading.Lock()
        """A partition that is put in order may take half of the memory, so that none is beside it."""

    def run(self) -> None:
        """Look after the tables until `end` is called or the run is stopped.

        A few tables are at work at the same time, each with one operation, and while one rests another has
        its turn: one with much to do does not keep the others waiting.
        """
        at_work: dict[str, _Work] = {}
        try:
            self._run(at_work)
        finally:
            for work in at_work.values():
                if work.step is not None:
                    work.step.join()

    def run_due(self) -> None:
        """Do each operation that is due once, one after the other and without rests.

        For a run that ends by itself, when all events are committed.
        """
        try:
            self._jobs = self._look()
        except Exception as error:
            self._tell("all tables", "the search for work", error)
            return
        for job in self._jobs:
            for operation, every in job.intervals().items():
                if self._schedule.is_due(job.handle.name, operation, every):
                    steps = self._steps(job, operation)
                    while not self._stopping() and self._advance(job, operation, steps) is not None:
                        pass

    def _run(self, at_work: dict[str, _Work]) -> None:
        look_at = 0.0
        while not self._stopping():
            # Before the look at what is due: what ends after that is not due again.
            if self._take_note(at_work):
                look_at = 0.0
            if time.monotonic() >= look_at:
                try:
                    self._jobs = self._look()
                    waits = self._waits(at_work)
                except Exception as error:
                    # A store that is away, most often: the tables of a route are looked for anew.
                    self._tell("all tables", "the search for work", error)
                    look_at = time.monotonic() + _AGAIN
                else:
                    if not waits and not at_work:
                        return
                    self._begin([one for wait, *one in waits if wait <= 0], at_work)
                    look_at = time.monotonic() + self._pause(waits, at_work)
            self._go_on(at_work)
            left = look_at - time.monotonic()
            if self._wait(min(left, _LOOK) if at_work else left):
                return

    def _begin(self, due: Sequence[Sequence[Any]], at_work: dict[str, _Work]) -> None:
        """Take up operations on tables that have none."""
        for job, operation in due:
            vacuums = sum(work.is_vacuum for work in at_work.values())
            if job.handle.path not in at_work and (operation != "vacuum" or vacuums < _VACUUMS):
                at_work[job.handle.path] = _Work(job, operation, self._steps(job, operation))

    def _take_note(self, at_work: dict[str, _Work]) -> bool:
        """Look at the steps that are done; whether an operation is over."""
        over = []
        for name, work in at_work.items():
            if work.step is not None and work.is_done:
                work.step = None
                if work.rest is None:
                    over.append(name)
                else:
                    work.due = time.monotonic() + work.rest
        for name in over:
            del at_work[name]
        return bool(over)

    def _go_on(self, at_work: dict[str, _Work]) -> None:
        """Begin the steps that are due, those that have waited longest first."""
        busy = sum(work.step is not None and not work.is_vacuum for work in at_work.values())
        now = time.monotonic()
        waiting = [work for work in at_work.values() if work.step is None and work.due <= now]
        for work in sorted(waiting, key=lambda one: one.due):
            if work.is_vacuum or busy < _STEPS:
                busy += not work.is_vacuum
                name = f"{work.operation} {work.job.handle.name}"
                work.is_done = False
                work.step = threading.Thread(target=self._step, args=[work], name=name, daemon=True)
                work.step.start()

    def _step(self, work: _Work) -> None:
        work.rest = None
        try:
            work.rest = self._advance(work.job, work.operation, work.steps)
        finally:
            work.is_done = True
            self._done.set()

    def end(self) -> None:
        """Do not begin another step."""
        self._ended.set()

    def _wait(self, seconds: float) -> bool:
        """Wait until a step is done, or for so long; True when the run is to stop."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not self._stopping():
            if self._done.wait(min(_LOOK, left)):
                break
        self._done.clear()
        return self._stopping()

    def _stopping(self) -> bool:
        return self._stop.is_set() or self._ended.is_set()

    def _waits(self, at_work: Collection[str] = ()) -> list[tuple[float, UpkeepJob, str]]:
        """Every operation on the other tables with the seconds until it is due, soonest first."""
        waits = []
        for job in self._jobs:
            for name, every in job.intervals().items() if job.handle.path not in at_work else ():
                wait = self._schedule.seconds_until(job.handle.name, name, every)
                if name == "compact" and wait > 0 and self._is_worn(job):
                    wait = 0.0
                waits.append((wait, job, name))
        return sorted(waits, key=lambda one: one[0])

    def _pause(self, waits: Sequence[tuple[float, UpkeepJob, str]], at_work: Collection[str]) -> float:
        """How long to rest until the next look: until an operation is due."""
        soonest = min((wait for wait, job, _ in waits if job.handle.path not in at_work), default=60.0)
        marks = any(job.handle.exists and job.handle.table.has_vectors for job in self._jobs)
        return min(_WORN_LOOK if marks else 60.0, max(_LOOK, soonest))

    def _is_worn(self, job: UpkeepJob) -> bool:
        """Whether readers of the table read too many deleted rows, and a compaction can help.

        The stream's own snapshot tells, so that its store is asked only for what others have committed. A
        log that cannot be read is told by the compaction, when it is due.
        """
        spec, handle = job.upkeep.compact, job.handle
        if not isinstance(spec, Compact) or handle.name in self._in_vain or not handle.exists:
            return False
        if not handle.lock.acquire(blocking=False):
            # A commit, which may take its time: the next look tells.
            return False
        try:
            with suppress(LakefeedError, OSError):
                return table_is_worn(handle.table, spec.max_deleted)
            return False
        finally:
            handle.lock.release()

    def _advance(self, job: UpkeepJob, operation: str, steps: Iterator[float]) -> float | None:
        """Do one step; for how many seconds the table rests then.

        None when the operation is over, and its interval is counted anew.
        """
        name = job.handle.name
        try:
            return next(steps)
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
        return None

    def _steps(self, job: UpkeepJob, operation: str) -> Iterator[float]:
        """Do the steps of an operation; each time, for how many seconds the table is to rest."""
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
            yield 0.0 if operation == "vacuum" else seconds * (1 / job.upkeep.max_share - 1)
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
                with self._ordering:
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
            conditions = partition_conditions(partition, table.schema)
            yield job.rewriter.delete(" AND ".join([condition, *conditions]))

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
        yield job.rewriter.vacuum(plan, self._deleted)

    def _deleted(self) -> None:
        """A vacuum has deleted a file. Raises Stopped when the run ends: the next vacuum deletes the rest."""
        passing("vacuum_deleted")
        if self._stopping():
            raise Stopped

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
        max_rows=job.handle.spec.max_rows_per_file if job.handle.spec else None,
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
