"""The tally of a source: counts each event once, however often its batch is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakefeed.sources import OffsetRange, Offsets


class Tally:
    """Remembers how far each partition was counted. A batch that runs again begins before that."""

    def __init__(self) -> None:
        self._marks: Mapping[str, int] = {}
        self._counted: Offsets = {}

    def begin(self, marks: Mapping[str, int]) -> None:
        """Start a life of the flow; with other `marks` than before, offsets stand for other events."""
        if marks != self._marks:
            self._marks, self._counted = dict(marks), {}

    def again(self, spans: Iterable[OffsetRange], read: Mapping[str, int]) -> int:
        """Count a batch that read so many events of each partition; how many had been counted before.

        Exact where all or nothing of a span is known, and where every offset is an event.
        """
        known = 0
        for span in spans:
            counted = self._counted.get(span.partition, span.start)
            if counted > span.start and len(span):
                share = (min(counted, span.end) - span.start) / len(span)
                known += round(read.get(span.partition, 0) * share)
            self._counted[span.partition] = max(counted, span.end)
        return known
