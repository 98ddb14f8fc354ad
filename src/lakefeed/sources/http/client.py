"""The HTTP source as the driver sees it: what its journal holds."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lakefeed.errors import DataLoss, Fenced
from lakefeed.events import OffsetRange, Offsets, Split
from lakefeed.sources import Finding, SourceClient, dense_offsets
from lakefeed.sources.http.journal.journal import open_journal
from lakefeed.sources.http.journal.scan import Contents, scan
from lakefeed.sources.http.journal.segments import segments_at
from lakefeed.sources.http.source import HttpSource
from lakefeed.text import counted

_log = logging.getLogger("lakefeed")


def has_taken_over(source: HttpSource) -> bool:
    """Whether this process owns a journal that other runs had before; the store is asked."""
    journal = open_journal(source.journal)
    if journal is None or not journal.is_shared:
        return False
    try:
        journal.confirm_now()
    except Fenced:
        return False
    return True


class HttpClient(SourceClient):
    """Asks the journal that this process writes; in any other process, the segments as they are."""

    def __init__(self, source: HttpSource, name: str) -> None:
        self._source = source
        self._name = name
        self._live = open_journal(source.journal)
        self._seen = Contents()
        if self._live is None:
            self._seen = scan(segments_at(source.journal, source.storage), checked=False)

    def start(self) -> Offsets:
        """The first event of each stream that the journal still holds."""
        return self._of_streams(self._contents().earliest())

    def latest(self) -> Offsets:
        """The next number of each stream, those among them that are not accepted any more.

        Raises Fenced where another run has taken the journal over.
        """
        if self._live:
            self._live.confirm()
        return self._of_streams(self._contents().next)

    def splits(self, ranges: Sequence[OffsetRange], cores: int) -> list[Split]:
        """Equal numbers of events, each range with the pieces of segments that hold it."""
        return [
            tuple(replace(span, payload=self._pieces(span)) for span in task)
            for task in dense_offsets.splits(ranges, cores, self.rows_a_task)
        ]

    def check(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        """Compare positions with what the journal holds; see the contract."""
        now = self._contents()
        earliest = self._of_streams(now.earliest())
        # Behind it, nobody can have read, however many events this process has received since.
        ends = self._of_streams(self._live.readable() if self._live else now.next)
        checked: Offsets = {}
        for stream in {**earliest, **positions}:
            wanted, first = positions.get(stream), earliest.get(stream, 0)
            if wanted is None:
                checked[stream] = first
            elif marks.get(stream, now.id) != now.id:
                what = "the journal was deleted or replaced since, and events that it held may be lost"
                checked[stream] = self._lost(stream, wanted, first, what)
            elif wanted < first:
                what = f"{counted(first - wanted, 'event')} lost"
                checked[stream] = self._lost(stream, wanted, first, what)
            elif wanted > ends.get(stream, 0):
                if self._live:
                    # Where another run has taken over, its tables are beyond this journal.
                    self._live.confirm_now()
                end = ends.get(stream, 0)
                what = f"the journal ends at {end}: it is older than the table"
                lacking = "become dead letters without a payload where a table lacks them."
                then = f" Events {end} to {wanted - 1} {lacking}"
                checked[stream] = self._lost(stream, wanted, wanted, what, then)
                if self._live:
                    self._live.advance(stream, wanted)
            else:
                checked[stream] = wanted
        return checked

    def acknowledge(self, positions: Offsets) -> None:
        """Let the journal forget what every table has; only the process that writes it may."""
        if self._live:
            self._live.acknowledge(positions)

    def marks(self) -> dict[str, int]:
        """The id of the journal, for each stream."""
        now = self._contents()
        return {} if now.id is None else dict.fromkeys(self._of_streams(now.next), now.id)

    def rows_read(self, position: Offsets, ends: Offsets) -> dict[str, int]:
        """Numbers have no gaps."""
        return self.rows_between(position, ends)

    def age(self, position: Offsets) -> float | None:
        """Since when the first event behind a position waits, about."""
        received = self._contents().index.received(position)
        return None if received is None else max(0.0, time.time() - received / 1_000_000)

    def findings(self) -> list[Finding]:
        """Whether the journal survives, and whether the port is free."""
        from lakefeed.sources.http.findings import findings

        return list(findings(self._source))

    def _pieces(self, span: OffsetRange) -> list[tuple[int, int, int]]:
        if self._live:
            return self._live.locate(span.partition, span.start, span.end)
        return self._contents().index.locate(span.partition, span.start, span.end)

    def _of_streams(self, numbers: Offsets) -> Offsets:
        """With the streams that are accepted and have had no event yet."""
        return {**dict.fromkeys(self._source.streams, 0), **numbers}

    def _contents(self) -> Contents:
        return self._live.contents() if self._live else self._seen

    def _lost(self, stream: str, wanted: int, going_on: int, what: str, then: str = "") -> int:
        begins = self._of_streams(self._contents().earliest()).get(stream, 0)
        text = (
            f"source {self._name}: {stream}: the next expected event is {wanted}, the journal "
            f"{self._source.journal} begins at {begins}: {what}."
        )
        if self._source.on_data_loss == "skip":
            _log.warning("%s Continuing at event %d (`on_data_loss: skip`).%s", text, going_on, then)
            return going_on
        raise DataLoss(
            f"{text}\nSet `on_data_loss: skip` on the source to continue at event {going_on}.{then}"
        )
