"""The logbook of a run: listens to everything, and answers at any time what the run looks like."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

from lakefeed.columns.sightings import inferred_from
from lakefeed.engine.report import BatchDone, Committed, Counted, DeadLettersFound, Refusing, Upkept
from lakefeed.handles.tables import DEAD_LETTERS
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.secrets import Redactor, mask_urls
from lakefeed.text import counted as count_of
from lakefeed.units import readable_seconds, readable_size
from lakefeed.watch.dead_letters import LetterGroups
from lakefeed.watch.series import HOUR, Rate, Series
from lakefeed.watch.table_state import SourceState, TableState
from lakefeed.watch.view import FlowView, Happening, RunView

_SHORTEST_WINDOW = 10.0
_HAPPENINGS_KEPT = 40


class RunState:
    """A watcher that remembers, within bounds. Whatever it is told, it keeps without secrets."""

    def __init__(self, pipeline: Pipeline, clock: Callable[[], float] = time.time) -> None:
        self._pipeline = pipeline
        self._clock = clock
        self._redact = Redactor.of(pipeline).redact
        self._lock = threading.Lock()
        self._began = clock()
        self._started = False
        self._sources = {name: self._new_source(name) for name in pipeline.sources}
        self._tables = {
            name: self._new_table(name, table.route or table.path, table.from_)
            for name, table in pipeline.tables.items()
        }
        self._letters = self._new_table(DEAD_LETTERS, pipeline.dead_letters_path, tuple(pipeline.sources))
        self._groups = LetterGroups(self._redact)
        self._happenings: deque[Happening] = deque(maxlen=_HAPPENINGS_KEPT)
        self._rate = Series()
        self._lag = Series(level=True)

    def _new_source(self, name: str) -> SourceState:
        window = self._window(name)
        kind = str(getattr(self._pipeline.sources[name], "type", ""))
        return SourceState(name, kind, Rate(window, self._began), Rate(window, self._began))

    def _new_table(self, name: str, path: str, sources: tuple[str, ...]) -> TableState:
        rates = {source: Rate(self._window(source), self._began) for source in sources}
        return TableState(name, mask_urls(path), sources, rates)

    def _window(self, source: str) -> float:
        """Rates go over some batches, or they would jump between nothing and much."""
        return max(_SHORTEST_WINDOW, 2 * self._pipeline.flush_for(source).interval)

    @property
    def give_up_after(self) -> float:
        """Seconds that a trouble may last."""
        return self._pipeline.give_up_after

    def _table(self, name: str) -> TableState:
        """The notes of a table; one of a route is met here when it is first told of."""
        if name == DEAD_LETTERS:
            return self._letters
        if name not in self._tables:
            table, *key = name.split("/")
            spec = self._pipeline.tables[table]
            path = spec.routed.path(tuple(key)) if spec.routed else spec.path
            self._tables[name] = self._new_table(name, path, spec.from_)
        return self._tables[name]

    def starting(self) -> None:
        """Nothing to keep: a run begins with it."""

    def started(self) -> None:
        """Keep that Spark runs."""
        self._started = True

    def committed(self, event: Committed) -> None:
        """Count a commit."""
        with self._lock:
            now = self._clock()
            self._table(event.table).add(event, now)
            if event.table != DEAD_LETTERS:
                self._rate.add(now, event.rows)

    def failed(self, table: str, source: str, text: str) -> None:
        """Keep what a commit failed with."""
        self._happen("failed", table, f"a commit failed: {text}")

    def lettered(self, event: DeadLettersFound) -> None:
        """Count dead letters, and keep the samples."""
        with self._lock:
            now, many = self._clock(), sum(event.counts.values())
            table, source = self._table(event.table), self._sources[event.source]
            table.letters += many
            source.letters += many
            source.letter_rate.add(now, many)
            for (_, code), count in event.counts.items():
                table.codes[code] = table.codes.get(code, 0) + count
            self._groups.add(event, now)

    def refusing(self, event: Refusing) -> None:
        """Keep that a table refuses many of its events, or no longer."""
        text = self._redact(event.text)
        with self._lock:
            notes = self._table(event.table)
            notes.refusing.pop(event.source, None)
            if text:
                notes.refusing_since = notes.refusing_since if notes.refusing else self._clock()
                notes.refusing[event.source] = text
        self._happen("refusing" if text else "over", event.table, text or "events are accepted again")

    def inferred(self, table: str, lines: Sequence[str], events: int) -> None:
        """Keep what was seen of new columns."""
        self._happen(
            "changed",
            table,
            f"columns {inferred_from(events)}: " + "; ".join(" ".join(one.split()) for one in lines),
        )

    def batch_done(self, event: BatchDone) -> None:
        """Count what was read."""
        with self._lock:
            source = self._sources[event.source]
            source.read += event.new
            source.rate.add(self._clock(), event.new)

    def seen(self, source: str, ends: Mapping[str, int]) -> None:
        """Keep where a source ends."""
        with self._lock:
            notes = self._sources[source]
            notes.ends, notes.seen_at = dict(ends), self._clock()
            notes.behind = sum(self._lags(notes).values())
            notes.lag.add(notes.seen_at, notes.behind)
            self._lag.add(notes.seen_at, sum(one.behind for one in self._sources.values()))

    def reached(self, table: str, source: str, positions: Mapping[str, int]) -> None:
        """Keep how far a table is."""
        with self._lock:
            self._table(table).positions[source] = dict(positions)

    def counted(self, event: Counted) -> None:
        """Keep what a table holds."""
        with self._lock:
            self._table(event.table).count(event)

    def trouble(self, source: str, text: str) -> None:
        """Keep what is being retried, and since when."""
        self._retry(self._sources[source], text)

    def delayed(self, table: str, source: str, text: str) -> None:
        """Keep what is being retried for a table, and since when."""
        with self._lock:
            notes = self._table(table)
        self._retry(notes, text)

    def _retry(self, notes: SourceState | TableState, text: str) -> None:
        text = self._redact(text)
        with self._lock:
            if text and not notes.trouble:
                notes.trouble_since = self._clock()
            news = "over" if notes.trouble and not text else "trouble" if text and not notes.trouble else ""
            notes.trouble = text
        if news:
            self._happen(news, notes.name, text or "continues")

    def moved(self, table: str, source: str, text: str, apart: bool) -> None:
        """Keep that a table goes its own way, or comes back."""
        with self._lock:
            notes = self._table(table)
            notes.apart = {*notes.apart, source} if apart else notes.apart - {source}
        self._happen("moved", table, text)

    def stopped(self, what: str, text: str) -> None:
        """Keep what has stopped for good."""
        kind, _, name = what.partition(" ")
        with self._lock:
            notes: SourceState | TableState = self._sources[name] if kind == "source" else self._tables[name]
            notes.stopped, notes.stopped_at = self._redact(text), self._clock()
            notes.trouble = ""
        self._happen("stopped", name, text)

    def changed(self, table: str, text: str) -> None:
        """Keep a change of a table."""
        self._happen("changed", table, text)

    def upkept(self, event: Upkept) -> None:
        """Keep what upkeep did; the files that it changed are counted at the next census."""
        with self._lock:
            table = self._table(event.table)
            table.files = max(0, table.files + event.files_after - event.files_before)
            table.small_files = min(table.small_files, table.files)
            table.size = max(0, table.size + event.bytes_after - event.bytes_before)
        files = f"{event.files_before:,} to {count_of(event.files_after, 'file')}"
        sizes = f"{readable_size(event.bytes_before)} to {readable_size(event.bytes_after)}"
        self._happen(
            "upkeep",
            event.table,
            f"{event.operation}: {files}, {sizes}, in {readable_seconds(event.seconds)}",
        )

    def view(self, span: float = HOUR) -> RunView:
        """What the run looks like now, its charts over the last `span` seconds; the caller may keep it."""
        with self._lock:
            now, began = self._clock(), self._began
            ends = {name: notes.ends for name, notes in self._sources.items() if notes.answers}
            return RunView(
                pipeline=self._pipeline.name,
                now=now,
                began=began,
                started=self._started or any(one.seen_at or one.trouble for one in self._sources.values()),
                sources=tuple(
                    one.view(now, began, span, self._lags(one), self._lag_together(one))
                    for one in self._sources.values()
                ),
                tables=tuple(one.view(now, began, span, ends) for one in self._tables.values()),
                letters=self._letters.view(now, began, span, {}),
                flows=tuple(self._flows(now)),
                letter_groups=self._groups.view(),
                happenings=tuple(self._happenings),
                span=span,
                rate_points=self._rate.points(now, began, span),
                lag_points=self._lag.points(now, began, span),
                letter_points=self._letters.rows_hour.points(now, began, span),
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
        fed = [
            table.positions[source.name]
            for name, table in self._tables.items()
            if source.name in table.positions and not table.stopped and name not in left_out
        ]
        return {
            partition: max(0, end - min((at.get(partition, end) for at in fed), default=end))
            for partition, end in source.ends.items()
        }

    def _happen(self, kind: str, what: str, text: str) -> None:
        with self._lock:
            self._happenings.appendleft(Happening(self._clock(), kind, what, self._redact(text)))
