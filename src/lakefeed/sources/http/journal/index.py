"""The index of a journal: which segment has which numbers of a stream, and about where in it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from lakefeed.events import Offsets
from lakefeed.sources.http.journal.segments import epoch_of

_APART = 64 * 1024
"""Bytes between two frames that are remembered."""
_AT_ONCE = 8 * 2**20
"""Bytes that are read together; a single request may be larger."""

Piece = tuple[int, int, int]
"""A part of a segment: its number, and from which byte up to which."""


@dataclass
class StreamFrames:
    """Where frames of one stream begin in one segment; not all of them, but the first and the last number."""

    first: int
    next: int
    received: int
    """When its first event came, in microseconds since 1970."""
    numbers: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)

    def add(self, first: int, count: int, at: int) -> None:
        """Take note of one more frame, which begins at a byte of the segment."""
        self.next = first + count
        if not self.bytes or at - self.bytes[-1] >= _APART:
            self.numbers.append(first)
            self.bytes.append(at)

    def between(self, start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
        """Bytes in which all frames lie with numbers from `start` up to `end`, cut between frames."""
        first, behind = max(0, bisect_right(self.numbers, start) - 1), bisect_left(self.numbers, end)
        begins = self.bytes[first]
        for at in self.bytes[first + 1 : behind]:
            if at - begins >= _AT_ONCE:
                yield begins, at
                begins = at
        yield begins, self.bytes[behind] if behind < len(self.bytes) else size


@dataclass
class Segment:
    """What is known of one segment."""

    number: int
    size: int = 0
    streams: dict[str, StreamFrames] = field(default_factory=dict)

    def add(self, stream: str, first: int, count: int, received: int, at: int) -> None:
        """Take note of a frame with events."""
        if stream not in self.streams:
            self.streams[stream] = StreamFrames(first, first, received)
        self.streams[stream].add(first, count, at)

    def is_held(self, positions: Offsets) -> bool:
        """Whether tables that have all events before these positions have all of the segment."""
        return all(positions.get(name, -1) >= frames.next for name, frames in self.streams.items())


class Index:
    """All segments of a journal, by number, in their order.

    One thread adds and removes them while others look: these go over copies.
    """

    def __init__(self) -> None:
        self.segments: dict[int, Segment] = {}

    @property
    def size(self) -> int:
        """The bytes of all segments."""
        return sum(segment.size for segment in self.segments.values())

    def oldest(self, following: int) -> int:
        """The first segment of those whose number has an epoch; `following` where there is none."""
        return next((number for number in self.segments if epoch_of(number)), following)

    def locate(self, stream: str, start: int, end: int) -> list[Piece]:
        """The pieces in which the events of a range lie, and some others with them."""
        found: list[Piece] = []
        for segment in list(self.segments.values()):
            frames = segment.streams.get(stream)
            if frames is not None and frames.first < end and frames.next > start:
                found += [(segment.number, *at) for at in frames.between(start, end, segment.size)]
        return found

    def earliest(self) -> Offsets:
        """The first number of each stream that is still there."""
        found: Offsets = {}
        for segment in list(self.segments.values()):
            for name, frames in list(segment.streams.items()):
                found.setdefault(name, frames.first)
        return found

    def received(self, positions: Offsets) -> int | None:
        """When the first event behind some positions came, about: that of its segment, in microseconds."""
        times = [
            frames.received
            for segment in list(self.segments.values())
            for name, frames in list(segment.streams.items())
            if frames.next > positions.get(name, 0)
        ]
        return min(times, default=None)
