"""Upkeep beside the stream: one thread that looks after all tables of a run, step by step."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pyarrow as pa
from deltalake.exceptions import CommitFailedError

from lakefeed.engine.agenda import Agenda
from lakefeed.engine.charges import Charge
from lakefeed.engine.faultpoints import passing
from lakefeed.engine.report import Upkept, Watcher
from lakefeed.errors import LakefeedError, TableError
from lakefeed.pipeline.partition_filter import parse_partition_filter
from lakefeed.pipeline.units import format_duration
from lakefeed.pipeline.upkeep import SHORTEST_RETENTION, Compact, DeleteAfter, Vacuum
from lakefeed.tables.layout import Partition, gathering_size, matching, partitions
from lakefeed.tables.retention import deleted_file_retention
from lakefeed.tables.rewrites import Change, literal, partition_predicate

_log = logging.getLogger("lakefeed")
_LOOK = 0.2
"""Seconds between two looks at whether the run is to stop."""
_COLD_AFTER = 6
"""A partition is cold when it got no file for so many intervals of compaction."""


class SteadyClock:
    """Tells how far the machine's clock has run ahead of the time that has passed.

    A clock that is set forward makes files look old that were written a moment ago.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall, self._steady = wall, steady
        self._began = wall() - steady()

    def ahead(self) -> float:
        """Seconds by which the clock was set forward since the start; zero if it was not."""
        return max(0.0, self._wall() - self._steady() - self._began)


class Caretaker:
    """Does what is due, one step after the other, and rests in between so that the stream has its time.

    No error of upkeep ends the run: what fails is logged once, and tried again at its next interval.
    """

    def __init__(
        self,
        charges: list[Charge],
        agenda: Agenda,
        watcher: Watcher,
        stop: threading.Event,
        clock: SteadyClock | None = None,
    ) -> None:
        self._charges = charges
        self._agenda = agenda
        self._watcher = watcher
        self._stop = stop
        self._ended = threading.Event()
        self._clock = clock or SteadyClock()
        self._told: dict[str, str] = {}

    def run(self) -> None:
        """Look after the tables until `end` is called or the run is stopped."""
        while True:
            waits = sorted(
                (
                    (self._wait(charge, name, every), at, name)
                    for at, charge in enumerate(self._charges)
                    for name, every in charge.intervals().items()
                )
            )
            if not waits or self.rest(min(60.0, max(_LOOK, waits[0][0]))):
                return
            for wait, at, name in waits:
                if wait <= 0 and self._charges[at].place.exists:
                    self.perform(self._charges[at], name)

    def end(self) -> None:
        """Do not begin another step."""
        self._ended.set()

    def rest(self, seconds: float) -> bool:
        """Wait; True when the run is to stop."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self._stop.is_set() or self._ended.wait(min(_LOOK, left)):
                return True
        return self._stop.is_set() or self._ended.is_set()

    def perform(self, charge: Charge, operation: str) -> None:
        """Do all steps of an operation that is due, and count its interval anew."""
        name = charge.place.name
        try:
            for _ in self._steps(charge, operation):
                pass
            self._told.pop(f"{name} {operation}", None)
        except CommitFailedError as error:
            # Somebody else has changed what was being rewritten: theirs stands, ours is done next time.
            _log.debug("%s: %s gave way", name, operation, exc_info=error)
        except Exception as error:
            self._tell(f"{name} {operation}", name, operation, error)
        self._agenda.done(name, operation)

    def _wait(self, charge: Charge, operation: str, every: float) -> float:
        return self._agenda.seconds_until(charge.place.name, operation, every)

    def _steps(self, charge: Charge, operation: str) -> Iterator[None]:
        steps = {"compact": self._compact, "cluster": self._cluster, "delete": self._delete}
        steps["vacuum"] = self._vacuum
        began = time.monotonic()
        for change in steps[operation](charge):
            passing(f"{operation}_done")
            # The stream's own snapshot moves on here, and not when its next batch wants to commit.
            with charge.place.lock:
                charge.place.table.refresh()
            seconds = time.monotonic() - began
            if change != Change():
                self._watcher.upkept(
                    Upkept(
                        charge.place.name,
                        operation,
                        change.files_before,
                        change.files_after,
                        change.bytes_before,
                        change.bytes_after,
                        seconds,
                    )
                )
            if self.rest(seconds * (1 / charge.upkeep.max_share - 1)):
                return
            yield
            began = time.monotonic()

    def _compact(self, charge: Charge) -> Iterator[Change]:
        spec = charge.upkeep.compact
        assert isinstance(spec, Compact)
        size = spec.target_file_size or charge.target_file_size
        snapshot = charge.rewrites.snapshot()
        found: Iterator[Partition] = iter(partitions(snapshot))
        if spec.where:
            found = matching(snapshot, found, parse_partition_filter(spec.where))
        cold_before = time.time() - _COLD_AFTER * spec.every
        for partition in found:
            cold = partition.newest < cold_before
            tier = gathering_size(partition, size, spec.min_files, cold=cold)
            if tier is not None:
                passing("compact_started")
                yield charge.rewrites.compact(partition, tier)

    def _cluster(self, charge: Charge) -> Iterator[Change]:
        """Order the partitions that got files since they were last put in order."""
        name, spec = charge.place.name, charge.upkeep.compact
        size = (spec.target_file_size if isinstance(spec, Compact) else None) or charge.target_file_size
        found = partitions(charge.rewrites.snapshot())
        marks = {one.key: self._agenda.ordered_at(name, one.key) for one in found}
        for partition in found:
            if partition.newest > marks[partition.key]:
                passing("cluster_started")
                change = charge.rewrites.cluster(partition, charge.cluster_by, size)
                there = {one.key: one for one in partitions(charge.rewrites.snapshot())}
                left = there.get(partition.key)
                # With a file that the stream has added meanwhile, the partition is not in order yet.
                if left is not None and len(left.sizes) == change.files_after:
                    marks[partition.key] = left.newest
                    self._agenda.set_ordered(name, marks)
                yield change

    def _delete(self, charge: Charge) -> Iterator[Change]:
        spec = charge.upkeep.delete_after
        assert isinstance(spec, DeleteAfter)
        snapshot = charge.rewrites.snapshot()
        schema = pa.schema(snapshot.schema().to_arrow())
        before = datetime.fromtimestamp(time.time() - self._clock.ahead() - spec.age, UTC)
        predicate = f"`{spec.column}` < {_moment(schema, spec.column, before, charge.place.name)}"
        laid_out = snapshot.metadata().partition_columns
        if spec.column in laid_out or not laid_out:
            passing("delete_started")
            yield charge.rewrites.delete(predicate)
            return
        for partition in partitions(snapshot):
            passing("delete_started")
            yield charge.rewrites.delete(f"{predicate} AND {partition_predicate(partition)}")

    def _vacuum(self, charge: Charge) -> Iterator[Change]:
        spec = charge.upkeep.vacuum
        assert isinstance(spec, Vacuum)
        own = deleted_file_retention(charge.rewrites.snapshot().metadata().configuration)
        retain = max(own, SHORTEST_RETENTION) if spec.retain is None else spec.retain
        if retain < own and not spec.allow_short_retention:
            raise TableError(
                f"`retain` is {format_duration(retain)}, but the table promises {format_duration(own)} "
                "(delta.deletedFileRetentionDuration).\n"
                "Make `retain` as long, or set `allow_short_retention: true`."
            )
        passing("vacuum_started")
        yield charge.rewrites.vacuum(
            retain + self._clock.ahead(), on_delete=lambda: passing("vacuum_deleted")
        )

    def _tell(self, key: str, table: str, operation: str, error: Exception) -> None:
        if self._stop.is_set() or self._ended.is_set():
            _log.debug("upkeep ended in the middle", exc_info=error)
            return
        text = str(error) if isinstance(error, LakefeedError) else str(error).strip().split("\n")[0]
        if self._told.get(key) != text:
            self._told[key] = text
            _log.warning("%s: %s of upkeep failed, the stream goes on: %s", table, operation, text)
        _log.debug("upkeep failed", exc_info=error)


def _moment(schema: pa.Schema, column: str, before: datetime, table: str) -> str:
    if column not in schema.names:
        raise TableError(f"table {table}: `delete_after` names the column '{column}', which it has not.")
    kind = schema.field(column).type
    if pa.types.is_date(kind):
        return literal(before.date().isoformat())
    if pa.types.is_timestamp(kind):
        return literal(before.isoformat().replace("+00:00", "Z"))
    raise TableError(f"table {table}: `delete_after` needs a timestamp or date, '{column}' is {kind}.")


@contextmanager
def beside(caretaker: Caretaker, patience: float) -> Iterator[None]:
    """Run upkeep in a thread of its own while the body runs; a step that runs on is waited for briefly."""
    thread = threading.Thread(target=caretaker.run, name="upkeep", daemon=True)
    thread.start()
    try:
        yield
    finally:
        caretaker.end()
        thread.join(patience)
        if thread.is_alive():
            _log.info("a step of upkeep did not end in time and was left; it is done again another time")
