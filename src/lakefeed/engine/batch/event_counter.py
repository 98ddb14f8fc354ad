"""The counter of a source: counts each event once, however often its batch is read, and by whichever flow."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from lakefeed.events import OffsetRange, identities

Counted = list[tuple[int, int]]
"""Ranges of offsets that were counted, in order, with gaps between them."""


class EventCounter:
    """Remembers which offsets of each partition were counted; shared by the flows of a source."""

    def __init__(self) -> None:
        self._marks: Mapping[str, int] = {}
        self._counted: dict[str, Counted] = {}
        self._lock = threading.Lock()

    def begin(self, marks: Mapping[str, int]) -> None:
        """Start a run of a flow; with other `marks` than before, offsets stand for other events."""
        with self._lock:
            if identities(marks) != self._marks:
                self._marks, self._counted = identities(marks), {}

    def again(self, spans: Iterable[OffsetRange], read: Mapping[str, int]) -> int:
        """Count a batch that read so many events of each partition; how many had been counted before.

        Exact where all or nothing of a span is known, and where every offset is an event.
        """
        known = 0
        with self._lock:
            for span in spans:
                counted = self._counted.get(span.partition, [])
                both = sum(max(0, min(end, span.end) - max(start, span.start)) for start, end in counted)
                if both:
                    known += round(read.get(span.partition, 0) * both / len(span))
                self._counted[span.partition] = _with(counted, span.start, span.end)
        return known


def _with(counted: Counted, start: int, end: int) -> Counted:
    """The ranges and one more, those that touch it made one with it."""
    touching = [one for one in counted if one[0] <= end and start <= one[1]]
    apart = [one for one in counted if one not in touching]
    first = min([start, *(one[0] for one in touching)])
    return sorted([*apart, (first, max([end, *(one[1] for one in touching)]))])
