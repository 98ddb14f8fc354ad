"""What a journal holds, found by looking at its segments; changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from lakefeed.events import Offsets
from lakefeed.sources.http.journal.frame import Damage, Frame, frames
from lakefeed.sources.http.journal.index import Index, Segment
from lakefeed.sources.http.journal.segments import Segments

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
    for number in numbers:
        # It may have gone since: then all tables have it.
        with suppress(FileNotFoundError):
            data = segments.read(number)
            _scan_segment(
                found, number, data, note, checked=checked, last=number == numbers[-1] and segments.grows
            )
    return found


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
