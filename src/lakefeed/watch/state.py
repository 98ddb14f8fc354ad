"""The state of a run: kept from its events, and shown at any time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace

from lakefeed.columns.inferred import inferred_from
from lakefeed.engine.run_events import (
    BatchDone,
    CommitFailed,
    Committed,
    CopyOutdated,
    CoresSeen,
    DeadLettersWritten,
    FilesCounted,
    InputsSeen,
    Refreshed,
    RefreshFailed,
    RefusingMany,
    RowsShaped,
    RunEvent,
    SchemaInferred,
    SequencesFell,
    SourceDescribed,
    SourceSeen,
    SourceStopped,
    SourceTrouble,
    Started,
    Starting,
    TableChanged,
    TableDelayed,
    TableMoved,
    TableReached,
    TableStopped,
    UnappliedCounted,
    UpkeepDone,
)
from lakefeed.figures import readable_seconds, readable_size
from lakefeed.handles.tables import DEAD_LETTERS
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.secrets import Redactor, mask_urls
from lakefeed.sources import source_of
from lakefeed.text import counted
from lakefeed.watch.alike import line_pattern
from lakefeed.watch.dead_letters import DeadLetterGroups
from lakefeed.watch.series import HOUR, Rate, Series
from lakefeed.watch.table_state import SourceState, TableState
from lakefeed.watch.view import FlowView, Happening, RunView

_SHORTEST_WINDOW = 10.0
_HAPPENINGS_KEPT = 40
_TOGETHER = 10.0
"""Seconds within which the same of several tables is one happening."""


def _is_together(one: Happening, other: Happening) -> bool:
    """Whether the same has happened to two tables at about the same time."""
    patterns = {line_pattern(each.what, each.text) for each in (one, other)}
    return one.kind == other.kind and len(patterns) == 1 and other.at - one.at < _TOGETHER


class RunState:
    """What is known of a run, within bounds and without secrets."""

    def __init__(self, pipeline: Pipeline, clock: Callable[[], float] = time.time) -> None:
        self._pipeline = pipeline
        self._clock = clock
        self._redact = Redactor.of(pipeline).redact
        self._lock = threading.Lock()
        self._began = clock()
        self._started = False
        self._cores = self._executors = 0
        self._queries = pipeline.queries()
        self._sources = {name: self._new_source(name) for name in pipeline.inputs}
        self._tables = {
            name: self._new_table(name, table.route or table.path, table.from_)
            for name, table in pipeline.tables.items()
        }
        self._dead_letters = self._new_table(DEAD_LETTERS, pipeline.dead_letters_path, tuple(pipeline.inputs))
        self._groups = DeadLetterGroups(self._redact)
        self._happenings: deque[Happening] = deque(maxlen=_HAPPENINGS_KEPT)
        self._rate = Series()
        self._lag = Series(level=True)

    def _new_source(self, name: str) -> SourceState:
        window, spec = self._window(name), source_of(self._pipeline, name)
        return SourceState(
            name=name,
            kind=spec.type,
            is_table=name not in self._pipeline.sources,
            spec=spec,
            rate=Rate(window, self._began),
            dead_letter_rate=Rate(window, self._began),
        )

    def _new_table(self, name: str, path: str, sources: tuple[str, ...]) -> TableState:
        rates = {source: Rate(self._window(source), self._began) for source in sources}
        reads = self._queries.get(name)
        return TableState(
            name=name,
            path=mask_urls(path),
            sources=sources,
            rates=rates,
            query=reads is not None,
            reads=tuple(reads or ()),
        )

    def _window(self, source: str) -> float:
        """Rates go over some batches, or they would jump between nothing and much."""
        return max(_SHORTEST_WINDOW, 2 * self._pipeline.flush_for(source).interval)

    @property
    def give_up_after(self) -> float:
        """Seconds that a trouble may last."""
        return self._pipeline.give_up_after

    def _table(self, name: str) -> TableState:
        """The state of a table; that of a routed table begins with its first event."""
        if name == DEAD_LETTERS:
            return self._dead_letters
        if name not in self._tables:
            table, *key = name.split("/")
            spec = self._pipeline.tables[table]
            path = spec.routed.path(tuple(key)) if spec.routed else spec.path
            self._tables[name] = self._new_table(name, path, spec.from_)
        return self._tables[name]

    def watch(self, event: RunEvent) -> None:
        """Keep what an event tells."""
        with self._lock:
            match event:
                case SourceSeen() | SourceDescribed() | SourceTrouble() | SourceStopped() | BatchDone():
                    self._watch_source(self._sources[event.source], event)
                case Started():
                    self._started = True
                case CoresSeen(cores=cores, executors=executors):
                    self._cores, self._executors = cores, executors
                case Starting():
                    pass
                case _:
                    self._watch_table(self._table(event.table), event)

    def _watch_source(self, source: SourceState, event: RunEvent) -> None:
        match event:
            case SourceSeen(ends=ends, rows_between=rows_between):
                source.ends, source.seen_at = dict(ends), self._clock()
                source.rows_between, source.ask_outstanding = rows_between, event.outstanding
                source.remark = self._redact(event.remark)
                source.skipped = {name: self._redact(text) for name, text in event.skipped.items()}
                source.lost = {name: self._redact(text) for name, text in event.stopped.items()}
                source.behind = sum(self._lags(source).values())
                source.lag.add(source.seen_at, source.behind)
                self._lag.add(source.seen_at, sum(one.behind for one in self._sources.values()))
            case BatchDone():
                source.read += event.new
                source.rate.add(self._clock(), event.new)
            case SourceDescribed(describe=describe, refuses=refuses):
                source.describe, source.refuses = describe, refuses
            case SourceTrouble(text=text, waits=waits):
                source.waits = waits
                self._retry(source, text)
            case SourceStopped(text=text):
                self._stop(source, text)

    def _watch_table(self, table: TableState, event: RunEvent) -> None:
        match event:
            case Committed():
                now = self._clock()
                table.add(event, now)
                # What a query has made is computed and not received: it is no part of the rate.
                if table is not self._dead_letters and not table.query:
                    self._rate.add(now, event.rows)
            case CommitFailed(text=text):
                self._happen("failed", table, f"a commit failed: {text}")
            case DeadLettersWritten():
                self._count_dead_letters(table, event)
            case RowsShaped():
                table.shape(event)
            case RefusingMany():
                self._refuse(table, event)
            case CopyOutdated(text=text):
                table.outdated = self._redact(text)
                self._happen("refusing", table, table.outdated)
            case SequencesFell():
                self._fall(table, event)
            case TableReached(source=source, positions=positions):
                table.positions[source] = dict(positions)
            case TableDelayed(text=text):
                self._retry(table, text)
            case TableMoved(source=source, text=text, apart=apart):
                table.apart = {*table.apart, source} if apart else table.apart - {source}
                self._happen("moved", table, text)
            case TableStopped(text=text):
                self._stop(table, text)
            case SchemaInferred(lines=lines, events=events):
                seen = "; ".join(" ".join(one.split()) for one in lines)
                self._happen("changed", table, f"columns {inferred_from(events)}: {seen}")
            case TableChanged(text=text):
                self._happen("changed", table, text)
            case Refreshed():
                table.refreshed(event, self._clock())
                self._retry(table, "")
            case RefreshFailed(text=text):
                self._retry(table, text)
            case InputsSeen():
                table.see_inputs(event)
            case FilesCounted():
                table.count(event)
            case UnappliedCounted(changes=changes):
                table.unapplied = changes
            case UpkeepDone():
                table.keep_up(event)
                files = f"{event.files_before:,} to {counted(event.files_after, 'file')}"
                sizes = f"{readable_size(event.bytes_before)} to {readable_size(event.bytes_after)}"
                took = readable_seconds(event.seconds)
                self._happen("upkeep", table, f"{event.operation}: {files}, {sizes}, in {took}")

    def _count_dead_letters(self, table: TableState, event: DeadLettersWritten) -> None:
        now, many, source = self._clock(), sum(event.counts.values()), self._sources[event.source]
        table.dead_letters += many
        if self._is_copy(event.table):
            table.unapplied += many
        source.dead_letters += many
        source.dead_letter_rate.add(now, many)
        for (_, code), count in event.counts.items():
            table.codes[code] = table.codes.get(code, 0) + count
        self._groups.add(event, now)

    def _is_copy(self, table: str) -> bool:
        spec = self._pipeline.tables[table]
        changes = any(self._pipeline.inputs[name].brings_changes for name in spec.from_)
        return changes and spec.mode in ("upsert", "history")

    def _refuse(self, table: TableState, event: RefusingMany) -> None:
        text = self._redact(event.text)
        table.refusing.pop(event.source, None)
        if text:
            table.refusing_since = table.refusing_since if table.refusing else self._clock()
            table.refusing[event.source] = text
        self._happen("refusing" if text else "over", table, text or "events are accepted again")

    def _fall(self, table: TableState, event: SequencesFell) -> None:
        text, before = self._redact(event.text), table.backwards.get(event.source, "")
        others = {source: said for source, said in table.backwards.items() if source != event.source}
        table.backwards = others | ({event.source: text} if text else {})
        if bool(text) != bool(before):
            self._happen("refusing" if text else "over", table, text or "changes are newer again")

    def _retry(self, retried: SourceState | TableState, text: str) -> None:
        before, retried.trouble = retried.trouble, self._redact(text)
        if bool(before) == bool(text):
            return
        if text:
            retried.trouble_since = self._clock()
        self._happen("trouble" if text else "over", retried, text or "continues")

    def _stop(self, stopped: SourceState | TableState, text: str) -> None:
        stopped.stopped, stopped.stopped_at = self._redact(text), self._clock()
        stopped.trouble = ""
        self._happen("stopped", stopped, text)

    def _happen(self, kind: str, what: SourceState | TableState, text: str) -> None:
        happening = Happening(self._clock(), kind, what.name, self._redact(text))
        newest = self._happenings[0] if self._happenings else None
        if newest and _is_together(newest, happening):
            self._happenings[0] = replace(newest, others=newest.others + 1)
        else:
            self._happenings.appendleft(happening)

    def view(self, span: float = HOUR) -> RunView:
        """What the run looks like now, its charts over the last `span` seconds; the caller may keep it."""
        with self._lock:
            now, began = self._clock(), self._began
            return RunView(
                pipeline=self._pipeline.name,
                now=now,
                began=began,
                started=self._started or any(one.seen_at or one.trouble for one in self._sources.values()),
                sources=tuple(
                    one.view(now, began, span, self._lags(one), self._lag_together(one), self._slowest(one))
                    for one in self._sources.values()
                ),
                tables=tuple(one.view(now, began, span, self._sources) for one in self._tables.values()),
                dead_letter_table=self._dead_letters.view(now, began, span, {}),
                flows=tuple(self._flows(now)),
                dead_letter_groups=self._groups.view(),
                happenings=tuple(self._happenings),
                span=span,
                rate_points=self._rate.points(now, began, span),
                lag_points=self._lag.points(now, began, span),
                dead_letter_points=self._dead_letters.rows_hour.points(now, began, span),
                cores=self._cores,
                executors=self._executors,
            )

    def _flows(self, now: float) -> list[FlowView]:
        return [
            FlowView(source, table.name, rate.now(now), self._is_up(self._sources[source], table))
            for table in self._tables.values()
            for source, rate in table.rates.items()
        ]

    def _is_up(self, source: SourceState, table: TableState) -> bool:
        return source.answers and not (table.trouble or table.stopped)

    def _lag_together(self, source: SourceState) -> int:
        """Events that wait for the slowest of the tables that are fed together."""
        apart = {name for name, table in self._tables.items() if source.name in table.apart}
        return sum(self._lags(source, apart).values())

    def _lags(self, source: SourceState, left_out: Collection[str] = ()) -> dict[str, int]:
        """Events that wait in each partition, for the slowest of the tables that are still fed."""
        return source.rows_between(self._slowest(source, left_out), source.ends)

    def _slowest(self, source: SourceState, left_out: Collection[str] = ()) -> dict[str, int]:
        """The lowest position in each partition."""
        fed = [
            table.positions[source.name]
            for name, table in self._tables.items()
            if source.name in table.positions and not table.stopped and name not in left_out
        ]
        return {
            partition: min((at.get(partition, end) for at in fed), default=end)
            for partition, end in source.ends.items()
        }
