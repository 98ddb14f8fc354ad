"""The limits of a batch: when it is due, by time, rows, bytes or silence, and how much it may read."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from lakefeed.pipeline.flush import Flush
from lakefeed.sources import Allowance, dense_offsets

_LONGEST_NAP = 0.2
_SHORTEST_NAP = 0.02
_FIRST_ROWS = 50_000
"""Events of the first batch, which shows how large they are: as many as one task takes, so that its own
limit holds for the batch."""
_SMALLEST_SHARE = 1 / 1024
_TASK_BYTES = 16 * 2**20
"""Payload bytes that are worth a task of their own."""


class BatchLimits:
    """Decides, each time it is known how much waits, whether a batch is due and how much it may read.

    Bytes are not known before events are read, so their limit is turned into rows by the size that events
    had in the last batch. A task that reads twice the bytes of a batch gives up, and its events count too.
    """

    def __init__(
        self, flush: Flush, *, hurry: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._flush = flush
        self._hurry = hurry
        self._clock = clock
        self._bytes_per_row: float | None = None
        self._share = 1.0
        # What is there at the start has waited for as long as nobody read it: the first batch is due at once.
        self._waiting_since: float | None = -math.inf
        self._seen = 0
        self._seen_at = 0.0

    @property
    def nap(self) -> float:
        """How long to wait before looking at the source again, so that batches are not late by much."""
        soonest = min(self._flush.interval, self._flush.idle or self._flush.interval)
        return min(_LONGEST_NAP, max(_SHORTEST_NAP, soonest / 8))

    def learn(self, rows: int, size: int) -> None:
        """Take note of how large the events of a batch were."""
        self._share = min(1.0, self._share * 2)
        if rows:
            self._bytes_per_row = max(1.0, size / rows)

    def shrink(self) -> None:
        """Take half as much next time: a worker that was lost may have been short of memory."""
        self._share = max(_SMALLEST_SHARE, self._share / 2)

    @property
    def rows_a_task(self) -> int:
        """So many events are worth a task of their own."""
        known = self._bytes_per_row
        rows = dense_offsets.ROWS_A_TASK
        return rows if known is None else max(1, min(rows, int(_TASK_BYTES / known)))

    def allowed(self, waiting: int, cores: int = 1) -> Allowance | None:
        """How much the batch may read that is due now, when so many rows wait; None while none is due."""
        if not waiting:
            self._waiting_since, self._seen = None, 0
            return None
        limit = self._limit(cores)
        if waiting < limit and not self._hurry and not self._is_due(waiting):
            return None
        # Events that came while a batch ran have waited since it was planned: batches keep the beat of
        # `interval`.
        self._waiting_since, self._seen = self._clock(), 0
        return Allowance(limit, max(1, int(self._flush.most_bytes(cores) * self._share)))

    def _limit(self, cores: int) -> int:
        """The most events of the next batch."""
        known = self._bytes_per_row
        fitting = _FIRST_ROWS if known is None else int(self._flush.most_bytes(cores) / known)
        return max(1, int(min(self._flush.most_rows(cores), fitting) * self._share))

    def _is_due(self, waiting: int) -> bool:
        now = self._clock()
        if self._waiting_since is None:
            self._waiting_since = now
        if waiting != self._seen:
            self._seen, self._seen_at = waiting, now
        if now - self._waiting_since >= self._flush.interval:
            return True
        return self._flush.idle is not None and now - self._seen_at >= self._flush.idle
