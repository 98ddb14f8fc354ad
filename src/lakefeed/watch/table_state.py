"""What is known of each source and each table while a run lasts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from lakefeed.engine.run_events import (
    Committed,
    FilesCounted,
    InputsSeen,
    Refreshed,
    RowsBetween,
    RowsShaped,
    UpkeepDone,
)
from lakefeed.events import Offsets, Outstanding
from lakefeed.reports.outstanding import behind_words, copied_words, lag_words
from lakefeed.reports.status import PartitionStatus, partitions_at
from lakefeed.sources import Source, dense_offsets
from lakefeed.tables.detail.shaped import merged_counts
from lakefeed.watch.series import Rate, Series
from lakefeed.watch.view import SourceFacts, SourceView, TableFacts, TableView

_COMMITS_KEPT = 8


@dataclass(kw_only=True)
class SourceState(SourceFacts):
    """One source. Changed by the state of the run only, under its lock."""

    spec: Source
    rate: Rate
    dead_letter_rate: Rate
    ends: dict[str, int] = field(default_factory=dict)
    rows_between: RowsBetween = dense_offsets.rows_between
    ask_outstanding: Callable[[Offsets, Offsets], Outstanding | None] = lambda position, ends: None
    behind: int = 0
    describe: Callable[[], str] = lambda: ""
    refuses: Callable[[], str] = lambda: ""
    lag: Series = field(default_factory=lambda: Series(level=True))

    def view(
        self,
        now: float,
        began: float,
        span: float,
        lags: dict[str, int],
        together: int,
        slowest: Offsets,
    ) -> SourceView:
        """The source as it is now."""
        outstanding = self.ask_outstanding(slowest, self.ends) if self.answers else None
        told = (self.describe(), copied_words(outstanding) or behind_words(outstanding))
        return SourceView(
            **_facts(self, SourceFacts),
            rate=self.rate.now(now),
            lags=lags,
            lag_together=together if self.answers else None,
            dead_letter_rate=self.dead_letter_rate.now(now),
            lag_points=self.lag.points(now, began, span),
            about="; ".join(filter(None, told)),
            refusing=self.refuses(),
            outstanding=outstanding,
            lag_words=self.spec.describe_lag(slowest, self.ends, lags) if self.answers else None,
        )


@dataclass(kw_only=True)
class TableState(TableFacts):
    """One table. Changed by the state of the run only, under its lock."""

    rates: dict[str, Rate]
    codes: dict[str, int] = field(default_factory=dict)
    positions: dict[str, dict[str, int]] = field(default_factory=dict)
    apart: set[str] = field(default_factory=set)
    """Sources of which it catches up, while the other tables go on."""
    history: deque[tuple[float, Committed]] = field(default_factory=lambda: deque(maxlen=_COMMITS_KEPT))
    refusing: dict[str, str] = field(default_factory=dict)
    """By source: the share of events that became dead letters, and why."""
    rows_hour: Series = field(default_factory=Series)

    def add(self, event: Committed, now: float) -> None:
        """Count a commit."""
        self.version, self.last_commit = event.version, now
        if event.replaces:
            self.rows = self.files = self.small_files = self.size = 0
        self.rows += event.rows
        self.files += event.files
        self.small_files += event.small_files
        self.size += event.size
        self.written += event.rows
        self.commits += 1
        self.commit_seconds += event.seconds
        if self.first_version is None:
            self.first_version = event.version
        if event.rows:
            # Without times of their own, events are as old as their commit.
            self.newest = max(self.newest or 0.0, event.newest or now)
        self.rows_hour.add(now, event.rows)
        self.history.appendleft((now, event))
        if event.source in self.rates:
            self.rates[event.source].add(now, event.rows)

    def shape(self, event: RowsShaped) -> None:
        """Count what was left out, and what the rules said."""
        self.filtered += event.filtered
        self.expectations = merged_counts(self.expectations, event.expectations)

    def see_inputs(self, event: InputsSeen) -> None:
        """Take note of what the tables that its query reads have got."""
        self.inputs, self.missing = dict(event.inputs), event.missing
        self.behind_by = dict(event.behind_by)
        self.behind = sum(self.behind_by.values()) if event.inputs else None

    def refreshed(self, event: Refreshed, now: float) -> None:
        """Take note of a refresh."""
        self.inputs, self.behind, self.behind_by = dict(event.inputs), 0, dict.fromkeys(event.inputs, 0)
        self.refresh_seconds, self.last_refresh = event.seconds, now

    def count(self, event: FilesCounted) -> None:
        """Take what was counted instead of what was added up."""
        if self.version is not None and event.version < self.version:
            return
        self.version, self.rows, self.files = event.version, event.rows, event.files
        self.small_files, self.size = event.small_files, event.size
        self.last_commit = event.last_commit or self.last_commit
        self.columns, self.partition_by = event.columns, event.partition_by
        self.partition_values = event.partitions

    def keep_up(self, event: UpkeepDone) -> None:
        """Take over the files that upkeep has changed, until they are counted again."""
        self.files = max(0, self.files + event.files_after - event.files_before)
        self.small_files = min(self.small_files, self.files)
        self.size = max(0, self.size + event.bytes_after - event.bytes_before)

    def view(self, now: float, began: float, span: float, sources: Mapping[str, SourceState]) -> TableView:
        """The table as it is now; `sources` are those whose positions it tells of."""
        offsets = {name: _offsets(held, sources[name]) for name, held in self.positions.items()}
        return TableView(
            **_facts(self, TableFacts),
            rate=sum(rate.now(now) for rate in self.rates.values()),
            codes=dict(self.codes),
            points=self.rows_hour.points(now, began, span),
            offsets=offsets,
            history=tuple(self.history),
            catching_up=tuple(sorted(self.apart)),
            refusing="; ".join(self.refusing.values()),
            lag_words=self._lag_words(sources),
        )

    def _lag_words(self, sources: Mapping[str, SourceState]) -> str | None:
        told: list[tuple[int | None, str | None]] = []
        for name, positions in self.positions.items():
            source = sources[name]
            if not source.answers or not source.ends.keys() >= positions.keys():
                return None
            lags = source.rows_between(positions, source.ends)
            told.append((sum(lags.values()), source.spec.describe_lag(positions, source.ends, lags)))
        return lag_words(told)


def _facts(state: SourceFacts | TableFacts, kind: type[SourceFacts] | type[TableFacts]) -> dict[str, Any]:
    return {one.name: getattr(state, one.name) for one in fields(kind)}


def _offsets(positions: Offsets, source: SourceState) -> dict[str, PartitionStatus]:
    ends = source.ends if source.answers else {}
    known = {partition: at for partition, at in positions.items() if partition in ends}
    return partitions_at(positions, ends, source.rows_between(known, ends), source.spec)
