"""How far a table has come in a source: what its log holds, and what has been read since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakefeed.events import DELETED_END, OffsetRange, Offsets
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.table_plan import Stamp, is_missing
from lakefeed.tables.detail.shaped import merged_counts
from lakefeed.tables.shape import Shape

_LONGEST_PAUSE = 15

Expectations = dict[str, dict[str, int]]
"""For each rule of `expect`, how many rows have passed it, and how many were warned, dropped and so on."""


@dataclass
class Span:
    """What has been read of a partition for a table since its last commit."""

    start: int
    end: int
    read: int = 0
    dead_letters: int = 0
    skipped: int = 0
    filtered: int = 0


@dataclass
class TableProgress:
    """How far one table has come in the source of a flow.

    `logged` is what its log holds, as `txn` versions, and what the fence expects. `open` is what has been
    read since.
    """

    handle: TableHandle
    rows_from: Offsets
    logged: dict[str, int]
    dead_letters_logged: dict[str, int]
    pending: dict[str, frozenset[Stamp]]
    marks: dict[str, int]
    ingest: dict[str, int] = field(default_factory=dict)
    """With `app_id`: what the log holds under the names of kafka-delta-ingest."""
    adopted: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Where kafka-delta-ingest has come further: Lakefeed's own position, and the one to go on from."""
    jumps: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Where the source has lost events: the offset that was wanted, and the one from which it went on."""
    open: dict[str, Span] = field(default_factory=dict)
    taken: int = 0
    """Events of `open` that a function of the user's has taken."""
    refused: int = 0
    """Events of `open` that became dead letters; those that were before are only among its letters."""
    expectations: Expectations = field(default_factory=dict)
    """What the rules of `expect` said of the rows since the last commit."""
    by_stream: bool = False
    """Of a table of a route: whether all events of the partitions that it reads are its own."""
    shape: Shape | None = None
    """What the table was when the flow was planned: files are written for it. None while there is none."""
    becomes: Shape | None = None
    """What the table is after its next commit with rows, for which files are written; None: as it is."""
    _pause: int = 1
    """Of so many chances to record a position without rows, one is taken."""
    _chances: int = 0

    @property
    def is_routed(self) -> bool:
        """Whether the table is one of a route."""
        return bool(self.handle.id.key)

    @property
    def read_to(self) -> Offsets:
        """The next offsets, whether or not the log holds them yet."""
        return {**self.recorded, **{partition: span.end for partition, span in self.open.items()}}

    @property
    def recorded(self) -> Offsets:
        """The next offsets as the log holds them; where it has none, those that the table began with."""
        # After a jump the log holds a number of events that are not there any more, until the first commit.
        return {
            p: at if p in self.jumps else max(at, self.logged.get(p, -1) + 1)
            for p, at in self.rows_from.items()
        }

    @property
    def read(self) -> int:
        """Events read since the last commit."""
        return sum(span.read for span in self.open.values())

    @property
    def filtered(self) -> int:
        """Events since the last commit that the table leaves out on purpose."""
        return sum(span.filtered for span in self.open.values())

    def told(self) -> dict[str, Any]:
        """What commit info says of what was read: ranges, what lies between them, and what became no row."""
        ranges = {
            name: [span.start, span.end, span.read, span.dead_letters] for name, span in self.open.items()
        }
        between = {"lost": self.jumps, "adopted": self.adopted}
        moved = {key: {p: jump for p, jump in jumps.items() if p in ranges} for key, jumps in between.items()}
        # Events of the range that are not in a table of a route are in others of it.
        routed = {"routed": True} if self.is_routed and not self.by_stream else {}
        return {
            "ranges": ranges,
            **routed,
            **{key: jumps for key, jumps in moved.items() if jumps},
            **self._left_out(),
        }

    def _left_out(self) -> dict[str, Any]:
        """What commit info says of events that are neither rows nor dead letters, and of `expect`."""
        skipped = {name: span.skipped for name, span in self.open.items() if span.skipped}
        filtered = {name: span.filtered for name, span in self.open.items() if span.filtered}
        told = {"skipped": skipped, "filtered": filtered, "expectations": self.expectations}
        taken = {"taken": self.taken} if self.handle.python else {}
        return {**{key: counts for key, counts in told.items() if counts}, **taken}

    def deleted_ends(self, marks: Mapping[str, int]) -> dict[str, int]:
        """The ends of deleted partitions that the table has read; -1 where one exists again."""
        ends = {partition + DELETED_END for partition in self.logged}
        return {mark: end for mark, end in marks.items() if mark in ends and (end >= 0 or mark in self.marks)}

    def deleted(self, marks: Mapping[str, int]) -> Offsets:
        """The next offsets in deleted partitions of which the log lacks the end, or that it was jumped to."""
        ends = self.deleted_ends(marks)
        return {
            partition: self.rows_from.get(partition, last + 1)
            for partition, last in self.logged.items()
            if ends.get(mark := partition + DELETED_END, -1) != self.marks.get(mark, -1)
            or (partition in self.jumps and self.marks.get(mark) == self.rows_from[partition])
        }

    @property
    def found_empty(self) -> bool:
        """Whether a partition was read from its beginning on, and nothing was there."""
        return any(not span.start and span.end and not span.read for span in self.open.values())

    def is_due(self) -> bool:
        """Whether a position without rows is to be recorded at this chance.

        Ever less often while events have nothing for the table: a route may have hundreds of such tables.
        """
        if not self.open:
            return False
        self._chances += 1
        return self._chances >= self._pause or any(span.dead_letters for span in self.open.values())

    def rest(self, *, idle: bool) -> None:
        """Take note of a commit, with rows or without."""
        for partition in self.open:
            self.jumps.pop(partition, None)
            self.adopted.pop(partition, None)
        self.open.clear()
        self.refused = self.taken = 0
        self.expectations = {}
        self._chances, self._pause = 0, min(_LONGEST_PAUSE, 2 * self._pause) if idle else 1

    def expected(self, counts: Expectations, taken: int = 0) -> None:
        """Note what the rules of `expect` said of a batch, and how many events a function has taken."""
        self.taken += taken
        self.expectations = merged_counts(self.expectations, counts)

    def missed(self, spans: Iterable[OffsetRange]) -> list[str]:
        """The partitions of those ranges of a batch that the table misses."""
        return [span.partition for span in spans if is_missing(self.rows_from, span)]

    def take(self, spans: Iterable[OffsetRange], *counts: Mapping[str, int]) -> None:
        """Note those of a batch's ranges that the table misses; counts are by partition, as for `extend`."""
        for span in spans:
            if is_missing(self.rows_from, span):
                self.extend(span, *(count.get(span.partition, 0) for count in counts))

    def extend(
        self, span: OffsetRange, read: int = 0, dead_letters: int = 0, skipped: int = 0, filtered: int = 0
    ) -> None:
        """Note a range that has been read and needs to be recorded with the next commit."""
        known = self.open.setdefault(span.partition, Span(span.start, span.start))
        known.end = span.end
        known.read += read
        known.dead_letters += dead_letters
        known.skipped += skipped
        known.filtered += filtered
