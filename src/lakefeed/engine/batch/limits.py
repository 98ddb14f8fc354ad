"""The pace of a flow: when a batch ends, by time, rows, bytes or silence."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from lakefeed.pipeline.flush import Flush
from lakefeed.sources import Offsets

_LONGEST_NAP = 0.2
_SHORTEST_NAP = 0.02
_FIRST_ROWS = 50_000
"""Events of the first batch, which shows how large they are: as many as one task takes, so that its own
limit holds for the batch."""
_SMALLEST_SHARE = 1 / 1024


class BatchLimits:
    """Decides, each time the ends of the partitions are known, whether a batch is due and where it ends.

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

    def next_end(self, position: Offsets, ends: Offsets) -> Offsets | None:
        """The end of the batch that is due now, or None."""
        waiting = sum(max(0, ends.get(partition, at) - at) for partition, at in position.items())
        if not waiting:
            self._waiting_since, self._seen = None, 0
            return None
        limit = self._limit()
        if waiting < limit and not self._hurry and not self._is_due(waiting):
            return None
        # Events that came while a batch ran have waited since it was planned: batches keep the beat of
        # `interval`.
        self._waiting_since, self._seen = self._clock(), 0
        return _take(position, ends, min(limit, waiting))

    def _limit(self) -> int:
        """The most events of the next batch."""
        known = self._bytes_per_row
        fitting = _FIRST_ROWS if known is None else int(self._flush.bytes / known)
        return max(1, int(min(self._flush.rows, fitting) * self._share))

    def _is_due(self, waiting: int) -> bool:
        now = self._clock()
        if self._waiting_since is None:
            self._waiting_since = now
        if waiting != self._seen:
            self._seen, self._seen_at = waiting, now
        if now - self._waiting_since >= self._flush.interval:
            return True
        return self._flush.idle is not None and now - self._seen_at >= self._flush.idle


def _take(position: Offsets, ends: Offsets, limit: int) -> Offsets:
    """Share `limit` rows out over the partitions, in proportion to what waits in each."""
    waiting = {partition: max(0, ends.get(partition, at) - at) for partition, at in position.items()}
    total = sum(waiting.values())
    if total <= limit:
        return {partition: at + waiting[partition] for partition, at in position.items()}
    shares = {partition: count * limit // total for partition, count in waiting.items()}
    left = limit - sum(shares.values())
    for partition in sorted(waiting, key=lambda name: shares[name] - waiting[name]):
        more = min(left, waiting[partition] - shares[partition])
        shares[partition] += more
        left -= more
    return {partition: at + shares[partition] for partition, at in position.items()}
