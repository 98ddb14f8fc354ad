"""The figures of receivers for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from lakefeed.sources.http.receiver.figures import SYNC_SECONDS
from lakefeed.sources.http.receiver.server import Received

_LABELS = ("pipeline", "source")


class ReceiverMetrics(Collector):
    """What is true now, asked at each scrape."""

    def __init__(self, pipeline: str, received: Mapping[str, Received]) -> None:
        self._pipeline = pipeline
        self._received = received

    def describe(self) -> Iterable[Metric]:
        """Nothing beforehand."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All families, each with a series for each source."""
        requests = CounterMetricFamily(
            "lakefeed_http_requests", "Requests to an HTTP source, by status.", labels=(*_LABELS, "status")
        )
        events = CounterMetricFamily("lakefeed_http_events", "Events taken over HTTP.", labels=_LABELS)
        size = CounterMetricFamily("lakefeed_http_bytes", "Bytes of bodies as they came.", labels=_LABELS)
        flight = GaugeMetricFamily(
            "lakefeed_http_in_flight_bytes", "Bytes of requests that are being received.", labels=_LABELS
        )
        journal = GaugeMetricFamily("lakefeed_journal_bytes", "The size of a journal.", labels=_LABELS)
        age = GaugeMetricFamily(
            "lakefeed_journal_age_seconds",
            "How long the oldest event that some table lacks has been in the journal, about.",
            labels=_LABELS,
        )
        syncs = HistogramMetricFamily(
            "lakefeed_journal_sync_seconds", "How long a write of the journal took.", labels=_LABELS
        )
        for name, one in list(self._received.items()):
            labels = (self._pipeline, name)
            journal.add_metric(labels, one.journal.size)
            age.add_metric(labels, age_of(one))
            if one.receiver is None:
                continue
            figures = one.receiver.figures
            for status, count in sorted(figures.requests.items()):
                requests.add_metric((*labels, str(status)), count)
            events.add_metric(labels, figures.events)
            size.add_metric(labels, figures.bytes)
            flight.add_metric(labels, one.receiver.pressure.in_flight)
            bounds = [*map(str, SYNC_SECONDS), "+Inf"]
            syncs.add_metric(
                labels, list(zip(bounds, accumulate(figures.syncs), strict=True)), figures.sync_seconds
            )
        return requests, events, size, flight, journal, age, syncs


def age_of(received: Received) -> float:
    """Seconds since the oldest event came that some table lacks; 0 where there is none."""
    since = received.journal.waiting_since()
    return 0.0 if since is None else max(0.0, time.time() - since / 1_000_000)
