"""Metrics for Prometheus: counters and histograms from events, gauges from the state of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lakefeed.engine.run_events import (
    BatchDone,
    CommitFailed,
    Committed,
    DeadLettersWritten,
    Refreshed,
    RefreshFailed,
    RowsShaped,
    RunEvent,
    TableChanged,
    UpkeepDone,
)
from lakefeed.watch.state import RunState
from lakefeed.watch.view import RunView

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MOST_PARTITIONS = 500
"""Beyond it, the partitions of a source share one series: a label must not have endless values."""

_TABLE = ("pipeline", "source", "table")
_SOURCE = ("pipeline", "source")
_COMMIT_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30)
_BATCH_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_BATCH_TASKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_BATCH_RECORDS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)


class Metrics:
    """Metrics in a registry of its own, so that two runs in one program do not mix."""

    def __init__(self, state: RunState) -> None:
        self._pipeline = state.view().pipeline
        self._registry = CollectorRegistry()
        count, histogram = self._counter, self._histogram
        self._read = count("records_read", "Events read from a source, each counted once.", _SOURCE)
        self._written = count("records_written", "Rows committed to a table.")
        self._letters = count("dead_letters", "Records that became dead letters.", (*_TABLE, "stage"))
        self._stale = count(
            "stale_changes", "Changes that were too old, and rows whose key was there already."
        )
        self._bytes = count("bytes_written", "Bytes of the files committed to a table.")
        self._files = count("files_written", "Files committed to a table.")
        self._commits = count("commits", "Versions of a table made with rows or positions.")
        self._failures = count("commit_failures", "Commits that did not land, after all their retries.")
        self._retries = count("commit_retries", "Further attempts that commits needed.")
        self._upkeep = count("upkeep_runs", "Operations of upkeep.", ("pipeline", "table", "operation"))
        self._filtered = count("filtered_rows", "Rows that `where` and `expect` have left out.")
        self._expectations = count(
            "expectation_rows",
            "Rows that a rule of `expect` has judged, by `result`: passed, warned, dropped or dead_letter.",
            ("pipeline", "table", "rule", "result"),
        )
        self._refreshes = count(
            "refreshes", "Runs of a query, by `result`: done or failed.", ("pipeline", "table", "result")
        )
        self._refresh_seconds = histogram(
            "refresh_seconds",
            "How long a refresh took, from its beginning to its commit.",
            ("pipeline", "table"),
            _BATCH_SECONDS,
        )
        self._changes = count(
            "schema_changes", "Tables created, and columns added to them.", ("pipeline", "table")
        )
        self._commit_seconds = histogram("commit_seconds", "How long a commit took.", _TABLE, _COMMIT_SECONDS)
        self._batch_seconds = histogram(
            "batch_seconds",
            "How long a batch took, from its plan to its last commit.",
            _SOURCE,
            _BATCH_SECONDS,
        )
        self._batch_records = histogram("batch_records", "Events in a batch.", _SOURCE, _BATCH_RECORDS)
        self._batch_tasks = histogram("batch_tasks", "Tasks of a batch.", _SOURCE, _BATCH_TASKS)
        self._registry.register(_Gauges(state))

    def register(self, collector: Collector) -> None:
        """Show what somebody else counts as well."""
        self._registry.register(collector)

    def _counter(self, name: str, about: str, labels: tuple[str, ...] = _TABLE) -> Counter:
        return Counter(f"lakefeed_{name}", about, labels, registry=self._registry)

    def _histogram(
        self, name: str, about: str, labels: tuple[str, ...], buckets: tuple[float, ...]
    ) -> Histogram:
        return Histogram(f"lakefeed_{name}", about, labels, buckets=buckets, registry=self._registry)

    def text(self) -> bytes:
        """Everything in Prometheus's text format."""
        return generate_latest(_Plain(self._registry))

    def watch(self, event: RunEvent) -> None:
        """Count what happens."""
        name = self._pipeline
        match event:
            case Committed():
                self._count_commit(event)
            case CommitFailed(table=table, source=source):
                self._failures.labels(name, source, table).inc()
            case DeadLettersWritten(table=table, source=source, counts=counts):
                for (stage, _), count in counts.items():
                    self._letters.labels(name, source, table, stage).inc(count)
            case BatchDone(source=source):
                self._read.labels(name, source).inc(event.new)
                self._batch_seconds.labels(name, source).observe(event.seconds)
                self._batch_records.labels(name, source).observe(event.read)
                self._batch_tasks.labels(name, source).observe(event.tasks)
            case TableChanged(table=table):
                self._changes.labels(name, table).inc()
            case RowsShaped(table=table, source=source):
                self._count_shaped(event, (name, source, table))
            case Refreshed(table=table, seconds=seconds):
                self._refreshes.labels(name, table, "done").inc()
                self._refresh_seconds.labels(name, table).observe(seconds)
            case RefreshFailed(table=table, text=text):
                if text:
                    self._refreshes.labels(name, table, "failed").inc()
            case UpkeepDone(table=table, operation=operation):
                self._upkeep.labels(name, table, operation).inc()

    def _count_shaped(self, event: RowsShaped, labels: tuple[str, str, str]) -> None:
        if event.filtered:
            self._filtered.labels(*labels).inc(event.filtered)
        for rule, results in event.expectations.items():
            for result, count in results.items():
                self._expectations.labels(self._pipeline, event.table, rule, result).inc(count)

    def _count_commit(self, event: Committed) -> None:
        labels = (self._pipeline, event.source, event.table)
        self._commits.labels(*labels).inc()
        self._written.labels(*labels).inc(event.rows)
        if event.stale:
            self._stale.labels(*labels).inc(event.stale)
        self._bytes.labels(*labels).inc(event.size)
        self._files.labels(*labels).inc(event.files)
        self._retries.labels(*labels).inc(event.retries)
        self._commit_seconds.labels(*labels).observe(event.seconds)


class _Plain(CollectorRegistry):
    """A registry without the series that tell when each counter was made: half a page that nobody reads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()
        self._whole = registry

    def collect(self) -> Iterable[Metric]:
        for metric in self._whole.collect():
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            yield metric


class _Gauges(Collector):
    """What is true now, asked of the state at each scrape; nothing is read from a table's log for it."""

    def __init__(self, state: RunState) -> None:
        self._state = state

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return ()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        view = self._state.view()
        about = "1 while the source answers and the table can be written, else 0."
        yield _gauge(view, "up", about, _TABLE, {(one.source, one.table): one.up for one in view.flows})
        if view.cores:
            about = "Tasks that Spark could run side by side when the last batch was planned."
            yield _gauge(view, "cores", about, ("pipeline",), {(): view.cores})
            about = "Executors that had registered then; 0 where tasks run in the driver's process."
            yield _gauge(view, "executors", about, ("pipeline",), {(): view.executors})
        about = (
            "Events that wait in a source partition for the slowest table that is still fed; absent while "
            "the source does not answer."
        )
        yield _gauge(view, "source_lag_records", about, (*_SOURCE, "partition"), _lags(view))
        yield from _outstanding(view)
        tables = [*view.tables, view.dead_letter_table]
        fresh = {one.name: max(0.0, view.now - one.newest) for one in view.tables if one.newest is not None}
        for name, about, values in (
            (
                "freshness_seconds",
                "Seconds since the newest event that was committed in this run happened.",
                fresh,
            ),
            ("table_files", "Files of a table.", {one.name: one.files for one in tables}),
            (
                "table_small_files",
                "Files of a table that are below half of its target_file_size.",
                {one.name: one.small_files for one in tables},
            ),
            (
                "query_behind_versions",
                "Versions with other rows that a query has not read yet.",
                {one.name: one.behind for one in view.tables if one.query},
            ),
            ("table_version", "The newest version.", {one.name: one.version for one in tables}),
        ):
            by_table: dict[tuple[str, ...], float | None] = {(one,): value for one, value in values.items()}
            yield _gauge(view, name, about, ("pipeline", "table"), by_table)


def _gauge(
    view: RunView,
    name: str,
    about: str,
    labels: tuple[str, ...],
    values: Mapping[tuple[str, ...], float | None],
) -> GaugeMetricFamily:
    """The values that there are, by what stands behind the pipeline in `labels`."""
    found = GaugeMetricFamily(f"lakefeed_{name}", about, labels=labels)
    for key, value in values.items():
        if value is not None:
            found.add_metric((view.pipeline, *key), value)
    return found


def _lags(view: RunView) -> dict[tuple[str, ...], float | None]:
    found: dict[tuple[str, ...], float | None] = {}
    for source in view.sources:
        # Nobody knows of one that is silent: a number of before would hide it, NaN would spoil the sums.
        lags = source.lags if source.answers else {}
        lags = lags if len(lags) <= _MOST_PARTITIONS else {"all": sum(lags.values())}
        found |= {(source.name, partition): lag for partition, lag in lags.items()}
    return found


def _outstanding(view: RunView) -> Iterable[GaugeMetricFamily]:
    known = [(source.name, source.outstanding) for source in view.sources if source.outstanding]
    for metric, noun, about in (
        (
            "files_waiting",
            "files",
            "Files of a source that the slowest table that is still fed has not read.",
        ),
        ("bytes_waiting", "bytes", "Their size, or the size of the log that it has not read."),
        ("retained_bytes", "retained", "Bytes of its log that a source keeps for the pipeline."),
        ("headroom_bytes", "headroom", "Bytes that may come until a source gives up what it keeps."),
        ("lag_seconds", "seconds", "For how long, at least, the slowest table has had something to read."),
        ("snapshot_rows", "copied.rows", "Rows of a snapshot that were copied, while it lasts."),
        ("snapshot_estimated_rows", "copied.total", "About how many rows the snapshot has."),
    ):
        values: dict[tuple[str, ...], Any] = {(name,): one for name, one in known}
        for part in noun.split("."):
            values = {name: getattr(one, part) for name, one in values.items() if one is not None}
        found = _gauge(view, f"source_{metric}", about, _SOURCE, values)
        if found.samples:
            yield found
