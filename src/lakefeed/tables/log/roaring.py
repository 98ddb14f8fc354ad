"""Roaring bitmaps as the Delta protocol stores them: sorted row positions to bytes and back.

The format is the portable one of the Roaring specification for 64 bits: bitmaps of 32 bits by their high
half, and in each of them a container for every 65,536 positions: an array, a bitmap, or runs.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]
"""Rows of a file, counted from 0, in order and each once."""

NONE: Positions = np.empty(0, np.int64)
_MAGIC = 1681511377
_PLAIN, _WITH_RUNS = 12346, 12347
_OFFSETS_FROM = 4
"""A bitmap with runs names where its containers lie only from so many on."""
_MOST_IN_ARRAY = 4096
_CONTAINER_BYTES = 8192


class NotABitmap(ValueError):
    """Bytes that are no bitmap of the Delta protocol."""


def encode(positions: Positions) -> bytes:
    """The bytes of a bitmap, its magic number first."""
    highs = np.unique(positions >> 32)
    parts = [struct.pack("<IQ", _MAGIC, len(highs))]
    for high in highs.tolist():
        low = positions[(positions >> 32) == high] if len(highs) > 1 else positions
        parts.append(struct.pack("<I", high))
        parts.append(_encode_32((low & 0xFFFFFFFF).astype(np.uint32)))
    return b"".join(parts)


def decode(data: bytes) -> Positions:
    """The positions of a bitmap. Raises NotABitmap."""
    try:
        magic, count = struct.unpack_from("<IQ", data, 0)
        if magic != _MAGIC:
            raise NotABitmap(f"the magic number is {magic}")
        at, parts = 12, []
        for _ in range(count):
            (high,) = struct.unpack_from("<I", data, at)
            low, at = _decode_32(data, at + 4)
            parts.append(low.astype(np.int64) | (high << 32))
    except (struct.error, ValueError) as error:
        raise NotABitmap(str(error)) from error
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _encode_32(positions: npt.NDArray[np.uint32]) -> bytes:
    keys, first = np.unique(positions >> 16, return_index=True)
    groups = np.split((positions & 0xFFFF).astype("<u2"), first[1:])
    containers = [_container(group) for group in groups]
    header = np.empty((len(keys), 2), "<u2")
    header[:, 0] = keys
    header[:, 1] = [len(group) - 1 for group in groups]
    sizes = np.array([len(container) for container in containers], np.uint32)
    begin = 8 + 8 * len(keys)
    offsets = (begin + np.cumsum(sizes) - sizes).astype("<u4")
    head = struct.pack("<II", _PLAIN, len(keys)) + header.tobytes() + offsets.tobytes()
    return head + b"".join(containers)


def _container(values: npt.NDArray[np.uint16]) -> bytes:
    if len(values) <= _MOST_IN_ARRAY:
        return values.tobytes()
    bits = np.zeros(1 << 16, np.uint8)
    bits[values] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def _decode_32(data: bytes, start: int) -> tuple[npt.NDArray[np.uint32], int]:
    """The positions of a bitmap of 32 bits, and where the next one begins."""
    (cookie,) = struct.unpack_from("<I", data, start)
    at = start + 4
    runs = np.zeros(0, np.uint8)
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = np.frombuffer(data, np.uint8, (count + 7) // 8, at)
        runs = np.unpackbits(flags, bitorder="little")[:count]
        at += len(flags)
    elif cookie == _PLAIN:
        (count,) = struct.unpack_from("<I", data, at)
        runs = np.zeros(count, np.uint8)
        at += 4
    else:
        raise NotABitmap(f"the cookie is {cookie}")
    header = np.frombuffer(data, "<u2", 2 * count, at).reshape(-1, 2)
    at += 4 * count
    if cookie == _PLAIN or count >= _OFFSETS_FROM:
        at += 4 * count
    parts = []
    for (key, less_one), is_run in zip(header.tolist(), runs.tolist(), strict=True):
        values, at = _runs(data, at) if is_run else _values(data, at, less_one + 1)
        parts.append(values.astype(np.uint32) | np.uint32(key << 16))
    return (np.concatenate(parts) if parts else np.empty(0, np.uint32)), at


def _values(data: bytes, at: int, count: int) -> tuple[npt.NDArray[np.uint16], int]:
    if count <= _MOST_IN_ARRAY:
        return np.frombuffer(data, "<u2", count, at), at + 2 * count
    bits = np.unpackbits(np.frombuffer(data, np.uint8, _CONTAINER_BYTES, at), bitorder="little")
    return np.flatnonzero(bits).astype(np.uint16), at + _CONTAINER_BYTES


def _runs(data: bytes, at: int) -> tuple[npt.NDArray[np.uint16], int]:
    (count,) = struct.unpack_from("<H", data, at)
    pairs = np.frombuffer(data, "<u2", 2 * count, at + 2).reshape(-1, 2).astype(np.int64)
    spans = [np.arange(begin, begin + less_one + 1) for begin, less_one in pairs.tolist()]
    found = np.concatenate(spans) if spans else np.empty(0, np.int64)
    return found.astype(np.uint16), at + 2 + 4 * count
