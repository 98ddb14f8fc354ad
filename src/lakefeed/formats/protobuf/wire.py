"""Values at many positions of one buffer, read together by the rules of Protobuf's wire format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Indexes = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

_LONG_TEXT = 64
_PADDING = bytes(16)
_MORE = np.uint64(0x8080808080808080)
_ONE = np.uint64(1)


@dataclass(frozen=True)
class Spans:
    """Parts of the buffer, such as texts or messages."""

    starts: Indexes
    lengths: Indexes

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def ends(self) -> Indexes:
        """The positions behind the parts."""
        return self.starts + self.lengths

    def at(self, indexes: Any) -> Spans:
        """Some of them, by index or by flag."""
        return Spans(self.starts[indexes], self.lengths[indexes])


class Buffer:
    """Payloads side by side. A value at any position up to the end of the last payload may be asked for."""

    def __init__(self, payloads: list[bytes]) -> None:
        self.data = b"".join([*payloads, _PADDING])
        lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
        self.payloads = Spans(np.cumsum(lengths) - lengths, lengths)
        self.bytes = np.frombuffer(self.data, np.uint8)
        # Views in which a word begins at every byte: one look-up reads eight bytes, wherever they lie.
        self._words = np.ndarray((len(self.data) - 7,), "<u8", self.data, strides=(1,))
        self._halves = np.ndarray((len(self.data) - 3,), "<u4", self.data, strides=(1,))

    def fixed64(self, at: Indexes) -> Words:
        """The eight bytes at each position."""
        return self._words[at]

    def fixed32(self, at: Indexes) -> Words:
        """The four bytes at each position."""
        return self._halves[at].astype(np.uint64)

    def varints(self, at: Indexes) -> tuple[Words, Indexes]:
        """The varint at each position and its length in bytes, which is 0 where none ends within 64 bits."""
        words = self._words[at]
        last = ~words & _MORE
        last &= ~last + _ONE
        # The exponent of a float finds the only bit that is left; none gives a negative length.
        lengths: Indexes = ((last.astype(np.float64).view(np.int64) >> 52) - 1022) >> 3
        values = _joined(words & (last - _ONE) & ~_MORE)
        beyond = np.flatnonzero(lengths < 0)
        if len(beyond):
            ninth, tenth = (self.bytes[at[beyond] + index].astype(np.uint64) for index in (8, 9))
            values[beyond] |= (ninth & np.uint64(127)) << np.uint64(56)
            long = ninth > 127
            values[beyond[long]] |= (tenth[long] & _ONE) << np.uint64(63)
            lengths[beyond] = np.where(long, np.where(tenth > 1, 0, 10), 9)
        return values, lengths

    def texts(self, spans: Spans, kind: pa.DataType, missing: Flags | None = None) -> pa.Array:
        """The parts as a column of texts or bytes; texts are not checked to be UTF-8."""
        offsets = _offsets(spans.lengths)
        content: Any
        if offsets[-1] > _LONG_TEXT * len(spans):
            # Long texts are copied one by one: a position for each byte would take eight times the memory.
            bounds = zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)
            content = b"".join([self.data[start:end] for start, end in bounds])
        else:
            content = self.bytes[spread(spans, offsets)]
        present = None if missing is None else pa.array(~missing).buffers()[1]
        ends = pa.py_buffer(offsets.astype(np.int32))
        return pa.Array.from_buffers(kind, len(spans), [present, ends, pa.py_buffer(content)])


def _joined(values: Words) -> Words:
    """Eight groups of seven bits become one number."""
    for low, high, shift in _STEPS:
        values = (values & low) | ((values & high) >> shift)
    return values


_STEPS = [
    (np.uint64(low), np.uint64(high), np.uint64(shift))
    for low, high, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
]


def _offsets(lengths: Indexes) -> Indexes:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def spread(spans: Spans, offsets: Indexes) -> Indexes:
    """The position of every byte of the parts, one part after the other; each begins there at its offset."""
    indexes = np.repeat(spans.starts - offsets[:-1], spans.lengths)
    indexes += np.arange(offsets[-1])
    return indexes


Packed = tuple[Indexes, Words, Flags]
"""The values of packed fields: how many each has, all of them in order, and which fields are broken."""


def packed_fixed(buffer: Buffer, spans: Spans, width: int) -> Packed:
    """Values of four or eight bytes each."""
    broken = spans.lengths % width != 0
    counts = np.where(broken, 0, spans.lengths // width)
    offsets = _offsets(counts)
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    at = np.repeat(spans.starts, counts) + width * within
    return counts, buffer.fixed64(at) if width == 8 else buffer.fixed32(at), broken


def packed_varints(buffer: Buffer, spans: Spans) -> Packed:
    """Varints one behind the other."""
    broken = (spans.lengths > 0) & (buffer.bytes[np.maximum(spans.ends - 1, 0)] > 127)
    # What is cut off would reach into the next field.
    whole = Spans(spans.starts, np.where(broken, 0, spans.lengths))
    offsets = _offsets(whole.lengths)
    indexes = spread(whole, offsets)
    last = np.flatnonzero(buffer.bytes[indexes] < 128)
    first = np.zeros(len(last), np.int64)
    first[1:] = last[:-1] + 1
    counts = np.diff(np.searchsorted(last, offsets))
    values, lengths = buffer.varints(indexes[first])
    odd = lengths != last - first + 1
    if odd.any():
        broken[np.repeat(np.arange(len(spans)), counts)[odd]] = True
    return counts, values, broken
