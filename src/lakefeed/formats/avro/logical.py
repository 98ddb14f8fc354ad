"""Avro's logical types over bytes, for whole columns: decimals, UUIDs and durations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lakefeed.formats.avro.schema import DURATION

Array = np.ndarray[Any, Any]

_WIDTH = 16
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_UUID = np.array([index for index in range(36) if index not in (8, 13, 18, 23)])


def decimals(content: Array, at: Array, lengths: Array, made: pa.DataType) -> tuple[pa.Array, Array]:
    """Numbers of big-endian bytes from these positions, and which of them are to be looked at one by one."""
    if not pa.types.is_decimal128(made):
        return pa.nulls(len(at), made), np.ones(len(at), np.bool_)
    odd = lengths > _WIDTH
    lengths = np.where(odd, 0, lengths)
    negative = (content[at] > 127) & (lengths > 0)
    # Right-aligned, with the sign in front, as the widest number of 16 bytes.
    indexes = at[:, None] + np.arange(_WIDTH) - (_WIDTH - lengths)[:, None]
    own = indexes >= at[:, None]
    wide = np.where(own, content[np.maximum(indexes, 0)], np.where(negative, 255, 0)[:, None]).astype(
        np.uint8
    )
    high = np.ascontiguousarray(wide[:, :8]).view(">i8").ravel()
    low = np.ascontiguousarray(wide[:, 8:]).view(">u8").ravel()
    odd |= _beyond(high, low, 10**made.precision)
    wide[odd] = 0
    little = np.ascontiguousarray(wide[:, ::-1])
    return pa.Array.from_buffers(made, len(at), [None, pa.py_buffer(little)]), odd


def _beyond(high: Array, low: Array, limit: int) -> Array:
    """Which numbers of 128 bits, in two halves, are not between -limit and limit."""
    top_high, top_low = limit >> 64, np.uint64(limit & (2**64 - 1))
    bottom_high, bottom_low = (-limit) >> 64, np.uint64((-limit) & (2**64 - 1))
    above = (high > top_high) | ((high == top_high) & (low >= top_low))
    below = (high < bottom_high) | ((high == bottom_high) & (low <= bottom_low))
    return np.asarray(above | below)


def uuids(content: Array) -> pa.Array:
    """The texts of UUIDs of 16 bytes each."""
    texts = np.full((len(content), 36), ord("-"), np.uint8)
    texts[:, _UUID[0::2]] = _HEX[content >> 4]
    texts[:, _UUID[1::2]] = _HEX[content & 15]
    offsets = np.arange(len(content) + 1, dtype=np.int32) * np.int32(36)
    return pa.Array.from_buffers(
        pa.string(), len(content), [None, pa.py_buffer(offsets), pa.py_buffer(texts)]
    )


def durations(content: Array) -> pa.Array:
    """Months, days and milliseconds of 12 bytes each."""
    parts = np.ascontiguousarray(content).view("<u4").astype(np.int64)
    return pa.StructArray.from_arrays([pa.array(parts[:, at]) for at in range(3)], fields=list(DURATION))
