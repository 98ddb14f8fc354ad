"""Samples: events that are given beforehand, instead of a real source; for tests of a pipeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field, SerializeAsAny

from lakefeed.columns.change_columns import ChangeColumns
from lakefeed.events import ORIGIN, Events, OffsetRange, Offsets
from lakefeed.pipeline.connectors import Connector
from lakefeed.pipeline.test_file import Sample
from lakefeed.sources import Source, SourceClient


@dataclass(frozen=True)
class SampleEvent:
    """One given event with its stream and its offset."""

    stream: str | None
    offset: int
    given: Sample


class SampleSource(Source):
    """Given events under the name of a real source, whose format and names of partitions they keep.

    No pipeline file can name it; it stands for the source that a test has events for.
    """

    type: Literal["samples"] = "samples"
    original: SerializeAsAny[Source] = Field(description="The source that it stands for.")
    events: tuple[SampleEvent, ...] = Field(
        repr=False,
        exclude=True,  # the events are data, not settings: any bytes, and nothing that a shown pipeline tells
        description="The events, in order.",
    )

    @classmethod
    def of(cls, original: Source, name: str, samples: Sequence[Sample]) -> SampleSource:
        """Number the samples, each partition from 0, as the source called `name` would have them."""
        counted: Counter[tuple[str | None, int]] = Counter()
        events = []
        for sample in samples:
            stream = sample.topic or _first_stream(original, name)
            partition = (stream, sample.partition)
            events.append(SampleEvent(stream, counted[partition], sample))
            counted[partition] += 1
        kind = StreamSamples if original.types_by_stream else cls
        return kind(original=original, events=tuple(events), format=original.payload_format)

    def client(self, pipeline: str, name: str) -> SourceClient:
        """Knows how many events there are."""
        return SampleClient(self)

    @property
    def key_format(self) -> Connector | None:
        """What the real source says."""
        return self.original.key_format

    def partition_of(self, stream: str | None, number: int) -> str:
        """The name that the real source gives the partition."""
        return self.original.partition_of(stream, number)

    def known_streams(self) -> tuple[str, ...] | None:
        """What the real source says."""
        return self.original.known_streams()

    @property
    def change_columns(self) -> ChangeColumns | None:
        """What the real source says."""
        return self.original.change_columns

    def stream_of(self, partition: str) -> str | None:
        """What the real source says."""
        return self.original.stream_of(partition)

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Events]:
        """The given events of the ranges, as one block."""
        if found := self._within(ranges):
            yield SampleEvents(self, found)

    def _within(self, ranges: Sequence[OffsetRange]) -> list[SampleEvent]:
        wanted = {span.partition: span for span in ranges}
        return [
            event
            for event in self.events
            if (span := wanted.get(self.partition_of(event.stream, event.given.partition))) is not None
            and span.start <= event.offset < span.end
        ]


class StreamSamples(SampleSource):
    """Given events under the name of a source whose streams have types of their own."""

    types_by_stream: ClassVar[bool] = True

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Events]:
        """The given events of the ranges, those of each stream as one block."""
        found: dict[str | None, list[SampleEvent]] = {}
        for event in self._within(ranges):
            found.setdefault(event.stream, []).append(event)
        for stream, events in found.items():
            block = SampleEvents(self, events)
            block.stream = stream
            yield block


class SampleClient(SourceClient):
    """The partitions of the given events; there is one even where nothing was given."""

    def __init__(self, source: SampleSource) -> None:
        names = (source.partition_of(event.stream, event.given.partition) for event in source.events)
        self._ends = dict(Counter(names)) or {source.partition_of(None, 0): 0}

    def start(self) -> Offsets:
        """Everything is read from its beginning."""
        return dict.fromkeys(self._ends, 0)

    def latest(self) -> Offsets:
        """How many events each partition has."""
        return dict(self._ends)

    def check(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        """Positions are always served."""
        return self.start() | positions


class SampleEvents(Events):
    """Some of the given events."""

    def __init__(self, source: SampleSource, events: list[SampleEvent]) -> None:
        self._source = source
        self._events = events
        self.payloads = [event.given.payload for event in events]

    def origin(self, rows: Sequence[int] | None = None) -> pa.RecordBatch:
        """Where the events say that they came from."""
        events = self._chosen(rows)
        columns = [
            [event.stream for event in events],
            [event.given.partition for event in events],
            [event.offset for event in events],
            [event.given.timestamp for event in events],
            [event.given.key for event in events],
            [_headers(event.given) for event in events],
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, ORIGIN, strict=True)]
        return pa.record_batch(arrays, schema=ORIGIN)

    def counts(self, rows: Sequence[int] | None = None) -> Mapping[str, int]:
        """How many events of each partition there are."""
        return Counter(self.partitions(rows).to_pylist())

    def partitions(self, rows: Sequence[int] | None = None) -> pa.Array:
        """The partition of each event."""
        chosen = self._chosen(rows)
        names = [self._source.partition_of(event.stream, event.given.partition) for event in chosen]
        return pa.array(names, pa.string())

    def _chosen(self, rows: Sequence[int] | None) -> list[SampleEvent]:
        return self._events if rows is None else [self._events[row] for row in rows]


def _first_stream(original: Source, name: str) -> str | None:
    """The stream of a sample that names none: the first of a source that has streams."""
    known = original.known_streams()
    return None if known == () else next(iter(known or ()), name)


def _headers(sample: Sample) -> list[dict[str, object]] | None:
    if sample.headers is None:
        return None
    return [{"key": key, "value": value} for key, value in sample.headers.items()]
