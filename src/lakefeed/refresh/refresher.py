"""Refreshers: a thread for each table with a query, beside the flows that feed the tables which it reads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from lakefeed.engine.run_events import InputsSeen, RefreshFailed, TableStopped, Watcher
from lakefeed.errors import Fenced, LakefeedError, TableError
from lakefeed.handles.query.inputs import QueryFreshness
from lakefeed.handles.tables import Tables
from lakefeed.refresh.refresh import Query, Refresh
from lakefeed.sources import has_taken_over
from lakefeed.text import first_line, listed

_log = logging.getLogger("lakefeed")
_TRIES = 3
"""How often a run that ends by itself tries what may work a moment later."""
_SHORTEST_LOOK, _LONGEST_LOOK = 0.1, 5.0


class Refresher:
    """Keeps one table up to date."""

    def __init__(
        self, refresh: Refresh, watch: Watcher, stop: threading.Event, has_taken_over: Callable[[], bool]
    ) -> None:
        self.refresh = refresh
        self._has_taken_over = has_taken_over
        self.name = refresh.name
        self.error: LakefeedError | None = None
        """What has stopped the table, or ended the last try."""
        assert refresh.handle.spec is not None
        self._every = refresh.handle.spec.refresh_every
        self._watch = watch
        self._stop = stop
        self._told: InputsSeen | None = None
        self._failing = False

    def prepare(self) -> bool:
        """Let Spark read the query; False when the table is stopped, as it can never run."""
        try:
            self.refresh.prepare()
        except TableError as error:
            self._give_up(error)
        return self.error is None

    def run(self) -> None:
        """Refresh whenever there is something new, at most every `refresh`, until the run is stopped.

        Raises Fenced, which ends the run; every other error is told, and what failed is tried again.
        """
        pause = min(_LONGEST_LOOK, max(_SHORTEST_LOOK, self._every / 10))
        due = 0.0
        while not self._stop.is_set():
            began = time.monotonic()
            if began >= due and self._attempt():
                due = began + self._every
            self._stop.wait(pause)

    def finish(self) -> None:
        """Bring the table up to date once, for a run that ends by itself."""
        for left in reversed(range(_TRIES)):
            self._attempt()
            if self.error is None or not self.error.retryable or self._stop.is_set() or not left:
                break
            self._stop.wait(1.0)
        if self.error is None and self._told and self._told.missing:
            _log.warning(
                "table %s: not computed, there is no table %s yet", self.name, listed(self._told.missing)
            )

    def _attempt(self) -> bool:
        """Refresh if something is new; whether the query was run, or failed."""
        try:
            freshness = self.refresh.look()
            self._tell(freshness)
            if not freshness.is_due:
                # What failed with rows that are gone by now is no failure any more.
                self._recover(freshness)
                return False
            self.refresh.run(freshness)
            self.error, self._failing = None, False
            self._tell(self.refresh.look())
        except Fenced as error:
            if not self._has_taken_over():
                raise
            # It was the last refresh of the run before this one.
            self._fail(error)
        except Exception as error:
            self._fail(error)
        return True

    def _fail(self, error: Exception) -> None:
        """Tell what happened; the rows that are there stay."""
        if self._stop.is_set():
            _log.debug("a refresh was cut short", exc_info=error)
            return
        known = error if isinstance(error, LakefeedError) else _defect(self.name, error)
        self.error, self._failing = known, True
        _log.debug("a refresh failed", exc_info=error)
        self._watch(RefreshFailed(self.name, str(known)))

    def _recover(self, freshness: QueryFreshness) -> None:
        if self._failing and freshness.behind == 0:
            self.error, self._failing = None, False
            self._watch(RefreshFailed(self.name, ""))

    def _give_up(self, error: LakefeedError) -> None:
        self.error = error
        error.reported = True
        self._watch(TableStopped(self.name, str(error)))

    def _tell(self, freshness: QueryFreshness) -> None:
        behind = {name: len(one.changed) for name, one in freshness.seen.items()}
        recorded = freshness.recorded
        told = InputsSeen(
            self.name, dict(recorded or {}), {} if recorded is None else behind, freshness.missing
        )
        if told != self._told:
            self._told = told
            self._watch(told)


class Refreshers:
    """All of them, each behind those whose tables it reads."""

    def __init__(
        self,
        tables: Tables,
        query: Callable[[str], Query],
        watch: Watcher,
        stop: threading.Event,
        *,
        once: bool,
    ) -> None:
        self._once = once
        self._stop = stop
        self._errors: list[LakefeedError] = []
        last = partial(has_taken_over, tables.pipeline)
        self._all = [
            Refresher(Refresh(tables, query(name), watch), watch, stop, last)
            for name in tables.pipeline.queries()
        ]

    @contextmanager
    def beside(self, timeout: float) -> Iterator[None]:
        """Run them while the body runs; a run that ends by itself refreshes behind it, in order."""
        ready = [one for one in self._all if one.prepare()]
        threads = [] if self._once else [self._start(one) for one in ready]
        failed: LakefeedError | None = None
        try:
            yield
        except LakefeedError as error:
            # A source or a table that has stopped is no reason to leave the others as they were.
            if not error.reported:
                raise
            failed = error
        finally:
            self._end(threads, timeout)
        if self._once and not self._stop.is_set():
            self._finish(ready)
        errors = [*self._errors, *(one.error for one in self._all if one.error and self._once)]
        stopped = [one.error for one in self._all if one.error and one.error.reported]
        for found in (*errors, failed, *stopped):
            if found is not None:
                raise found

    def _start(self, one: Refresher) -> threading.Thread:
        thread = threading.Thread(target=self._run, args=(one,), name=f"query {one.name}", daemon=True)
        thread.start()
        return thread

    def _run(self, one: Refresher) -> None:
        try:
            one.run()
        except LakefeedError as error:
            self._errors.append(error)
            self._stop.set()

    def _finish(self, ready: list[Refresher]) -> None:
        """In a thread of its own, so that a signal can end what Spark runs."""

        def finish() -> None:
            for one in ready:
                if self._stop.is_set():
                    return
                try:
                    one.finish()
                except LakefeedError as error:
                    self._errors.append(error)
                    return

        thread = threading.Thread(target=finish, name="queries", daemon=True)
        thread.start()
        while thread.is_alive() and not self._stop.is_set():
            thread.join(0.1)
        if thread.is_alive():
            self._cancel()
            thread.join(_LONGEST_LOOK)

    def _end(self, threads: list[threading.Thread], timeout: float) -> None:
        if not any(thread.is_alive() for thread in threads):
            return
        self._stop.set()
        self._cancel()
        deadline = time.monotonic() + timeout
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            _log.info("a refresh did not end in time and was abandoned; the next start does it")

    def _cancel(self) -> None:
        for one in self._all:
            one.refresh.query.cancel()


def _defect(table: str, error: Exception) -> LakefeedError:
    return TableError(f"table {table}: the refresh failed: {first_line(str(error) or repr(error), 1_000)}")
