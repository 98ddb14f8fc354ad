"""Events come in: one folder per system, and the contract that they all keep.

A source is asked on the driver which offsets exist, and on a worker for the events of a range of them.
Offsets are always *next* offsets here: a range is `start <= offset < end`, and a partition's position is the
first offset that has not been read. An offset is an integer below 2**63 that grows with each event of its
partition. There may be gaps, so nobody but the source knows how many events lie between two of them. Nothing
outside a source looks into a partition's name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from lakefeed.events import EPOCH, Events, OffsetRange, Offsets, Split
from lakefeed.pipeline.connectors import Connector, FormatField, connector_named
from lakefeed.pipeline.flush import Flush
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.table import Table
from lakefeed.sources import dense

if TYPE_CHECKING:
    from lakefeed.sources.delta.source import DeltaSource as DeltaSource
    from lakefeed.sources.generate.source import GenerateSource as GenerateSource
    from lakefeed.sources.kafka.source import KafkaSource as KafkaSource


@dataclass(frozen=True)
class Allowance:
    """How much the next batch may read at most.

    A source that knows sizes beforehand keeps to `bytes` as well. For one that does not, `rows` is already
    what fits, by the size that events had so far.
    """

    rows: int
    bytes: int


class SourceClient(ABC):
    """A source as the driver sees it, for the length of a run. Raises SourceUnavailable or SourceError."""

    patience: float = 10.0
    """Seconds that an answer may take; those who only look set it lower."""

    @abstractmethod
    def start(self) -> Offsets:
        """The next offsets of a table that has read nothing yet, for every partition that exists now."""

    @abstractmethod
    def latest(self) -> Offsets:
        """The end of every partition that exists now, new ones included. Called several times a second."""

    def rows_between(self, position: Offsets, ends: Offsets) -> dict[str, int]:
        """How many events of each partition of `position` wait before `ends`; a guess where nobody knows.

        More than 0 wherever there is something to read. Asks nobody: called several times a second.
        """
        return dense.rows_between(position, ends)

    def rows_read(self, position: Offsets, ends: Offsets) -> dict[str, int] | None:
        """How many events lie between, to the row, as a proof needs it; None where the source cannot know."""
        return None

    def next_end(self, position: Offsets, ends: Offsets, allowed: Allowance) -> Offsets:
        """Where the next batch ends, given that something waits: beyond the position, up to `ends`.

        Has the partitions of `position`. An end is a place where a batch may end: between two events, and
        not inside of a transaction.
        """
        return dense.next_end(position, ends, allowed.rows)

    def splits(self, ranges: Sequence[OffsetRange], cores: int) -> list[Split]:
        """Cut ranges into tasks that run side by side, each range with what its task needs to know.

        Together they are the ranges, each event in one task. Few events are one task, so that they become
        one file.
        """
        return dense.splits(ranges, cores)

    def strand(self, position: Offsets) -> Hashable:
        """On which strand of the source a position lies: tables on different ones are never read together.

        Positions are compared, and events between them counted, only where they are on one strand.
        """
        return None

    @abstractmethod
    def check(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        """Return the positions to go on from, given those that a table holds.

        New partitions are added from their beginning. Positions that the source cannot serve any more raise
        DataLoss, or move on and are told in a warning where the source says `on_data_loss: skip`.
        """

    def confirm(self) -> None:  # noqa: B027
        """Raise SourceError unless offsets still stand for what they stood for when the marks were taken.

        Called after a batch was read and before it is committed.
        """

    def acknowledge(self, positions: Offsets) -> None:  # noqa: B027
        """Tell the source that every table of the file has all events before these positions.

        The lowest over all tables that the source feeds, those that have failed among them: a source may
        forget what lies before. Called with no position of a partition while one of its tables has not been
        looked at. Returns at once and never raises: whatever goes wrong here, the tables are right.
        """

    def marks(self) -> dict[str, int]:
        """Numbers that identify what is behind the names, such as a topic's id; kept in each table's log.

        Where there are streams, by the name of one, or by that of a partition with `EPOCH` behind it.
        """
        return {}

    def age(self, position: Offsets) -> float | None:
        """For how many seconds the first event behind a position has been there; None if nobody knows."""
        return None

    def retention(self) -> dict[str, float]:
        """For how many seconds events are kept, by topic or the like; what is not told is left out."""
        return {}

    def close(self) -> None:  # noqa: B027
        """Let go of connections; there are none by default."""


class Source(Connector):
    """The model of a source in the pipeline file."""

    room: ClassVar[str] = "source"
    format: FormatField | None = Field(
        default=None, description="How a payload becomes columns.", examples=["json"]
    )
    flush: Flush | None = Field(
        default=None, description="When a batch of this source ends; left out: the pipeline's `flush`."
    )

    @property
    def brings_changes(self) -> bool:
        """Whether its format is one of change events."""
        return self.format is not None and self.format.brings_changes

    @abstractmethod
    def client(self, pipeline: str, name: str) -> SourceClient:
        """Connect, on the driver."""

    @abstractmethod
    def partition_of(self, stream: str | None, number: int) -> str:
        """The name of a partition, from what `ORIGIN` says about an event of it."""

    def stream_of(self, partition: str) -> str | None:
        """The stream that a partition is a part of, by its name; None where the source has none."""
        return None

    def place(self, offset: int) -> str | None:
        """An offset in words, where it is more than a number; None where it is none."""
        return None

    @abstractmethod
    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Events]:
        """Yield every event of the ranges, each once, in the order of each partition. Runs on a worker.

        All events have payloads, or all have columns.
        """


class StreamsClient(SourceClient):
    """A client as one table sees it: with the partitions of the streams that the table takes."""

    def __init__(self, client: SourceClient, source: Source, table: Table) -> None:
        self._client, self._source, self._table = client, source, table

    def start(self) -> Offsets:
        """Where the table begins."""
        return self._taken(self._client.start())

    def latest(self) -> Offsets:
        """The ends of what the table takes."""
        return self._taken(self._client.latest())

    def check(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        """Positions in streams that the table does not take any more need not be served."""
        return self._taken(self._client.check(self._taken(positions), marks))

    def marks(self) -> dict[str, int]:
        """Those of the streams that the table takes."""
        return taken_marks(self._source, self._table, self._client.marks())

    def _taken(self, offsets: Offsets) -> Offsets:
        return taken(self._source, self._table, offsets)


def taken(source: Source, table: Table, offsets: Offsets) -> Offsets:
    """What is told of the partitions of those streams that a table takes."""
    return {name: at for name, at in offsets.items() if table.takes(source.stream_of(name))}


def taken_marks(source: Source, table: Table, marks: Mapping[str, int]) -> dict[str, int]:
    """The marks of those streams that a table takes.

    Its log may hold positions of others, which belong to the marks that it has taken with them.
    """
    streams = {
        name: source.stream_of(name.removesuffix(EPOCH)) if name.endswith(EPOCH) else name for name in marks
    }
    return {name: number for name, number in marks.items() if table.takes(streams[name])}


def source_of(pipeline: Pipeline, name: str) -> Source:
    """The source of that name in a pipeline: one of the file, or a table of it that feeds others."""
    found = pipeline.inputs[name]
    assert isinstance(found, Source)
    return found


def __getattr__(name: str) -> Any:
    """The model of each source, imported when it is used: `from lakefeed.sources import KafkaSource`."""
    return connector_named("source", name)
