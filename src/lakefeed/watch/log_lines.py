"""Progress as log lines: one for each commit, for a run that nobody looks at."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType

from lakefeed.columns.inferred import inferred_from
from lakefeed.engine.run_events import (
    AllRefused,
    BatchDone,
    Committed,
    CoresSeen,
    InputsSeen,
    RefreshFailed,
    RefusingMany,
    RunEvent,
    SchemaInferred,
    SourceSeen,
    SourceStopped,
    SourceTrouble,
    Starting,
    TableChanged,
    TableDelayed,
    TableMoved,
    TableStopped,
    UpkeepDone,
)
from lakefeed.figures import WAITS, readable_seconds, readable_size, trying_again
from lakefeed.reports.outstanding import copied_words
from lakefeed.text import counted, listed
from lakefeed.watch.alike import AlikeLines
from lakefeed.watch.state import RunState
from lakefeed.watch.summary import summary, where_to_look

_log = logging.getLogger("lakefeed")

_COPIED_EVERY = 10.0
"""Seconds between two lines about the same snapshot."""
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 30.0
"""Seconds between two lines about the same trouble. Tries are at most half a minute apart."""


@dataclass(frozen=True)
class _Trouble:
    """What was said last of a source that does not go on."""

    text: str
    since: float
    pause: float
    say_again_at: float


class LogLines:
    """Writes what happens to the log; where lines are JSON, with the figures as fields of their own.

    Used as a context manager, it tells the beginning and the end of a run as well: what `state` has
    counted by then, and with `called` where to look further. `stop` is set when the run is told to end, and
    `waits` is false for a run that ends by itself.
    """

    def __init__(
        self,
        state: RunState,
        called: str = "",
        stop: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        waits: bool = True,
    ) -> None:
        self._trouble: dict[str, _Trouble] = {}
        self._clock = clock
        self._state = state
        self._called = called
        self._stop = stop
        self._over = False
        self._waits = waits
        self._seen: set[str] = set()
        self._looked: dict[str, float] = {}
        self._alike = AlikeLines(clock)
        self._cores = (0, 0)

    def __enter__(self) -> LogLines:
        """Wait for a stop, to say that it was heard."""
        if self._stop:
            threading.Thread(target=self._tell_stop, name="stop", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Say what was done."""
        self._over = True
        self._alike.flush()
        view = self._state.view()
        if kind is not None and not view.started:
            return
        commands = [command for command, _ in where_to_look(view, self._called)] if self._called else []
        look = f"; look further with {' and '.join(f'`{one}`' for one in commands)}" if commands else ""
        _info(
            f"{summary(view)}{look}",
            "ended",
            rows=view.rows,
            dead_letters=view.dead_letters,
            commits=view.commits,
            seconds=round(view.now - view.began, 3),
        )

    def _tell_stop(self) -> None:
        assert self._stop is not None
        # A program may have one run after the other: the thread ends with its own.
        while not self._over:
            if self._stop.wait(0.2):
                break
        if not self._over:
            _info("stopping, waiting for the running batch", "stopping")

    def watch(self, event: RunEvent) -> None:
        """Write the line of an event, where it has one."""
        self._alike.passes(event.table if isinstance(event, Committed) else None)
        match event:
            case Starting(fetching=fetching):
                if fetching:
                    _info("fetching Delta for Spark, once for this machine (14 MB)", "fetching")
                _info("starting Spark", "starting")
            case RefreshFailed(table=table, text=text):
                self._retry("table", table, text, "tried again after `refresh`; its rows stay as they are")
            case InputsSeen(table=table, missing=missing):
                if missing and self._waits:
                    _info(f"{table}: waits for {listed(missing)}", "waiting", table=table)
            case Committed():
                # A version with positions and nothing else is of interest to nobody who reads the log.
                level = logging.INFO if _has_something(event) else logging.DEBUG
                _tell(level, _commit_line(event), "committed", **asdict(event))
            case CoresSeen(cores=cores, executors=executors):
                self._tell_cores(cores, executors)
            case BatchDone(source=source, read=read) if read:
                self._seen.add(source)
            case SourceSeen(source=source):
                self._tell_waiting(source)
                self._tell_copied(source)
            case SourceTrouble(source=source, text=text, waits=waits):
                self._retry("source", source, text, WAITS if waits else "")
            case TableDelayed(table=table, text=text):
                self._retry("table", table, text)
            case TableMoved(table=table, source=source, text=text):
                self._tell_table(table, f"{table}: {text}", "moved", source=source)
            case SourceStopped(source=source, text=text):
                _tell(logging.ERROR, _stopped("source", source, text), "stopped", source=source)
            case TableStopped(table=table, text=text):
                self._tell_table(table, _stopped("table", table, text), "stopped", logging.ERROR)
            case TableChanged(table=table, text=text):
                self._tell_table(table, f"{table}: {text}", "changed")
            case RefusingMany(table=table, source=source, text=text):
                said = f"table {table}: {text or 'events are accepted again'}"
                _tell(logging.WARNING if text else logging.INFO, said, "refusing", table=table, source=source)
            case AllRefused(table=table, source=source, text=text):
                said = f"table {table}: {text}"
                _tell(logging.ERROR, said, "all_refused", table=table, source=source)
            case SchemaInferred(table=table, lines=lines, events=events):
                said = "\n  ".join([f"{table}: columns {inferred_from(events)}:", *lines])
                _info(said, "inferred", table=table, columns=list(lines), events=events)
            case UpkeepDone():
                files = f"{counted(event.files_before, 'file')} to {counted(event.files_after, 'file')}"
                took = readable_seconds(event.seconds)
                _info(f"{event.table}: {event.operation}: {files} in {took}", "upkept", **asdict(event))

    def _tell_cores(self, cores: int, executors: int) -> None:
        """Log the cores of a cluster, and each change of them."""
        known, self._cores = self._cores, (cores, executors)
        if (executors or known[1]) and self._cores != known:
            text = f"{counted(cores, 'core')} on {counted(executors, 'executor')}"
            _info(text, "cores", cores=cores, executors=executors)

    def _tell_waiting(self, source: str) -> None:
        """Say once that a run has begun with nothing to read, so that a quiet log is not taken for a hang.

        What a source took for events may turn out to be none.
        """
        if source in self._seen or not self._waits:
            return
        lag = next((one.lag for one in self._state.view().sources if one.name == source), None)
        if lag == 0:
            self._seen.add(source)
            _info(f"source {source}: nothing to read, waiting for events", "waiting", source=source)

    def _tell_copied(self, source: str) -> None:
        """Say now and then how far the snapshot of a source is."""
        now = self._clock()
        if now < self._looked.get(source, 0.0) + _COPIED_EVERY:
            return
        self._looked[source] = now
        found = next((one.outstanding for one in self._state.view().sources if one.name == source), None)
        if (text := copied_words(found)) and found and found.copied:
            _info(f"source {source}: {text}", "copied", source=source, **asdict(found.copied))

    def _retry(self, kind: str, name: str, text: str, how: str = "") -> None:
        """Say what is being retried and for how long, again now and then, and when it is over."""
        key = f"{kind} {name}"
        known, now = self._trouble.get(key), self._clock()
        if not text:
            if self._trouble.pop(key, None):
                _info(f"{key}: continues", "over", **{kind: name})
            return
        if known and known.text == text and now < known.say_again_at:
            return
        since = known.since if known else now
        pause = _FIRST_PAUSE if known is None else min(2 * known.pause, _LONGEST_PAUSE)
        self._trouble[key] = _Trouble(text, since, pause, now + pause)
        what, _, remedy = text.partition("\n")
        named = "" if kind == "source" or what.startswith(key) else f"{key}: "
        again = how or f"{trying_again(now - since, self._state.give_up_after)} (give_up_after)"
        said = f"{named}{what.rstrip('.')}; {again}" + (f"\n{remedy}" if remedy else "")
        if kind == "table":
            self._tell_table(name, said, "trouble", logging.WARNING)
        else:
            _tell(logging.WARNING, said, "trouble", source=name)

    def _tell_table(
        self, table: str, line: str, event: str, level: int = logging.INFO, **fields: object
    ) -> None:
        """Write a line about a table; what is the same for many tables becomes one line."""

        def write(text: str, tables: Sequence[str]) -> None:
            about = {"table": tables[0]} if len(tables) == 1 else {"tables": list(tables)}
            _tell(level, text, event, **fields, **about)

        self._alike.add(table, line, write)


def _commit_line(event: Committed) -> str:
    letters = f", {counted(event.dead_letters, 'new dead letter')}" if event.dead_letters else ""
    letters += f", {event.filtered:,} left out" if event.filtered else ""
    retries = f", {counted(event.retries, 'retry', 'retries')}" if event.retries else ""
    wrote = f"{counted(event.rows, 'row')} in {counted(event.files, 'file')}, {readable_size(event.size)}"
    took = f"committed in {event.seconds * 1000:.0f} ms"
    read = listed(f"{name} version {version}" for name, version in event.inputs.items())
    origin = f"made of {read}" if event.inputs else f"from {event.source}"
    return f"{event.table}: version {event.version}: {wrote}, {origin}{letters}, {took}{retries}"


def _has_something(event: Committed) -> bool:
    return bool(
        event.rows or event.files or event.dead_letters or event.filtered or event.stale or event.replaces
    )


def _stopped(kind: str, name: str, text: str) -> str:
    what = f"{kind} {name}"
    return f"{what} stopped: {text.removeprefix(f'{what}: ')}"


def _info(line: str, event: str, **fields: object) -> None:
    _tell(logging.INFO, line, event, **fields)


def _tell(level: int, line: str, event: str, **fields: object) -> None:
    _log.log(level, "%s", line, extra={"fields": {"event": event, **fields}})
