"""What a journal holds, found by looking at its segments; changes nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from lakefeed.events import Offsets
from lakefeed.sources.http.journal.frame import Damage, Frame, frames
from lakefeed.sources.http.journal.index import Index, Segment
from lakefeed.sources.http.journal.segments import Segments, epoch_of

SEEN = "seen"
"""What the opening of a segment has under this name: the last segment before its epoch that counts."""
OLDEST = "oldest"
"""The oldest segment that was there when the segment was written, of those whose number has an epoch."""
_AT_ONCE = 8
"""Segments that are read at the same time from a store."""
Noting = Callable[[Frame], None]


@dataclass
class Contents:
    """The state of a journal."""

    id: int | None = None
    """Another journal at the same path has another one; None where there is no journal yet."""
    owner: str = ""
    """The pipeline and the source that it belongs to."""
    next: Offsets = field(default_factory=dict)
    """The next number of each stream that ever had an event."""
    group: int = 0
    index: Index = field(default_factory=Index)
    damaged: list[tuple[int, int, int]] = field(default_factory=list)
    """Bytes of segments that were on the disk and cannot be read any more."""
    torn: tuple[int, int] | None = None
    """The last segment, and where in it a write was cut off, that nobody was told of as done."""
    given_up: Offsets = field(default_factory=dict)
    """Up to where events of streams may go although no table took them."""
    gives_up: bool = False
    """Whether that is still to be written down."""
    superseded: list[int] = field(default_factory=list)
    """Segments of a run that another one had replaced before it wrote them; it answered for none of them."""
    untaken: Offsets = field(default_factory=dict)
    """The next numbers of streams that no table takes now."""

    def earliest(self) -> Offsets:
        """The first number of each stream that can still be read; the next one where there is none."""
        return {**self.next, **self.index.earliest()}


def scan(segments: Segments, *, checked: bool, note: Noting = lambda frame: None) -> Contents:
    """Look at every segment; unchecked, only the checksums of the last one are compared.

    `note` is called with each frame of events.
    """
    found = Contents()
    numbers = segments.numbers()
    found.superseded = [] if segments.grows else _superseded(segments, numbers)
    numbers = [number for number in numbers if number not in found.superseded]
    for number, data in _contents(segments, numbers):
        last = number == numbers[-1] and segments.grows
        _scan_segment(found, number, data, note, checked=checked, last=last)
    return found


def _superseded(segments: Segments, numbers: Sequence[int]) -> list[int]:
    """What runs that were paused wrote, after a later run had begun: its segments say what counts.

    Each says which segment was the last before its epoch; and the last one of all, which was the oldest, so
    that nothing before that which comes late counts.
    """
    firsts = {epoch_of(number): number for number in reversed(numbers)}
    telling = sorted({*firsts.values(), *numbers[-1:]})
    openings = {number: _opening(data) for number, data in _contents(segments, telling)}
    oldest = openings.get(numbers[-1], {}).get(OLDEST, 0) if numbers else 0
    superseded = {number for number in numbers if epoch_of(number) and number < oldest}
    # The last epoch first: what is superseded itself says nothing of others.
    for first in firsts.values():
        if first not in superseded and (meta := openings.get(first)):
            superseded |= {number for number in numbers if meta.get(SEEN, first) < number < first}
    return sorted(superseded)


def _opening(data: bytes) -> Mapping[str, Any]:
    """What the first frame of a segment says; nothing where it is damaged."""
    frame = next(frames(data, checked=True), None)
    return frame.meta() if isinstance(frame, Frame) and not frame.stream else {}


def _contents(segments: Segments, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """The segments in their order; several are on their way at once where each is a request.

    One that has gone since is left out: all tables have it.
    """
    if segments.grows:
        for number in numbers:
            with suppress(FileNotFoundError):
                yield number, segments.read(number)
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        reading: deque[tuple[int, Future[bytes]]] = deque()
        for number in numbers:
            reading.append((number, pool.submit(segments.read, number)))
            if len(reading) == _AT_ONCE:
                yield from _finished(*reading.popleft())
        while reading:
            yield from _finished(*reading.popleft())


def _finished(number: int, reading: Future[bytes]) -> Iterator[tuple[int, bytes]]:
    with suppress(FileNotFoundError):
        yield number, reading.result()


def _scan_segment(
    found: Contents, number: int, data: bytes, note: Noting, *, checked: bool, last: bool
) -> None:
    segment = Segment(number, len(data))
    items = list(frames(data, checked=checked or last))
    cut = _cut_off(items) if last else None
    if last and not data:
        # Made, and nothing was written: the next write makes it anew.
        found.torn = number, 0
    whole = items[:cut]
    if last and whole and isinstance(whole[-1], Frame) and not whole[-1].ends:
        # The rest of its write is missing: none of it was acknowledged.
        cut = _first_of(items, whole[-1].group)
    if cut is not None:
        found.torn = number, items[cut].start
        segment.size, items = items[cut].start, items[:cut]
    for item in items:
        if isinstance(item, Damage):
            found.damaged.append((number, item.start, item.end))
        else:
            _take(found, segment, item, note)
    if segment.size:
        found.index.segments[number] = segment


def _first_of(items: Sequence[Frame | Damage], group: int) -> int:
    return next(at for at, item in enumerate(items) if isinstance(item, Frame) and item.group == group)


def _cut_off(items: Sequence[Frame | Damage]) -> int | None:
    """Which damage is where the last write was cut off; None where it is damage to something older.

    A write begins only when the one before is on the disk. So damage in front of a frame of a later write
    than the cut one is damage to what was acknowledged. Inside of one write the disk keeps no order.
    """
    at = next((at for at, item in enumerate(items) if isinstance(item, Damage)), None)
    if at is None:
        return None
    before = items[at - 1] if at else None
    newest = before.group + before.ends if isinstance(before, Frame) else 0
    behind = [item.group for item in items[at:] if isinstance(item, Frame)]
    return at if not behind or (before and max(behind) <= newest) else None


def _take(found: Contents, segment: Segment, frame: Frame, note: Noting) -> None:
    found.group = max(found.group, frame.group)
    if frame.stream:
        segment.add(frame.stream, frame.first, frame.count, frame.received, frame.start)
        found.next[frame.stream] = max(frame.next, found.next.get(frame.stream, 0))
        note(frame)
        return
    meta = frame.meta()
    found.id, found.owner = meta["journal"], meta["owner"]
    found.given_up = meta.get("given_up", {})
    for stream, number in meta["next"].items():
        found.next[stream] = max(number, found.next.get(stream, 0))
