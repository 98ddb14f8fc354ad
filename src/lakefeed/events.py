"""The words for events that every room shares: offsets, ranges of them, where an event came from, refusals.

Offsets are *next* offsets: a range is `start <= offset < end`, and the position of a partition is the first
offset that has not been read. Only a table's log holds last offsets (`tables/positions.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
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


def origin_of(count: int, **known: pa.Array) -> pa.RecordBatch:
    """`ORIGIN` of so many events: null in all columns that are not given."""
    arrays = [known.get(field.name, pa.nulls(count, field.type)) for field in ORIGIN]
    return pa.record_batch(arrays, schema=ORIGIN)


EPOCH = "@epoch"
"""Ends the name of a mark that holds the epoch of a partition's leader; no topic's name has this sign."""


DELETED_END = "@end"
"""Ends the name of a mark that holds the end which a partition had when its topic was deleted."""


def marked_partition(mark: str) -> str | None:
    """The partition that a mark is about; None of a mark that identifies a stream."""
    partition, sign, _ = mark.rpartition("@")
    return partition if sign and mark.endswith((EPOCH, DELETED_END)) else None


def identities(marks: Mapping[str, int]) -> dict[str, int]:
    """The marks that stay for as long as a name stands for the same events, such as a topic's id.

    The epoch of a leader does not: it changes whenever a broker is restarted.
    """
    return {name: number for name, number in marks.items() if marked_partition(name) is None}


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


@dataclass(frozen=True)
class SharedEvents:
    """Events that two names of a source have both read: what they are in words, and how many; 0 if none."""

    words: str
    count: int


Split = tuple[OffsetRange, ...]
"""What one task reads."""


@dataclass(frozen=True)
class SnapshotProgress:
    """How far a source is that is copied first, before what changes in it is read."""

    rows: int
    total: int
    """An estimate."""
    seconds_left: float | None = None


@dataclass(frozen=True)
class Outstanding:
    """What waits in a source that knows it in files or bytes; None for what it has not."""

    files: int | None = 0
    bytes: int = 0
    retained: int | None = None
    """Bytes of its log that a source keeps until they are read."""
    headroom: int | None = None
    """Bytes that may come until it keeps them no longer."""
    seconds: float | None = None
    """For how long, at least, there has been something that the slowest table has not read."""
    copied: SnapshotProgress | None = None
    young: int = 0
    """Files that may still be written and count for nothing yet: they are younger than `settle` seconds."""
    settle: float | None = None
    gone: int = 0
    """Files that are known and are not there any more, whoever took them away; not those of `after`."""
    new: int = 0
    """Files that are not known yet."""


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


@dataclass(frozen=True)
class Unfit:
    """Values of a column that its type cannot hold, such as an infinite date: the column is null there."""

    where: np.ndarray[Any, np.dtype[np.bool_]]
    texts: pa.StringArray
    """The column as the source writes it, all of it."""


@dataclass(frozen=True)
class PartRead:
    """What was read of a part of a source that it keeps account of, such as a file."""

    records: int = 0
    dead_letters: int = 0
    """Over all tables."""
    version: int | None = None
    """The version of the first table that has it; None where no table has got rows."""
    error: str | None = None
    """Why it could not be read, or not all of it."""


@dataclass(frozen=True)
class Reload:
    """A file, or another part of a source, that is read anew: its rows replace those that it had before."""

    stream: str
    """What `ORIGIN` says of its events: the path of the file."""
    start: int
    """The first offset of the new rows."""
    former: tuple[tuple[int, int], ...]
    """The ranges of offsets, without their ends, whose rows and dead letters go."""
    folder: str = ""
    """Below which the source reads: rows from before a move name the file below another one."""
    is_name_reused: bool = False
    """Whether an earlier file, whose rows stay, had the same path, or may have had it."""
    unread: tuple[tuple[int, int], ...] = ()
    """Former ranges that no table has read: there are no rows, but there may be dead letters, which go."""

    @property
    def name(self) -> str:
        """The path below the folder."""
        return self.stream.removeprefix(self.folder.rstrip("/") + "/")


class EndsEarlier(Exception):
    """Raised by a source on a worker: a range must be read in two batches. Nothing of the batch is kept.

    `ends` says where the first of them ends, by partition.
    """

    def __init__(self, ends: Offsets) -> None:
        super().__init__(ends)
        self.ends = dict(ends)


class Events(ABC):
    """Some events of a task, in memory on a worker: their payloads, or their columns.

    Where they came from is made when it is asked for.
    """

    payloads: Sequence[bytes | None] = ()
    """The bytes of each event, which the format of the source decodes."""
    columns: pa.RecordBatch | None = None
    """Instead of payloads: a row for each event, of a source that has columns; no format is needed."""
    unfit: Mapping[str, Unfit] = MappingProxyType({})
    """By column, values that it cannot hold; what becomes of them is for the table's `evolve` to say."""
    texts: Mapping[str, pa.StringArray] = MappingProxyType({})
    """By column, each value as the source writes it, for a table that has the column as text."""
    problem: str | None = None
    """Why no table can have these columns; it stops each table that takes the events, and no other."""
    typed_rows: bool = False
    """Whether payloads are rows of a source of columns, written as JSON: text takes values of any type."""
    stream: str | None = None
    """Of a source whose streams have types of their own: the one stream that all of them are of."""
    refused: Sequence[Refused] = ()
    """Instead of both: why none of them can be read, one refusal for each, such as a damaged file."""
    key_columns: tuple[str, ...] | None = None
    """Of changes of rows: the columns that tell rows apart, none where the source says that nothing does."""

    former_keys: tuple[str, ...] = ()
    """Of changes from before the source had `key_columns`: the columns by which they name their rows."""

    def __len__(self) -> int:
        """How many events there are."""
        if self.refused:
            return len(self.refused)
        return len(self.payloads) if self.columns is None else int(self.columns.num_rows)

    def payloads_for(self, columns: pa.Schema) -> Sequence[bytes | None]:
        """The payloads of `typed_rows`, as a table with these columns takes them."""
        return self.payloads

    def lacking(self, columns: Collection[str]) -> Mapping[int, str]:
        """Of `typed_rows`: the indexes of rows that lack one of some columns, with its name."""
        return {}

    def size(self) -> tuple[int, int]:
        """The bytes of all events, and of the largest one; of columns, of an average one."""
        if self.columns is not None:
            return self.columns.nbytes, self.columns.nbytes // max(1, len(self))
        sizes = list(map(len, filter(None, self.payloads)))
        return sum(sizes), max(sizes, default=0)

    def completed(self, columns: Collection[str] | None) -> Completed:
        """The events with values that changes leave out, of these columns or of all, as the source has them.

        What has changed since comes with later events. A source that cannot be asked returns the events as
        they are. Raises SourceUnavailable or SourceError.
        """
        return Completed(self)

    @abstractmethod
    def origin(self, rows: Sequence[int] | None = None) -> pa.RecordBatch:
        """`ORIGIN` columns of all events, or of those at the given indexes."""

    def timestamp_types(self, rows: Sequence[int] | None = None) -> Sequence[int]:
        """What each event's time is, in Kafka's numbers: -1 for none, 0 given by its producer, 1 by a broker.

        For a source that does not know, every time there is was given by the producer.
        """
        moments = self.origin(rows).column("timestamp")
        return [-1 if moment is None else 0 for moment in moments.cast(pa.int64()).to_pylist()]

    @abstractmethod
    def counts(self, rows: Sequence[int] | None = None) -> Mapping[str, int]:
        """How many events of each partition there are, among all or among those at the given indexes."""

    def partitions(self, rows: Sequence[int] | None = None) -> pa.Array:
        """The partition of each event, among all or among those at the given indexes.

        Events of several partitions override it.
        """
        counts = self.counts(rows)
        assert len(counts) <= 1, "events of several partitions"
        return pa.repeat(pa.scalar(next(iter(counts), None), pa.string()), sum(counts.values()))

    def parts(self) -> Mapping[str, int]:
        """How many events of each part there are whose events the source counts, such as a file."""
        return {}

    def part_errors(self) -> Mapping[str, str]:
        """Why parts could not be read, or not all of them."""
        return {}

    def shown(self, rows: Sequence[int] | None = None) -> pa.RecordBatch:
        """`ORIGIN` as metadata columns have it: with the stream's own offsets, where it has some."""
        return self.origin(rows)

    def newest(self) -> float | None:
        """The time of the last event, in seconds since 1970; None where it has none.

        Events of a partition come in their order, so looking at each one would cost much and tell little.
        """
        if not len(self):
            return None
        moment = self.origin([len(self) - 1]).column("timestamp").cast(pa.int64())[0].as_py()
        return None if moment is None else moment / 1_000_000


@dataclass(frozen=True)
class Completed:
    """Events with values that their changes had left out."""

    events: Events
    gone: Sequence[int] = ()
    """The indexes of changes of rows that the source does not have any more; later events say so."""
    unknown: Sequence[int] = ()
    """The indexes of changes whose rows the source cannot be asked for."""


class SomeEvents(Events):
    """Those among some events that are at the given indexes."""

    def __init__(self, events: Events, rows: Sequence[int]) -> None:
        self._events, self._rows = events, rows
        if events.columns is None:
            self.payloads = [events.payloads[row] for row in rows]
        else:
            self.columns = events.columns.take(pa.array(rows, pa.int64()))

    def origin(self, rows: Sequence[int] | None = None) -> pa.RecordBatch:
        """Where they came from."""
        return self._events.origin(self._among(rows))

    def timestamp_types(self, rows: Sequence[int] | None = None) -> Sequence[int]:
        """What their times are."""
        return self._events.timestamp_types(self._among(rows))

    def counts(self, rows: Sequence[int] | None = None) -> Mapping[str, int]:
        """How many of each partition there are."""
        return self._events.counts(self._among(rows))

    def partitions(self, rows: Sequence[int] | None = None) -> pa.Array:
        """The partition of each."""
        return self._events.partitions(self._among(rows))

    def _among(self, rows: Sequence[int] | None) -> Sequence[int]:
        return self._rows if rows is None else [self._rows[row] for row in rows]
