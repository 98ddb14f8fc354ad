"""A frame of the journal: the events of one request, with a length and a checksum around them.

Every number is little-endian. A frame is `head | body`, and its body is `fixed | stream | meta | lengths |
payloads`: the length of each payload in four bytes, then all payloads one after the other.

After damage, the next frame is found by its magic. So no payload may hold the magic: lengths and payloads
that do are masked with four random bytes, which are in front of them. Meta needs no mask: it is JSON, which
has no byte below the blank, and the length of a frame has one.
"""

from __future__ import annotations

import secrets
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

_MAGIC = b"LFj1"
_HEAD = struct.Struct("<4sII")
"""The magic, the length of the body, its checksum."""
_FIXED = struct.Struct("<BBHIQQqI")
"""Kind, length of the stream's name, whether a group ends here, events, first number, group, microseconds,
length of meta."""
_OPENING, _EVENTS, _MASKED = 0, 1, 2
_MASK = 4
"""Bytes of a mask."""
_LENGTH = np.dtype("<u4")
_ONE_LENGTH = struct.Struct("<I")

Buffer = bytes | memoryview


@dataclass(slots=True)
class Payloads:
    """Payloads as a frame has them: they are never taken apart on their way from a body to the disk."""

    lengths: bytes
    """Of each, in four bytes."""
    data: bytes
    """All of them, one after the other."""

    @classmethod
    def of(cls, payloads: Sequence[bytes]) -> Payloads:
        """Lay them out."""
        if len(payloads) == 1:
            return cls(_ONE_LENGTH.pack(len(payloads[0])), payloads[0])
        return cls(np.fromiter(map(len, payloads), _LENGTH, len(payloads)).tobytes(), b"".join(payloads))

    @classmethod
    def between_braces(cls, parts: Sequence[bytes]) -> Payloads:
        """Objects that were cut between the closing brace of one and the opening brace of the next."""
        lengths = np.fromiter(map(len, parts), _LENGTH, len(parts)) + _LENGTH.type(2)
        lengths[0] -= 1
        lengths[-1] -= 1
        return cls(lengths.tobytes(), b"}{".join(parts))

    def __len__(self) -> int:
        return len(self.lengths) // _LENGTH.itemsize

    @property
    def size(self) -> int:
        """Their bytes."""
        return len(self.lengths) + len(self.data)

    def between(self, start: int, end: int) -> list[bytes]:
        """Payloads from one number up to and without another, which count from 0."""
        cuts = [0, *self.ends().tolist()][start : end + 1]
        return [self.data[one:other] for one, other in pairwise(cuts)]

    def ends(self) -> npt.NDArray[np.int64]:
        """Where each of them ends in `data`."""
        return np.cumsum(np.frombuffer(self.lengths, _LENGTH), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Batch:
    """The events of one request, before they have numbers."""

    stream: str
    count: int
    received: int
    """Microseconds since 1970."""
    meta: bytes
    """JSON of what is kept beside the events, or nothing."""
    tail: bytes
    """Lengths and payloads."""
    kind: int = _EVENTS

    @classmethod
    def of(cls, stream: str, payloads: Payloads, received: int, meta: dict[str, Any]) -> Batch:
        """The payloads with what is kept beside them."""
        kept = orjson.dumps(meta) if meta else b""
        tail, kind = payloads.lengths + payloads.data, _EVENTS
        while _MAGIC in tail or _MAGIC in kept[1 - len(_MAGIC) :] + tail[: len(_MAGIC) - 1]:
            mask, kind = secrets.token_bytes(_MASK), _MASKED
            tail = mask + _masked(payloads.lengths + payloads.data, mask)
        return cls(stream, len(payloads), received, kept, tail, kind)

    def kept(self) -> dict[str, Any]:
        """What is kept beside the events."""
        return dict(orjson.loads(self.meta)) if self.meta else {}

    def __len__(self) -> int:
        """Its bytes in the journal."""
        return _HEAD.size + _FIXED.size + len(self.stream) + len(self.meta) + len(self.tail)

    def framed(self, first: int, group: int, *, ends: bool) -> list[bytes]:
        """The bytes of the frame, in parts, once it is known which numbers the events have."""
        name = self.stream.encode()
        fixed = _FIXED.pack(
            self.kind, len(name), ends, self.count, first, group, self.received, len(self.meta)
        )
        return _framed(b"".join((fixed, name, self.meta)), self.tail)


def _masked(data: Buffer, mask: Buffer) -> bytes:
    """Bytes under a mask; masked once more, they are as before."""
    whole = np.frombuffer(bytes(data) + bytes(-len(data) % _MASK), np.uint32)
    return (whole ^ np.frombuffer(mask, np.uint32)).tobytes()[: len(data)]


def opening(meta: dict[str, Any], group: int, *, ends: bool) -> list[bytes]:
    """The first frame of a segment, which says what the journal knows when the segment begins."""
    kept = orjson.dumps(meta)
    return _framed(_FIXED.pack(_OPENING, 0, ends, 0, 0, group, 0, len(kept)), kept)


def _framed(before: bytes, behind: bytes) -> list[bytes]:
    checksum = zlib.crc32(behind, zlib.crc32(before))
    return [_HEAD.pack(_MAGIC, len(before) + len(behind), checksum), before, behind]


@dataclass(slots=True)
class Frame:
    """A frame as it was found. Not frozen: that would triple the time to make one, and there are many."""

    start: int
    end: int
    """Where it lies among the bytes that were looked at."""
    stream: str
    """Empty for the opening of a segment."""
    first: int
    count: int
    group: int
    """Which write it was a part of: the next one began only when this one was on the disk."""
    ends: bool
    """Whether it is the last frame of its group."""
    received: int
    body: Buffer
    _meta: tuple[int, int]
    masked: bool = False
    """Whether lengths and payloads are under a mask."""

    @property
    def next(self) -> int:
        """The number behind its last event."""
        return self.first + self.count

    def meta(self) -> dict[str, Any]:
        """What is kept beside the events."""
        at, end = self._meta
        return dict(orjson.loads(self.body[at:end])) if end > at else {}

    def payloads(self, start: int, end: int) -> list[bytes]:
        """The events with numbers from `start` up to and without `end`, which the frame has."""
        tail = self.body[self._meta[1] :]
        if self.masked:
            tail = _masked(tail[_MASK:], tail[:_MASK])
        data = self.count * _LENGTH.itemsize
        if self.count == 1:
            return [bytes(tail[data:])] if end > start else []
        held = Payloads(bytes(tail[:data]), bytes(tail[data:]))
        return held.between(start - self.first, end - self.first)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are no frame, up to the next one or to the end."""

    start: int
    end: int


def frames(data: Buffer, *, checked: bool) -> Iterator[Frame | Damage]:
    """Everything that lies in some bytes, which begin with a frame; unchecked, only lengths are looked at."""
    view, at = memoryview(data), 0
    while at < len(view):
        found = _frame(view, at, checked=checked)
        if found is None:
            following = _following(view, at + 1)
            yield Damage(at, following)
            at = following
        else:
            yield found
            at = found.end


def _frame(view: memoryview, at: int, *, checked: bool) -> Frame | None:
    if len(view) - at < _HEAD.size + _FIXED.size:
        return None
    magic, length, checksum = _HEAD.unpack_from(view, at)
    start = at + _HEAD.size
    if magic != _MAGIC or length < _FIXED.size or start + length > len(view):
        return None
    body = view[start : start + length]
    if checked and zlib.crc32(body) != checksum:
        return None
    kind, named, ends, count, first, group, received, meta = _FIXED.unpack_from(body)
    behind = _FIXED.size + named
    masked = kind == _MASKED
    if kind > _MASKED or behind + meta + count * _LENGTH.itemsize + masked * _MASK > length:
        return None
    stream = str(body[_FIXED.size : behind], "utf-8", "replace")
    return Frame(
        at,
        start + length,
        stream,
        first,
        count,
        group,
        bool(ends),
        received,
        body,
        (behind, behind + meta),
        masked,
    )


def _following(view: memoryview, at: int) -> int:
    """Where the next whole frame begins; the end if there is none."""
    data = bytes(view)
    while (at := data.find(_MAGIC, at)) >= 0:
        if _frame(view, at, checked=True) is not None:
            return at
        at += 1
    return len(view)
