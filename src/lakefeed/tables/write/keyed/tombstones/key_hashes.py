"""64-bit hashes of keys: a filter that says which stored rows may have a key. Keys themselves decide.

The hashes are part of stored files, so that a value must have the same hash in every release.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefeed.tables.write.keyed.keys import one_array

Hashes = npt.NDArray[np.uint64]

_WORD = 8
_HASHED_BYTES = 256
"""Of a longer text, only so many bytes and the last word count."""
_COLUMN, _NULL = np.uint64(0x9E3779B97F4A7C15), np.uint64(0x2545F4914F6CDD1D)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_ALL = np.uint64(2**64 - 1)


def key_hashes(rows: pa.Table | pa.RecordBatch, names: Sequence[str]) -> Hashes:
    """The hash of the key of each row."""
    found = np.zeros(rows.num_rows, np.uint64)
    for name in names:
        found = _mixed(found * _COLUMN + _column_hashes(one_array(rows.column(name))))
    return found


def _column_hashes(column: pa.Array) -> Hashes:
    kind = column.type
    if not len(column):
        return np.zeros(0, np.uint64)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        hashes = _number_hashes(column.cast(pa.int64()))
    elif pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        hashes = _number_hashes(column.view(pa.int32() if kind.bit_width == 32 else pa.int64()))
    else:
        has_bytes = any(is_kind(kind) for is_kind in _BYTES)
        hashes = _byte_hashes(column if has_bytes else column.cast(pa.string()))
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


_BYTES = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)


def _number_hashes(column: pa.Array) -> Hashes:
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return _mixed(numbers.view(np.uint64))


def _byte_hashes(column: pa.Array) -> Hashes:
    """Hashes of texts or bytes, eight bytes of all of them at a time."""
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, offsets, data = column.buffers()
    edges = np.frombuffer(offsets, np.int64 if wide else np.int32)[column.offset :][: len(column) + 1]
    edges = edges.astype(np.int64)
    stored = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    # With zeros after the last text, as words are read to their end.
    padded = np.concatenate([stored[edges[0] : edges[-1]], np.zeros(_WORD, np.uint8)])
    words = np.ndarray(len(padded) - _WORD + 1, "<u8", padded, strides=(1,))
    begins, sizes = edges[:-1] - edges[0], np.diff(edges)
    hashes = _mixed(sizes.view(np.uint64))
    for at in range(0, min(int(sizes.max(initial=0)), _HASHED_BYTES), _WORD):
        longer = np.flatnonzero(sizes > at)
        left = np.minimum(sizes[longer] - at, _WORD).astype(np.uint64)
        word = words[begins[longer] + at] & (_ALL >> (np.uint64(64) - left * np.uint64(8)))
        hashes[longer] = _mixed(hashes[longer] * _COLUMN + word)
    long = np.flatnonzero(sizes > _HASHED_BYTES)
    if len(long):
        word = words[begins[long] + sizes[long] - _WORD]
        hashes[long] = _mixed(hashes[long] * _COLUMN + word)
    return hashes


def _mixed(numbers: Hashes) -> Hashes:
    """Spread every bit over all bits, as SplitMix64 does it."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _SECOND
    mixed: Hashes = numbers ^ (numbers >> np.uint64(31))
    return mixed
