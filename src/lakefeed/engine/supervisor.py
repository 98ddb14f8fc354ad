"""The supervisor: starts Spark and a flow for each source, and decides what an error means for the others."""

from __future__ import annotations

import fcntl
import logging
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from lakefeed.engine.agenda import Agenda
from lakefeed.engine.charges import charges_of
from lakefeed.engine.delta_spark import delta_settings, needs_delta
from lakefeed.engine.flow import Flow
from lakefeed.engine.lake import Lake
from lakefeed.engine.report import Quiet, Watcher
from lakefeed.engine.session import spark_session
from lakefeed.engine.upkeep import Caretaker, beside
from lakefeed.errors import BatchFailed, Fenced, GaveUp, LakefeedError, SourceError, UsageError
from lakefeed.pipeline.model import Pipeline
from lakefeed.pipeline.units import format_duration

_log = logging.getLogger("lakefeed")
_FIRST_WAIT = 0.5
_LONGEST_WAIT = 30.0
_BATCH_ATTEMPTS = 5
"""How often a batch that Spark loses is tried again: waiting longer does not bring it back."""


def run(
    pipeline: Pipeline,
    *,
    once: bool = False,
    master: str | None = None,
    watcher: Watcher | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Run a pipeline until `stop` is set, or with `once` until all is read that was there at the start.

    Raises the first error that ended a source or a table, after the others have come to their end.
    """
    state = Path(pipeline.state) / pipeline.name
    with _only_instance(state, pipeline.name):
        lake = Lake(pipeline)
        chosen = master or pipeline.spark.master
        conf = (
            pipeline.spark.conf if once or not needs_delta(pipeline) else delta_settings(pipeline.spark.conf)
        )
        with spark_session(pipeline.name, chosen, conf, state / "spark.log") as session:
            flows = [
                Flow(lake, name, session, state / "checkpoints", watcher or Quiet(), once=once)
                for name in pipeline.sources
            ]
            ended = stop or threading.Event()
            # A run that ends by itself is over before anything is due.
            charges = [] if once else list(charges_of(lake, session, ended.is_set))
            caretaker = Caretaker(charges, Agenda(state / "upkeep.json"), watcher or Quiet(), ended)
            with beside(caretaker, pipeline.stop_timeout):
                Supervisor(pipeline, flows, watcher or Quiet(), ended).run()


class Supervisor:
    """Runs each flow in a thread of its own."""

    def __init__(
        self, pipeline: Pipeline, flows: list[Flow], watcher: Watcher, stop: threading.Event
    ) -> None:
        self._pipeline = pipeline
        self._flows = flows
        self._watcher = watcher
        self._stop = stop
        self._errors: list[BaseException] = []

    def run(self) -> None:
        """Come back when every flow has ended; raise the first error."""
        threads = [
            threading.Thread(target=self._keep_alive, args=(flow,), name=flow.source, daemon=True)
            for flow in self._flows
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) and not self._stop.wait(0.1):
            pass
        if self._stop.is_set():
            self._stop_flows(threads)
        errors = [*self._errors, *(error for flow in self._flows for error in flow.failures.values())]
        if errors:
            raise errors[0]

    def _stop_flows(self, threads: list[threading.Thread]) -> None:
        """Let running batches end within `stop_timeout`; what is not committed by then is dropped whole."""
        for flow in self._flows:
            flow.stop.set()
        deadline = time.monotonic() + self._pipeline.stop_timeout
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            _log.warning(
                "a batch did not end within stop_timeout (%s) and was dropped; the next start reads it again",
                format_duration(self._pipeline.stop_timeout),
            )

    def _keep_alive(self, flow: Flow) -> None:
        try:
            self._live(flow)
        except SourceError as error:
            self._watcher.stopped(f"source {flow.source}", str(error))
            self._errors.append(error)
        except BaseException as error:
            if flow.stop.is_set() and not isinstance(error, Fenced):
                _log.debug("error while stopping", exc_info=error)
                return
            self._errors.append(error)
            self._stop.set()

    def _live(self, flow: Flow) -> None:
        """Life after life until one ends well, with back-off between those that fail."""
        failing_since: float | None = None
        attempts = lost = landed = 0
        while not flow.stop.is_set():
            try:
                if flow.live():
                    return
                failing_since, attempts, lost = None, 0, 0
            except LakefeedError as error:
                if not error.retryable:
                    raise
                if flow.landed != landed:
                    failing_since, attempts, lost, landed = None, 0, 0, flow.landed
                failing_since = failing_since or time.monotonic()
                lost += isinstance(error, BatchFailed)
                if lost > _BATCH_ATTEMPTS:
                    log = Path(self._pipeline.state) / self._pipeline.name / "spark.err"
                    raise GaveUp(f"{error}\nThe same batch failed {lost} times; see {log}.") from error
                if time.monotonic() - failing_since > self._pipeline.give_up_after:
                    patience = format_duration(self._pipeline.give_up_after)
                    raise GaveUp(
                        f"{error}\nGave up after {patience}; the next start goes on from the tables."
                    ) from error
                self._watcher.trouble(flow.source, str(error))
                wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2**attempts) * random.uniform(0.8, 1.2)
                attempts = min(attempts + 1, 10)
                flow.stop.wait(wait)


@contextmanager
def _only_instance(state: Path, name: str) -> Iterator[None]:
    """Refuse a second instance on this machine at once; elsewhere the tables' own fence does it."""
    lock: IO[str]
    try:
        state.mkdir(parents=True, exist_ok=True)
        lock = (state / "lock").open("w")
    except OSError as error:
        raise UsageError(
            f"{state} cannot be written: {error.strerror}.\nSet `state` to a folder that can."
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Fenced(
                f"pipeline {name} is already running on this machine (its lock is {state / 'lock'}). "
                "Stop that one first, or give this one another `name`."
            ) from error
        yield
