"""The supervisor: a thread for each flow, and what an error of one means for the others."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from lakefeed.engine.defects import defect_of, kept
from lakefeed.engine.faultpoints import END_POINT, passing
from lakefeed.engine.flow import Flow
from lakefeed.engine.retries import Retries
from lakefeed.engine.run_events import SourceStopped, Watcher
from lakefeed.errors import Defect, Fenced, GaveUp, LakefeedError, SourceError, TableError
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.units import format_duration

_log = logging.getLogger("lakefeed")
_LOOK = 1.0
"""Seconds between two looks whether another run receives the events."""


class Supervisor:
    """Runs each flow in a thread of its own."""

    def __init__(
        self,
        pipeline: Pipeline,
        flows: list[Flow],
        watch: Watcher,
        stop: threading.Event,
        receivers: Mapping[str, Callable[[], None]] | None = None,
    ) -> None:
        """`receivers` are sources that take events while this process runs, though no table may read them.

        Each has what raises Fenced where another run has taken over.
        """
        self._receivers = receivers or {}
        self._pipeline = pipeline
        self._flows = flows
        self._watch = watch
        self._stop = stop
        self._errors: list[BaseException] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._stopped: set[str] = set()
        """Sources of which nothing is read any more."""
        self._graph = pipeline.graph
        self._ended = threading.Condition(self._lock)
        """Told when a flow has ended."""
        self._alive: Counter[str] = Counter(flow.source for flow in flows)
        """How many flows of each source have not ended."""

    def run(self) -> None:
        """Come back when every flow has ended; raise the first error."""
        for flow in list(self._flows):
            self._start(flow)
        while (running := self._running()) and not self._stop.is_set():
            # Until it ends: a run of some milliseconds must not take the length of a look.
            running[0].join(0.1)
        self._go_on_receiving()
        if self._stop.is_set():
            self._stop_flows()
        self._end_runs()
        errors = [*self._errors, *(error for flow in self._flows for error in flow.failures.values())]
        if errors:
            # What was shown when it happened must not hide what nobody has seen yet.
            raise min(errors, key=lambda error: getattr(error, "reported", False))

    def _go_on_receiving(self) -> None:
        """Take events until the end of the run, though all tables have stopped: their senders keep none."""
        receiving = [name for name in self._receivers if name not in self._stopped]
        if not receiving or self._stop.is_set():
            return
        _log.warning(
            "every table has stopped; source %s still takes events, which stay in its journal until the "
            "tables are repaired and the run is started again",
            ", ".join(receiving),
        )
        try:
            while not self._stop.wait(_LOOK):
                for name in receiving:
                    self._receivers[name]()
        except Fenced as error:
            self._errors.append(error)
            self._stop.set()

    def _end_runs(self) -> None:
        """Tell tables for which the run has read all that it was to read."""
        cut_short = self._stop.is_set() and any(flow.once for flow in self._flows)
        fatal = any(not getattr(error, "reported", False) for error in self._errors)
        if cut_short or fatal or self._running():
            return
        failed = {name for flow in self._flows for name in flow.failures}
        passing(END_POINT)
        for name, table in self._pipeline.tables.items():
            if name in failed or self._stopped.intersection(table.from_):
                continue
            try:
                self._flows[0].end_run(name)
            except LakefeedError as error:
                self._errors.append(error)

    def _start(self, flow: Flow) -> None:
        """Give a flow its thread; it may ask for more flows of its source."""
        flow.launch = self._launch
        thread = threading.Thread(target=self._run_flow, args=(flow,), name=flow.source, daemon=True)
        with self._lock:
            self._threads.append(thread)
        thread.start()

    def _launch(self, flow: Flow) -> None:
        with self._lock:
            self._flows.append(flow)
            self._alive[flow.source] += 1
            if self._stop.is_set() or flow.source in self._stopped:
                flow.stop.set()
        self._start(flow)

    def _running(self) -> list[threading.Thread]:
        with self._lock:
            return [thread for thread in self._threads if thread.is_alive()]

    def _stop_flows(self) -> None:
        """Let running batches end within `stop_timeout`; what is not committed by then is dropped whole."""
        with self._lock:
            flows = list(self._flows)
        for flow in flows:
            flow.stop.set()
        deadline = time.monotonic() + self._pipeline.stop_timeout
        for thread in self._running():
            thread.join(max(0.0, deadline - time.monotonic()))
        if self._running():
            _log.warning(
                "a batch did not end within stop_timeout (%s) and was dropped; the next start reads it again",
                format_duration(self._pipeline.stop_timeout),
            )

    def _run_flow(self, flow: Flow) -> None:
        """Run after run until one ends well, with back-off between those that fail."""
        try:
            if flow.once:
                self._wait_for(self._graph.sources_before(flow.source), flow.stop)
            retries = Retries(self._pipeline, flow, flow.assignment.failing_since)
            if flow.assignment.failing_since is not None:
                flow.stop.wait(retries.wait())
            while not flow.stop.is_set():
                try:
                    if flow.run():
                        return
                    retries.renew()
                except Exception as error:
                    if self._has_given_up(flow, retries, error):
                        return
        except BaseException as error:
            self._end(flow, error)
        finally:
            flow.assignment.leave()
            with self._ended:
                self._alive[flow.source] -= 1
                self._ended.notify_all()
            if not self._alive[flow.source]:
                flow.assignment.assignments.leave()

    def _wait_for(self, sources: Iterable[str], stop: threading.Event) -> None:
        """Wait until every flow of these sources has ended, well or not, or `stop` is set.

        So a run that ends by itself goes along the graph: what feeds a table is read first, and then all
        that the table holds.
        """
        wanted = set(sources)
        with self._ended:
            while any(self._alive[source] for source in wanted) and not stop.is_set():
                self._ended.wait(0.1)

    def _end(self, flow: Flow, error: BaseException) -> None:
        """Decide whom an error ends: the tables of an extra flow, their source, or all, as without Spark."""
        if isinstance(error, SourceError | Defect | GaveUp) and not flow.has_lost_spark:
            if flow.source in self._stopped:
                return
            if flow.assignment.is_extra:
                flow.give_up(error)
                return
            self._watch(SourceStopped(flow.source, str(error)))
            error.reported = True
            self._errors.append(error)
            self._stop_source(flow.source)
        elif flow.stop.is_set() and not isinstance(error, Fenced):
            _log.debug("error while stopping", exc_info=error)
        else:
            self._errors.append(error)
            self._stop.set()

    def _stop_source(self, source: str) -> None:
        """Let tables that catch up end with the others of their source; else the run would never end."""
        with self._lock:
            self._stopped.add(source)
            for flow in self._flows:
                if flow.source == source:
                    flow.stop.set()

    def _has_given_up(self, flow: Flow, retries: Retries, error: Exception) -> bool:
        """Wait for the next try; or go on without the tables of a flow, if the others need not care."""
        known = error if isinstance(error, LakefeedError) else defect_of(error)
        if known.waits and not flow.once:
            flow.assignment.trouble(str(known), waits=True)
            flow.stop.wait(retries.wait())
            return False
        if not known.retryable:
            raise error
        if isinstance(known, Defect):
            known = kept(self._pipeline, flow.source, known)
        try:
            wait = retries.after(known)
        except (GaveUp, Defect) as gave_up:
            if flow.has_lost_spark or not (isinstance(known, TableError) or flow.assignment.is_extra):
                raise
            return flow.give_up(gave_up)
        flow.assignment.trouble(str(known))
        flow.stop.wait(wait)
        return False
