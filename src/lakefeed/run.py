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
    TableStopped,
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
from lakefeed.errors import Fenced, SourceError
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.refresh.refresher import Refreshers
from lakefeed.refresh.spark_query import SparkQuery
from lakefeed.sources import source_of
from lakefeed.sources.spark.query import filling
from lakefeed.sources.spark.source import SparkSource
from lakefeed.stores import UNSAFE, is_unsafe
from lakefeed.units import format_duration
from lakefeed.upkeep.file_counts import count_files
from lakefeed.upkeep.jobs import UpkeepJobs
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
    asked, state = stop or threading.Event(), state or RunState(pipeline)
    refuse_unshared_disks(pipeline, master or pipeline.spark.master)
    _refuse_missing(pipeline)
    tables = Tables(pipeline, analyze_here)
    tables.functions.check()
    warn_unsafe(tables)
    alone = not any(source.shares_partitions for source in pipeline.sources.values())
    received: dict[str, Received] = {}
    receiving = partial(_receiving, tables, received, state.watch, listen=not once)
    # The lock comes first: a second instance must not hear that its port is taken. A journal in a store comes
    # behind Spark: from then on the run that had it before takes no events, and this one must not fail.
    with (
        only_instance(pipeline) if alone else one_of_many(pipeline) as folder,
        receiving(in_stores=False),
        _watched(pipeline, state, all_of(_reaching(received), watch), received) as tell,
        _spark(pipeline, once, master, folder / "spark.log", tell) as session,
        receiving(in_stores=True),
        _outlasting(received, asked, 2 * pipeline.stop_timeout),
        _ending_with(asked) as ending,
        _prompt(received),
    ):
        # Positions come from the tables, so checkpoints that an earlier run left are of no use.
        checkpoints = folder / "checkpoints"
        shutil.rmtree(checkpoints, ignore_errors=True)
        flows = [Flow(tables, name, session, checkpoints, tell, once=once) for name in pipeline.inputs]
        jobs, schedule = UpkeepJobs(tables, session, ending.is_set), Schedule(folder / "upkeep.json")
        upkeep = Scheduler([] if once else jobs, schedule, tell, ending)
        counting = count_files(tables, tell) if pipeline.http else nullcontext()
        query = partial(SparkQuery, session, pipeline)
        queries = Refreshers(tables, query, tell, ending, once=once)
        with running(upkeep, pipeline.stop_timeout), counting, queries.beside(pipeline.stop_timeout):
            receivers = {name: one.journal.confirm for name, one in received.items() if one.receiver}
            Supervisor(pipeline, flows, tell, ending, receivers).run()
        if once and any(job.upkeep.once for job in jobs()):
            Scheduler(lambda: [job for job in jobs() if job.upkeep.once], schedule, tell, ending).run_due()


@contextmanager
def _ending_with(asked: threading.Event) -> Iterator[threading.Event]:
    """An event for all parts of a run: set when the run is asked to end, and by a part that must end it."""
    ending, over = threading.Event(), threading.Event()

    def follow() -> None:
        while not over.is_set():
            if asked.wait(0.1):
                ending.set()
                return

    threading.Thread(target=follow, name="ending", daemon=True).start()
    try:
        yield ending
    finally:
        over.set()


@contextmanager
def _outlasting(received: Mapping[str, Received], asked: threading.Event, seconds: float) -> Iterator[None]:
    """Keep the port open for a while where another run has taken over, instead of ending at once.

    Requests get 503 meanwhile. A service manager would start the run again at once, and the new one would end
    for it in turn. In a rolling update the old one is asked to end before the time is up.
    """
    try:
        yield
    except Fenced as error:
        if not any(one.receiver and one.journal.is_shared for one in received.values()):
            raise
        _log.warning(
            "%s The port stays open until the run ends, within %s",
            str(error).partition("\n")[0],
            format_duration(seconds),
        )
        if not asked.wait(seconds):
            raise


def _refuse_missing(pipeline: Pipeline) -> None:
    """Raise SourceError where no source can be read, before Spark starts; some may miss what others have."""
    missing = {name: source_of(pipeline, name).missing() for name in pipeline.sources}
    if missing and all(missing.values()):
        name, why = next(iter(missing.items()))
        raise SourceError(f"source {name}: {why}")


def warn_unsafe(tables: Tables) -> None:
    """Log which tables have commits that nothing protects against a second writer."""
    for handle in (*tables.handles.values(), tables.dead_letters):
        if is_unsafe(handle.path, handle.storage):
            _log.warning("table %s: %s", handle.name, UNSAFE)


@contextmanager
def _receiving(
    tables: Tables, received: dict[str, Received], tell: Watcher, *, listen: bool, in_stores: bool
) -> Iterator[None]:
    """Take events over HTTP meanwhile, for the sources whose journal is in a store, or for the others.

    They are added to `received`. A run that ends by itself takes none, and reads what it finds.
    """
    if not any(one.type == "http" for one in tables.pipeline.sources.values()):
        yield
        return
    from lakefeed.engine.batch.payload_validator import PayloadValidator
    from lakefeed.sources.http.receiver.server import receiving
    from lakefeed.sources.http.source import HttpSource

    sources = {
        name: one
        for name, one in tables.pipeline.sources.items()
        if isinstance(one, HttpSource) and one.has_shared_journal == in_stores
    }
    validators = {
        name: PayloadValidator(tables, name) for name, one in sources.items() if one.on_bad == "reject"
    }
    confirm = partial(confirm_positions, tables)
    with receiving(tables.pipeline, validators, listen=listen, confirm=confirm, names=sources) as found:
        received |= found
        for name, one in found.items():
            tell(SourceDescribed(name, one.describe, one.refuses))
        yield


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
        elif isinstance(event, TableStopped):
            for one in received.values():
                one.waiters.stop(event.table)

    return watch


@contextmanager
def _watched(
    pipeline: Pipeline, state: RunState, watch: Watcher, received: Mapping[str, Received]
) -> Iterator[Watcher]:
    """All who watch as one, for the length of a run; metrics are sent and the page is served meanwhile."""
    counting: list[Watcher] = []
    with ExitStack() as opened:
        if pipeline.http is not None:
            from lakefeed.watch.metrics import Metrics
            from lakefeed.watch.web.server import serving

            metrics = Metrics(state)
            if any(one.type == "http" for one in pipeline.sources.values()):
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
