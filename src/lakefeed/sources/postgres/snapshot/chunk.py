"""Chunks: parts of a snapshot by ranges of a key, and what of the changes belongs to a table meanwhile.

A position in the rows of a table is 0 before its snapshot, 1 before one that replaces its rows, the number of
a key (see `ChunkKey`) and the middle of all numbers below `ALL_ROWS` inside of it, and `ALL_ROWS` behind it.
A batch that reads a chunk also reads all changes up to the end of the WAL as it is then. So the table has,
behind the batch, every row before the chunk's end as it is there, and nothing of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lakefeed.sources.postgres.positions import ALL_ROWS
from lakefeed.sources.postgres.replication.pgoutput import TRUNCATE, Changes, Mask, Numbers
from lakefeed.sources.postgres.snapshot.chunk_key import ChunkKey
from lakefeed.sources.postgres.snapshot.visibility import Visibility

AGAIN = 1
"""The position before a snapshot that replaces the rows of a table."""
_MIDDLE = 1 << 61


def position_of_key(key: int) -> int:
    """The position before a key."""
    return key + _MIDDLE


def positions_of_keys(keys: Numbers) -> Numbers:
    """The position before each of some keys; those beyond all positions share the first or the last."""
    return np.clip(keys, AGAIN + 1 - _MIDDLE, ALL_ROWS - 1 - _MIDDLE) + _MIDDLE


def key_at(position: int) -> int | None:
    """The key that a position is before; None at the beginning and at the end."""
    return position - _MIDDLE if AGAIN < position < ALL_ROWS else None


def fits(key: int) -> bool:
    """Whether a key has a position."""
    return AGAIN < position_of_key(key) < ALL_ROWS


@dataclass(frozen=True)
class Chunk:
    """From where to where the rows of a table are read in a batch; at `start` only where none are read."""

    start: int
    end: int
    key: ChunkKey | None = None
    """What ranges are read of; None where the rows are read all at once."""
    seen: str | None = None
    """What the snapshot that they are read under has seen."""

    @property
    def is_part(self) -> bool:
        """Whether rows before or behind it are read in other batches."""
        return self.start > AGAIN or self.end < ALL_ROWS

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Chunk:
        """From a task's payload."""
        key = payload["key"]
        return cls(payload["start"], payload["end"], key and ChunkKey.of(key), payload["seen"])

    def wanted(self, changes: Changes) -> Mask | None:
        """Which changes of the table are to be applied beside the chunk; None for all of them."""
        if self.start == ALL_ROWS:
            return None
        count = len(changes.ops)
        unseen = np.zeros(count, np.bool_)
        if self.seen is not None and self.end > self.start:
            unseen = ~Visibility.of(self.seen).sees(changes.xids)
        if self.key is None or not self.is_part:
            return unseen
        keys = self._keys(changes)
        done = np.zeros(count, np.bool_)
        if (first := key_at(self.start)) is not None:
            # A truncation is of no key: it is for the rows that are there.
            done = (keys < first) | (changes.ops == TRUNCATE)
        last = key_at(self.end)
        here = np.ones(count, np.bool_) if last is None else keys < last
        if self.end == self.start:
            return done
        return done | (here & unseen)

    def late(self, changes: Changes) -> Mask:
        """Which changes from before the range belong to the chunk all the same.

        A transaction that waits for a standby is in the stream already, and no snapshot sees it yet. Changes
        of keys that were not copied were passed, and this chunk has not seen them either.
        """
        if self.seen is None or self.end == self.start or self.start == AGAIN:
            return np.zeros(len(changes.ops), np.bool_)
        unseen: Mask = ~Visibility.of(self.seen).sees(changes.xids) & (changes.ops != TRUNCATE)
        if self.key is None or not self.is_part or not unseen.any():
            return unseen
        keys, first, last = self._keys(changes), key_at(self.start), key_at(self.end)
        if first is not None:
            unseen &= keys >= first
        if last is not None:
            unseen &= keys < last
        return unseen

    def _keys(self, changes: Changes) -> Numbers:
        assert self.key is not None
        names = [field.name for field in changes.relation.fields]
        return self.key.numbers([changes.texts[names.index(one)] for one in self.key.columns])
