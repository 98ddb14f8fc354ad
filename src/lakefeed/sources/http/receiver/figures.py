"""What a receiver has done, for metrics and the page."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

SYNC_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
"""The upper bounds of the histogram."""


@dataclass
class Figures:
    """Counters since the receiver began. Written by one thread each, read by any."""

    requests: Counter[int] = field(default_factory=Counter)
    """By status."""
    events: int = 0
    bytes: int = 0
    """Of bodies, as they came."""
    syncs: list[int] = field(default_factory=lambda: [0] * (len(SYNC_SECONDS) + 1))
    """Writes of the journal by how long they took."""
    sync_seconds: float = 0.0

    def add_sync(self, seconds: float) -> None:
        """One more write of the journal."""
        self.syncs[bisect_left(SYNC_SECONDS, seconds)] += 1
        self.sync_seconds += seconds
