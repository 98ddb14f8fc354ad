"""Generate: made-up shop events, deterministic by row number, for demos, tests and benchmarks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from lakefeed.errors import SourceError
from lakefeed.events import Events, OffsetRange, Offsets, origin_of
from lakefeed.pipeline.connectors import FormatField
from lakefeed.sources import Source, SourceClient
from lakefeed.sources.generate.clickstream import Rows, event_times, payloads

_ROWS_AT_A_TIME = 50_000
_AHEAD = 1_000_000


class GenerateSource(Source):
    """Generated shop events. Row n is the event at offset n // partitions of partition n % partitions.

    An item is an event with a JSON payload. Ranges of rows are made in parallel, also of one partition. It
    guarantees the same bytes for the same `seed` and row, so whatever is read again is the same.
    """

    type: Literal["generate"] = "generate"
    rows: int | None = Field(
        None, ge=0, le=10**12, description="How many rows there are in all; left out: the source never ends."
    )
    rate: float | None = Field(
        None,
        gt=0,
        le=10**9,
        description="Rows per second, over all partitions; left out: no limit.",
        examples=[1000],
    )
    partitions: int = Field(1, ge=1, le=10_000, description="How many partitions the rows are spread over.")
    seed: int = Field(0, ge=0, lt=2**63, description="Another seed makes other events.")
    bad_ratio: float = Field(
        0,
        ge=0,
        le=1,
        description="The share of rows with a truncated payload: 0.01 is one row in a hundred.",
        examples=[0.01],
    )
    format: FormatField = Field(
        "json", validate_default=True, description="How a payload becomes columns; payloads are JSON."
    )

    def client(self, pipeline: str, name: str) -> SourceClient:
        """Which rows exist by now."""
        return GenerateClient(self, name)

    def partition_of(self, stream: str | None, number: int) -> str:
        """The name of a partition; there are no streams."""
        return str(number)

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Events]:
        """Make the events of the ranges; small ranges share one `Events`, so many partitions stay cheap."""
        waiting: list[Rows] = []
        for span in ranges:
            for start in range(span.start, span.end, _ROWS_AT_A_TIME):
                offsets = np.arange(start, min(start + _ROWS_AT_A_TIME, span.end), dtype=np.int64)
                if sum(map(len, waiting)) + len(offsets) > _ROWS_AT_A_TIME:
                    yield ShopEvents(self, np.concatenate(waiting))
                    waiting = []
                waiting.append(offsets * self.partitions + int(span.partition))
        if waiting:
            yield ShopEvents(self, np.concatenate(waiting))


class ShopEvents(Events):
    """The events of some row numbers."""

    def __init__(self, source: GenerateSource, rows: Rows) -> None:
        """Make the payloads."""
        self._rows = rows
        self._partitions = source.partitions
        made = payloads(source.seed, rows)
        for index in _bad(rows, source.bad_ratio):
            made[index] = made[index][: len(made[index]) // 2]
        self.payloads = made

    def origin(self, rows: Sequence[int] | None = None) -> pa.RecordBatch:
        """Partition, offset and event time; there is no stream, key or header."""
        offsets, partitions = np.divmod(self._chosen(rows), self._partitions)
        return origin_of(
            len(offsets),
            partition=pa.array(partitions.astype(np.int32)),
            offset=pa.array(offsets),
            timestamp=event_times(self._chosen(rows)),
        )

    def counts(self, rows: Sequence[int] | None = None) -> Mapping[str, int]:
        """How many events of each partition there are."""
        names, counts = np.unique(self._chosen(rows) % self._partitions, return_counts=True)
        return {str(name): int(count) for name, count in zip(names, counts, strict=True)}

    def partitions(self, rows: Sequence[int] | None = None) -> pa.Array:
        """The partition of each event."""
        return pa.array(self._chosen(rows) % self._partitions).cast(pa.string())

    def newest(self) -> None:
        """Their times are made up as well, and say nothing about how fresh a table is."""

    def _chosen(self, rows: Sequence[int] | None) -> Rows:
        return self._rows if rows is None else self._rows[np.asarray(rows, dtype=np.int64)]


def _bad(rows: Rows, ratio: float) -> list[int]:
    """Indexes of the rows to cut: those where the running share passes a whole number, so it is exact."""
    if not ratio:
        return []
    found: list[int] = np.flatnonzero(np.floor((rows + 1) * ratio) > np.floor(rows * ratio)).tolist()
    return found


class GenerateClient(SourceClient):
    """Which rows exist by now. Keeps no state: what tables have read is told through `check`.

    Without a rate, all `rows` exist at once. With one, rows go on appearing from where the tables are, at
    that rate; the time between two runs makes none. Without `rows` and without a rate there is always more
    than anybody can read: each end is a million rows per partition ahead of the one before, and a batch
    ends where `flush` says.
    """

    def __init__(self, source: GenerateSource, name: str) -> None:
        """Time begins to count for `rate`."""
        self._source = source
        self._name = name
        self._floor = self.start()
        self._rows_at_clock = 0
        self._clock = time.monotonic()

    def start(self) -> Offsets:
        """Every partition begins at 0."""
        return self._ends(0)

    def latest(self) -> Offsets:
        """Never less than an earlier one, nor than what a table holds."""
        source = self._source
        if source.rate is None and source.rows is None:
            self._raise_floor({name: offset + _AHEAD for name, offset in self._floor.items()})
        elif source.rate is None:
            self._raise_floor(self._ends(source.rows or 0))
        else:
            self._raise_floor(self._ends(self._rows_by_now(source.rate)))
        return dict(self._floor)

    def check(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        """Refuse a table that was filled with other options: its offsets would stand for other rows."""
        for key, now in self.marks().items():
            if marks.get(key, now) != now:
                self._refuse(key, marks[key], now)
        unknown = sorted(set(positions) - set(self._floor))
        if unknown:
            raise SourceError(
                f"source {self._name}: the table has read partition {unknown[0]}, but partitions is "
                f"{self._source.partitions}\n"
                f"Set partitions to what it was when the table was made, or write to another path."
            )
        self._raise_floor(positions)
        if self._source.rate is not None and sum(self._floor.values()) > self._rows_by_now(self._source.rate):
            self._rows_at_clock, self._clock = sum(self._floor.values()), time.monotonic()
        return {**self.start(), **positions}

    def marks(self) -> dict[str, int]:
        """The options that decide what an offset stands for; the share of bad rows in parts per billion."""
        source = self._source
        bad = round(source.bad_ratio * 1e9)
        return {"seed": source.seed, "partitions": source.partitions, "bad_ratio": bad}

    def _refuse(self, key: str, then: int, now: int) -> None:
        texts = [f"{value / 1e9:g}" if key == "bad_ratio" else str(value) for value in (then, now)]
        raise SourceError(
            f"source {self._name}: {key} changed from {texts[0]} to {texts[1]}, so this source makes "
            f"other rows than those that the table holds\n"
            f"Set {key}: {texts[0]} again, or write to another path."
        )

    def _rows_by_now(self, rate: float) -> int:
        made = self._rows_at_clock + int((time.monotonic() - self._clock) * rate)
        return made if self._source.rows is None else min(made, self._source.rows)

    def _raise_floor(self, offsets: Offsets) -> None:
        for name, offset in offsets.items():
            self._floor[name] = max(self._floor[name], offset)

    def _ends(self, rows: int) -> Offsets:
        """Where each partition ends when that many rows exist."""
        count = self._source.partitions
        return {str(number): (rows + count - 1 - number) // count for number in range(count)}
