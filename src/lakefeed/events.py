"""The words for events that every room shares: offsets, ranges of them, where an event came from, refusals.

Offsets are *next* offsets: a range is `start <= offset < end`, and the position of a partition is the first
offset that has not been read. Only a table's log holds last offsets (`tables/positions.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

Offsets = dict[str, int]
"""The next offset by partition name."""

ORIGIN = pa.schema(
    [
        ("stream", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""Where an event came from: what metadata columns and dead letters are made of."""

EPOCH = "@epoch"
"""Ends the name of a mark that holds the epoch of a partition's leader; no topic's name has this sign."""


def identities(marks: Mapping[str, int]) -> dict[str, int]:
    """The marks that stay for as long as a name stands for the same events, such as a topic's id.

    The epoch of a leader does not: it changes whenever a broker is restarted.
    """
    return {name: number for name, number in marks.items() if not name.endswith(EPOCH)}


@dataclass(frozen=True)
class OffsetRange:
    """The events of one partition from `start` up to and without `end`.

    `payload` is what the source gives the task that reads the range, such as the name of a file: JSON that
    nobody else looks into.
    """

    partition: str
    start: int
    end: int
    payload: Any = field(default=None, compare=False)

    def __len__(self) -> int:
        return self.end - self.start


Split = tuple[OffsetRange, ...]
"""What one task reads."""


def lowest(positions: Iterable[Offsets]) -> Offsets:
    """The lowest next offset of each partition over several tables."""
    merged: Offsets = {}
    for one in positions:
        for partition, offset in one.items():
            merged[partition] = min(offset, merged.get(partition, offset))
    return merged


@dataclass(frozen=True)
class Refused:
    """An event that did not become a row: its index among those at hand, where it failed, and why."""

    index: int
    stage: str
    code: str
    error: str


class Events(ABC):
    """Some events of a task, in memory on a worker: their payloads, or their columns.

    Where they came from is made when it is asked for.
    """

    payloads: Sequence[bytes | None] = ()
    """The bytes of each event, which the format of the source decodes."""
    columns: pa.RecordBatch | None = None
    """Instead of payloads: a row for each event, of a source that has columns; no format is needed."""

    def __len__(self) -> int:
        """How many events there are."""
        return len(self.payloads) if self.columns is None else int(self.columns.num_rows)

    def size(self) -> tuple[int, int]:
        """The bytes of all events, and of the largest one; of columns, of an average one."""
        if self.columns is not None:
            return self.columns.nbytes, self.columns.nbytes // max(1, len(self))
        sizes = list(map(len, filter(None, self.payloads)))
        return sum(sizes), max(sizes, default=0)

    @abstractmethod
    def origin(self, rows: Sequence[int] | None = None) -> pa.RecordBatch:
        """`ORIGIN` columns of all events, or of those at the given indexes."""

    @abstractmethod
    def counts(self, rows: Sequence[int] | None = None) -> Mapping[str, int]:
        """How many events of each partition there are, among all or among those at the given indexes."""

    def newest(self) -> float | None:
        """The time of the last event, in seconds since 1970; None where it has none.

        Events of a partition come in their order, so looking at each one would cost much and tell little.
        """
        if not len(self):
            return None
        moment = self.origin([len(self) - 1]).column("timestamp").cast(pa.int64())[0].as_py()
        return None if moment is None else moment / 1_000_000
