"""Lag in seconds: when the WAL has passed a position, by the ends that were seen in this run."""

from __future__ import annotations

import time
from collections import deque

_MOST = 4096
_APART = 0.2
"""Ends that are seen within so many seconds are one."""


class SeenEnds:
    """Ends of the WAL with the time at which each was seen first."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=_MOST)

    def add(self, end: int) -> None:
        """Note an end that was seen now."""
        now = time.monotonic()
        if not self._seen or (end > self._seen[-1][1] and now - self._seen[-1][0] >= _APART):
            self._seen.append((now, end))

    def seconds_behind(self, position: int, end: int) -> float:
        """For how many seconds of this run, at least, there has been something behind a position."""
        if position >= end:
            return 0.0
        now = time.monotonic()
        return next((now - at for at, seen in list(self._seen) if seen > position), 0.0)
