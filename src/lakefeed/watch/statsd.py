"""Metrics for statsd, under the names that kafka-delta-ingest gives them: its dashboards go on working."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterable, Mapping

from lakefeed.engine.run_events import (
    BatchDone,
    CommitFailed,
    Committed,
    DeadLettersWritten,
    RunEvent,
    SourceSeen,
    TableReached,
)
from lakefeed.handles.tables import DEAD_LETTERS
from lakefeed.pipeline.options.statsd import Statsd

_LAG_EVERY = 60.0
"""Seconds between two reports of how much waits to be read."""
_log = logging.getLogger("lakefeed")


class StatsdSender:
    """Sends what a run tells by UDP, at once. What nobody receives is lost, and does no harm."""

    def __init__(self, options: Statsd) -> None:
        self._prefix = options.prefix
        self._lock = threading.Lock()
        self._failed: dict[str, tuple[int, int]] = {}
        """By source, events of the batch at hand that could not be decoded, and that no transform took."""
        self._ends: dict[str, Mapping[str, int]] = {}
        self._reached: dict[str, dict[str, Mapping[str, int]]] = {}
        self._told_at: dict[str, float] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        host, _, port = options.endpoint.rpartition(":")
        self._address: tuple[str, int] | None = None
        try:
            self._address = socket.gethostbyname(host), int(port)
        except OSError as error:
            _log.warning("statsd: %s is not known: %s. No metrics are sent.", host, error)

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close()

    def watch(self, event: RunEvent) -> None:
        """Send what an event of the run means."""
        with self._lock:
            match event:
                case DeadLettersWritten():
                    self._note_letters(event)
                case BatchDone():
                    self._batch(event)
                case Committed() if event.table != DEAD_LETTERS and event.files:
                    self._committed(event)
                case CommitFailed():
                    self._send(("delta.write.started", 1, "c"), ("delta.write.failed", 1, "c"))
                case SourceSeen():
                    self._seen(event)
                case TableReached():
                    self._reached.setdefault(event.source, {})[event.table] = event.positions

    def _note_letters(self, event: DeadLettersWritten) -> None:
        decode, transform = self._failed.get(event.source, (0, 0))
        for (stage, code), count in event.counts.items():
            if code == "bad_transform":
                transform += count
            elif stage == "decode":
                decode += count
        self._failed[event.source] = decode, transform

    def _batch(self, event: BatchDone) -> None:
        decode, transform = self._failed.pop(event.source, (0, 0))
        self._send(
            ("recordbatch.started", 1, "c"),
            ("recordbatch.completed", 1, "c"),
            ("recordbatch.write_duration", round(event.seconds * 1000), "ms"),
            ("messages.deserialization.completed", event.read - decode, "c"),
            ("messages.deserialization.failed", decode, "c"),
            ("messages.transform.completed", event.read - decode - transform, "c"),
            ("messages.transform.failed", transform, "c"),
            *([("messages.size", event.size // event.read, "g")] if event.read else []),
            *self._lags("delta.write.lag", event.source),
        )

    def _committed(self, event: Committed) -> None:
        self._send(
            ("delta.write.started", 1, "c"),
            ("delta.write.completed", 1, "c"),
            ("delta.write.duration", round(event.seconds * 1000), "ms"),
            ("delta.add.size", event.size // event.files, "g"),
        )

    def _seen(self, event: SourceSeen) -> None:
        self._ends[event.source] = event.ends
        now = time.monotonic()
        if now - self._told_at.get(event.source, -_LAG_EVERY) >= _LAG_EVERY and event.source in self._reached:
            self._told_at[event.source] = now
            self._send(*self._lags("buffer.lag", event.source))

    def _lags(self, name: str, source: str) -> Iterable[tuple[str, int, str]]:
        """How many messages of each partition wait, for the table that has come the least far."""
        ends, lags = self._ends.get(source, {}), []
        for partition, end in ends.items():
            held = [one[partition] for one in self._reached.get(source, {}).values() if partition in one]
            if held:
                lags.append(max(0, end - min(held)))
        yield f"{name}.num_partitions", len(lags), "g"
        yield f"{name}.total", sum(lags), "g"
        if lags:
            yield f"{name}.max", max(lags), "g"
            yield f"{name}.min", min(lags), "g"

    def _send(self, *metrics: tuple[str, int, str]) -> None:
        """Send values that are there; a count of 0 says nothing."""
        if self._address is None:
            return
        lines = [
            f"{self._prefix}.{name}:{value}|{kind}" for name, value, kind in metrics if value or kind != "c"
        ]
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            _log.debug("statsd: %s", error)
