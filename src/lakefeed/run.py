"""A run: all parts of Lakefeed put together for one pipeline."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lakefeed.engine.flow import Flow
from lakefeed.engine.instance import one_of_many, only_instance
from lakefeed.engine.run_events import (
    RunEvent,
    SourceDescribed,
    Started,
    Starting,
    TableReached,
    Watcher,
    all_of,
    unwatched,
)
from lakefeed.engine.spark.analyzer import analyze_here
from lakefeed.engine.spark.delta import delta_settings, is_fetched, needs_delta
from lakefeed.engine.spark.machines import refuse_unshared_disks
from lakefeed.engine.spark.session import spark_session
from lakefeed.engine.start_positions import confirm_positions
from lakefeed.engine.supervisor import Supervisor
from lakefeed.errors import SourceError
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.refresh.refresher import Refreshers
from lakefeed.refresh.spark_query import SparkQuery
from lakefeed.sources import source_of
from lakefeed.sources.spark.query import filling
from lakefeed.sources.spark.source import SparkSource
from lakefeed.upkeep.file_counts import count_files
from lakefeed.upkeep.jobs import UpkeepJob, UpkeepJobs
from lakefeed.upkeep.schedule import Schedule
from lakefeed.upkeep.scheduler import Scheduler, running
from lakefeed.watch.state import RunState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakefeed.sources.http.receiver.server import Received

_log = logging.getLogger("lakefeed")


def run(
    pipeline: Pipeline,
    *,
    once: bool = False,
    master: str | None = None,
    watch: Watcher = unwatched,
    state: RunState | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Run a pipeline until `stop` is set, or with `once` until all is read that was there at the start.

    The page is served if the file has `http`. `state` is one that somebody else reads as well. Raises the
    first error that ended a source or a table, after the others have come to their end.
    """
    stop = stop or threading.Event()
    refuse_unshared_disks(pipeline, master or pipeline.spark.master)
    _refuse_missing(pipeline)
    tables = Tables(pipeline, analyze_here)
    tables.functions.check()
    # The lock comes first: a second instance must not hear that its port is taken.
    alone = not any(source.shares_partitions for source in pipeline.sources.values())
    with (
        only_instance(pipeline) if alone else one_of_many(pipeline) as folder,
        _receiving(tables, listen=not once) as received,
        _watched(pipeline, state or RunState(pipeline), all_of(_reaching(received), watch), received) as tell,
        _spark(pipeline, once, master, folder / "spark.log", tell) as session,
        _prompt(received),
    ):
        # Positions come from the tables, so checkpoints that an earlier run left are of no use.
        checkpoints = folder / "checkpoints"
        shutil.rmtree(checkpoints, ignore_errors=True)
        flows = [Flow(tables, name, session, checkpoints, tell, once=once) for name in pipeline.inputs]
        # A run that ends by itself is over before anything is due.
        jobs: UpkeepJobs | list[UpkeepJob] = [] if once else UpkeepJobs(tables, session, stop.is_set)
        upkeep = Scheduler(jobs, Schedule(folder / "upkeep.json"), tell, stop)
        counting = count_files(tables, tell) if pipeline.http else nullcontext()
        query = partial(SparkQuery, session, pipeline)
        queries = Refreshers(tables, query, tell, stop, once=once)
        with running(upkeep, pipeline.stop_timeout), counting, queries.beside(pipeline.stop_timeout):
            Supervisor(pipeline, flows, tell, stop).run()


def _refuse_missing(pipeline: Pipeline) -> None:
    """Raise SourceError where no source can be read, before Spark starts; some may miss what others have."""
    missing = {name: source_of(pipeline, name).missing() for name in pipeline.sources}
    if missing and all(missing.values()):
        name, why = next(iter(missing.items()))
        raise SourceError(f"source {name}: {why}")


@contextmanager
def _receiving(tables: Tables, *, listen: bool) -> Iterator[Mapping[str, Received]]:
    """Take events over HTTP meanwhile; a run that ends by itself takes none, and reads what it finds."""
    sources = {name: one for name, one in tables.pipeline.sources.items() if one.type == "http"}
    if not sources:
        yield {}
        return
    from lakefeed.engine.batch.payload_validator import PayloadValidator
    from lakefeed.sources.http.receiver.server import receiving

    validators = {
        name: PayloadValidator(tables, name)
        for name, one in sources.items()
        if getattr(one, "on_bad", "") == "reject"
    }
    confirm = partial(confirm_positions, tables)
    with receiving(tables.pipeline, validators, listen=listen, confirm=confirm) as received:
        yield received


@contextmanager
def _prompt(received: Mapping[str, Received]) -> Iterator[None]:
    """Where somebody waits for answers, the rest of the run interrupts these as little as it can."""
    if not any(one.receiver for one in received.values()):
        yield
        return
    from lakefeed.sources.http.receiver.server import prompt

    with prompt():
        yield


def _reaching(received: Mapping[str, Received]) -> Watcher:
    """Tells requests that wait for tables how far these are."""

    def watch(event: RunEvent) -> None:
        if isinstance(event, TableReached) and event.source in received:
            received[event.source].waiters.reach(event.table, event.positions)

    return watch


@contextmanager
def _watched(
    pipeline: Pipeline, state: RunState, watch: Watcher, received: Mapping[str, Received]
) -> Iterator[Watcher]:
    """All who watch as one, for the length of a run; metrics are sent and the page is served meanwhile."""
    for name, one in received.items():
        state.watch(SourceDescribed(name, one.describe, one.refuses))
    counting: list[Watcher] = []
    with ExitStack() as opened:
        if pipeline.http is not None:
            from lakefeed.watch.metrics import Metrics
            from lakefeed.watch.web.server import serving

            metrics = Metrics(state)
            if received:
                from lakefeed.sources.http.receiver.metrics import ReceiverMetrics

                metrics.register(ReceiverMetrics(pipeline.name, received))
            _log.info("the page is at %s", opened.enter_context(serving(pipeline, state, metrics)))
            counting.append(metrics.watch)
        if pipeline.statsd is not None:
            from lakefeed.watch.statsd import StatsdSender

            counting.append(opened.enter_context(closing(StatsdSender(pipeline.statsd))).watch)
        yield all_of(state.watch, *counting, watch)


@contextmanager
def _spark(
    pipeline: Pipeline, once: bool, master: str | None, log: Path, watch: Watcher
) -> Iterator[SparkSession]:
    """Start Spark, or use the session of the program; with Spark's own Delta where somebody needs it."""
    conf, master = pipeline.spark.conf, master or pipeline.spark.master
    fetching = False
    if needs_delta(pipeline, once=once):
        fetching = not is_fetched(conf)
        conf = delta_settings(conf)
    with spark_session(pipeline.name, master, conf, log, lambda: watch(Starting(fetching))) as session:
        # A program may have brought a session with another master.
        refuse_unshared_disks(pipeline, str(session.sparkContext.master))
        watch(Started())
        sources = {name: one for name, one in pipeline.sources.items() if isinstance(one, SparkSource)}
        with filling([one.folder(pipeline.name, name) for name, one in sources.items()], session):
            yield session
