"""Rows as numbers, so that many of them can be compared without being held: equal rows have equal numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.formats.fit.json_text import json_texts

Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]

UNFIT = np.uint64(0)
"""The hash of a row that has a value which the copy cannot hold."""
_BETWEEN, _NULL = b"\x1f", b"\x00"


def row_hashes(rows: pa.RecordBatch, names: Sequence[str]) -> Hashes:
    """A number of 64 bits for each row, over some columns. Of use within this process only."""
    parts = [part for name in names for part in _parts(rows.column(name))]
    joined = pc.binary_join_element_wise(*parts, pa.scalar(_BETWEEN, pa.large_binary()))
    # Python hashes bytes by a keyed function (SipHash), so no data can make two rows alike on purpose.
    return np.fromiter(map(hash, joined.to_pylist()), np.int64, rows.num_rows).view(np.uint64)


def _parts(column: pa.Array) -> list[pa.Array]:
    """The values as bytes, such that different rows never give the same bytes when they are joined."""
    kind = column.type
    if pa.types.is_nested(kind):
        texts = pa.array(json_texts(column), pa.large_string())
        column, kind = pc.if_else(column.is_valid(), texts, None), texts.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        values = column.cast(pa.large_binary())
        return [_bytes(pc.binary_length(values)), pc.fill_null(values, b"")]
    return [_bytes(column)]


def _bytes(column: pa.Array) -> pa.Array:
    return pc.fill_null(column.cast(pa.large_string()).cast(pa.large_binary()), _NULL)


@dataclass
class Totals:
    """How many rows each range has, and the sum of their hashes."""

    counts: Numbers
    sums: Hashes

    @classmethod
    def of(cls, ranges: int) -> Totals:
        """No rows yet."""
        return cls(np.zeros(ranges, np.int64), np.zeros(ranges, np.uint64))

    def add(self, ranges: Numbers, hashes: Hashes) -> None:
        """Count rows, each with the number of its range."""
        self.counts += np.bincount(ranges, minlength=len(self.counts))
        np.add.at(self.sums, ranges, hashes)

    def differing(self, other: Totals) -> Numbers:
        """The ranges that are not equal."""
        found: Numbers = np.flatnonzero((self.counts != other.counts) | (self.sums != other.sums))
        return found


@dataclass(frozen=True)
class Ranges:
    """How the keys of a table are cut into ranges: by an integer, or else by the hash of the key."""

    column: str
    edges: Numbers | None
    """The first key of each range but the first; None where keys are hashed."""
    count: int

    @classmethod
    def of(cls, column: str, edges: Sequence[int] | None, rows: int, size: int) -> Ranges:
        """Ranges of about `size` rows."""
        if edges is not None:
            return cls(column, np.array(edges, np.int64), len(edges) + 1)
        return cls(column, None, max(1, -(-rows // size)))

    def numbers(self, rows: pa.RecordBatch, keys: Hashes) -> Numbers:
        """The range of each row; `keys` are the hashes of their keys."""
        if self.edges is None:
            return (keys % np.uint64(self.count)).astype(np.int64)
        values = pc.fill_null(rows.column(self.column).cast(pa.int64()), 0)
        found: Numbers = np.searchsorted(self.edges, values.to_numpy(zero_copy_only=False), side="right")
        return found

    def span(self, number: int) -> tuple[int | None, int | None]:
        """The first key of a range, and that of the next one; None where it is open, or keys are hashed."""
        if self.edges is None:
            return None, None
        first = int(self.edges[number - 1]) if number else None
        return first, int(self.edges[number]) if number < len(self.edges) else None

    def words(self, number: int) -> str:
        """A range as people read it."""
        if self.count == 1:
            return "all rows"
        if self.edges is None:
            return f"part {number + 1} of {self.count} by the hash of the key"
        first, end = self.span(number)
        if first is None:
            return f"{self.column} below {end}"
        return f"{self.column} from {first}" + ("" if end is None else f" to {end - 1}")


def sorted_pairs(keys: list[Hashes], rows: list[Hashes]) -> tuple[Hashes, Hashes]:
    """Hashes of keys in order, and those of their rows."""
    every = np.concatenate([np.zeros(0, np.uint64), *keys])
    order: Any = np.argsort(every, kind="stable")
    return every[order], np.concatenate([np.zeros(0, np.uint64), *rows])[order]
