"""Reading ranges of numbers out of the journal, on a worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lakefeed.errors import SourceError
from lakefeed.events import OffsetRange
from lakefeed.sources.http.events import HttpEvents, Part
from lakefeed.sources.http.journal.frame import Frame, frames
from lakefeed.sources.http.journal.index import Piece
from lakefeed.sources.http.journal.scan import scan
from lakefeed.sources.http.journal.segments import Segments, segments_at
from lakefeed.sources.http.source import HttpSource

_EVENTS = 50_000
_BYTES = 16 * 2**20
"""What is decoded together; a single request may be larger."""


def read(source: HttpSource, ranges: Sequence[OffsetRange]) -> Iterator[HttpEvents]:
    """Yield every event of the ranges, each once, in order."""
    segments = segments_at(source.journal, source.storage)
    for span in ranges:
        pieces = span.payload or scan(segments, checked=False).index.locate(
            span.partition, span.start, span.end
        )
        parts = _whole(source, span, _parts(segments, span, pieces))
        yield from _together(span.partition, parts)


def _parts(segments: Segments, span: OffsetRange, pieces: Iterable[Piece]) -> Iterator[Part]:
    """What frames hold of a range."""
    for frame in _frames(segments, pieces):
        if frame.stream == span.partition and frame.first < span.end and frame.next > span.start:
            start, end = max(frame.first, span.start), min(frame.next, span.end)
            yield Part(start, frame.payloads(start, end), frame.received, frame.meta())


def _frames(segments: Segments, pieces: Iterable[Piece]) -> Iterator[Frame]:
    """All frames of some pieces; damaged ones are left out."""
    for piece in pieces:
        try:
            data = segments.read(*piece)
        except FileNotFoundError:
            continue
        yield from (item for item in frames(data, checked=True) if isinstance(item, Frame))


def _whole(source: HttpSource, span: OffsetRange, parts: Iterable[Part]) -> Iterator[Part]:
    """The parts, and for lost events such without a payload, or an error."""
    at = span.start
    for part in parts:
        if part.first > at:
            yield _lost(source, span.partition, at, part.first)
        yield part
        at = part.first + len(part.payloads)
    if at < span.end:
        yield _lost(source, span.partition, at, span.end)


def _lost(source: HttpSource, stream: str, start: int, end: int) -> Part:
    if source.on_data_loss == "fail":
        raise SourceError(
            f"the journal {source.journal} has lost the events {start} to {end - 1} of stream {stream}.\n"
            "Bring its segments back from a backup. To go on without them, set `on_data_loss: skip`: each "
            "becomes a dead letter without a payload."
        )
    return Part(start, [None] * (end - start), None, {})


def _together(stream: str, parts: Iterable[Part]) -> Iterator[HttpEvents]:
    """Small requests together."""
    waiting: list[Part] = []
    events = size = 0
    for part in parts:
        waiting.append(part)
        events += len(part.payloads)
        size += sum(map(len, filter(None, part.payloads)))
        if events >= _EVENTS or size >= _BYTES:
            yield HttpEvents(stream, waiting)
            waiting, events, size = [], 0, 0
    if waiting:
        yield HttpEvents(stream, waiting)
