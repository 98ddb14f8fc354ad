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

from lakefeed.sources.postgres.positions import AGAIN, ALL_ROWS
from lakefeed.sources.postgres.replication.pgoutput import TRUNCATE, Changes, Mask, Numbers, Relation
from lakefeed.sources.postgres.snapshot.chunk_key import INTEGER_OIDS, ChunkKey
from lakefeed.sources.postgres.snapshot.visibility import Visibility

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
        if keys is None:
            # The snapshot has seen the statement that made the key, and so every change from before it.
            return np.zeros(count, np.bool_)
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
        if keys is None:
            return np.zeros(len(changes.ops), np.bool_)
        if first is not None:
            unseen &= keys >= first
        if last is not None:
            unseen &= keys < last
        return unseen

    def lacks_key(self, relation: Relation) -> bool:
        """Whether nothing says if changes of a relation are of rows that were copied: it has another key."""
        return AGAIN < self.start < ALL_ROWS and self.key is not None and self._columns(relation) is None

    def _keys(self, changes: Changes) -> Numbers | None:
        """The number of each change; None for changes from before the table had this key."""
        assert self.key is not None
        columns = self._columns(changes.relation)
        return None if columns is None else self.key.numbers([changes.texts[at] for at in columns])

    def _columns(self, relation: Relation) -> list[int] | None:
        """The indexes of the columns of the key; None where the relation has no such key."""
        assert self.key is not None
        fields = {field.name: at for at, field in enumerate(relation.fields)}
        if not fields.keys() >= {*self.key.columns}:
            return None
        found = [fields[name] for name in self.key.columns]
        is_number = relation.fields[found[0]].type_oid in INTEGER_OIDS
        return found if is_number or self.key.is_hashed else None
