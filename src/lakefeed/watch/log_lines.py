"""Progress as log lines: one for each commit, for a run that nobody looks at."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType

from lakefeed.columns.sightings import inferred_from
from lakefeed.engine.report import Committed, Quiet, Refusing, Upkept
from lakefeed.figures import trying_again
from lakefeed.text import counted
from lakefeed.units import readable_seconds, readable_size
from lakefeed.watch.state import RunState
from lakefeed.watch.summary import summary, where_to_look

_log = logging.getLogger("lakefeed")

_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 30.0
"""Seconds between two lines about the same trouble. Tries are at most half a minute apart."""


@dataclass(frozen=True)
class _Trouble:
    """What was said last of a source that does not go on."""

    text: str
    since: float
    pause: float
    say_again_at: float


class LogLines(Quiet):
    """Writes what happens to the log; where lines are JSON, with the figures as fields of their own.

    Used as a context manager, it tells the beginning and the end of a run as well: what the logbook has
    counted by then, and with `called` where to look further. `stop` is set when the run is told to end, and
    `waits` is false for a run that ends by itself.
    """

    def __init__(
        self,
        logbook: RunState | None = None,
        called: str = "",
        stop: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        waits: bool = True,
    ) -> None:
        """Nothing has happened yet."""
        self._trouble: dict[str, _Trouble] = {}
        self._clock = clock
        self._logbook = logbook
        self._called = called
        self._stop = stop
        self._over = False
        self._waits = waits
        self._seen: set[str] = set()

    def __enter__(self) -> LogLines:
        """Wait for a stop, to say that it was heard."""
        if self._stop:
            threading.Thread(target=self._tell_stop, name="stop", daemon=True).start()
        return self

    def starting(self) -> None:
        """Say that Spark is being started."""
        _log.info("starting Spark", extra={"fields": {"event": "starting"}})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Say what was done."""
        self._over = True
        view = self._logbook.view() if self._logbook else None
        if view is None or (kind is not None and not view.started):
            return
        commands = [command for command, _ in where_to_look(view, self._called)] if self._called else []
        look = f"; look further with {' and '.join(f'`{one}`' for one in commands)}" if commands else ""
        fields = {
            "event": "ended",
            "rows": view.rows,
            "dead_letters": view.dead_letters,
            "commits": view.commits,
            "seconds": round(view.now - view.began, 3),
        }
        _log.info("%s%s", summary(view), look, extra={"fields": fields})

    def _tell_stop(self) -> None:
        assert self._stop is not None
        self._stop.wait()
        if not self._over:
            _log.info("stopping, waiting for the running batch", extra={"fields": {"event": "stopping"}})

    def committed(self, event: Committed) -> None:
        """One line for a version of a table."""
        letters = f", {counted(event.letters, 'new dead letter')}" if event.letters else ""
        retries = f", {counted(event.retries, 'retry', 'retries')}" if event.retries else ""
        _log.info(
            "%s: version %d: %s in %s, %s, from %s%s, committed in %.0f ms%s",
            event.table,
            event.version,
            counted(event.rows, "row"),
            counted(event.files, "file"),
            readable_size(event.size),
            event.source,
            letters,
            event.seconds * 1000,
            retries,
            extra={"fields": {"event": "committed", **asdict(event)}},
        )

    def seen(self, source: str, ends: Mapping[str, int]) -> None:
        """Say once that a run has begun with nothing to read, so that a quiet log is not taken for a hang."""
        if source in self._seen or self._logbook is None:
            return
        lag = next((one.lag for one in self._logbook.view().sources if one.name == source), None)
        if lag is not None:
            self._seen.add(source)
        if self._waits and lag == 0:
            fields = {"event": "waiting", "source": source}
            _log.info("source %s: nothing to read, waiting for events", source, extra={"fields": fields})

    def trouble(self, source: str, text: str) -> None:
        """Say what is being retried and for how long, again now and then, and when it is over."""
        self._retry("source", source, text)

    def delayed(self, table: str, source: str, text: str) -> None:
        """The same for one table."""
        self._retry("table", table, text)

    def _retry(self, kind: str, name: str, text: str) -> None:
        key = f"{kind} {name}"
        known, now = self._trouble.get(key), self._clock()
        if not text:
            if self._trouble.pop(key, None):
                _log.info("%s: continues", key, extra={"fields": {"event": "over", kind: name}})
            return
        if known and known.text == text and now < known.say_again_at:
            return
        since = known.since if known else now
        pause = _FIRST_PAUSE if known is None else min(2 * known.pause, _LONGEST_PAUSE)
        self._trouble[key] = _Trouble(text, since, pause, now + pause)
        what, _, remedy = text.partition("\n")
        named = "" if kind == "source" or what.startswith(key) else f"{key}: "
        most = self._logbook.give_up_after if self._logbook else None
        again = f"{trying_again(now - since, most)} (give_up_after)" if most else "trying again"
        said = f"{named}{what.rstrip('.')}; {again}" + (f"\n{remedy}" if remedy else "")
        _log.warning("%s", said, extra={"fields": {"event": "trouble", kind: name}})

    def moved(self, table: str, source: str, text: str, apart: bool) -> None:
        """A table goes its own way, or comes back."""
        _log.info(
            "%s: %s", table, text, extra={"fields": {"event": "moved", "table": table, "source": source}}
        )

    def stopped(self, what: str, text: str) -> None:
        """An error that ends a part of the run."""
        kind, _, name = what.partition(" ")
        said = text.removeprefix(f"{what}: ")
        _log.error("%s stopped: %s", what, said, extra={"fields": {"event": "stopped", kind: name}})

    def changed(self, table: str, text: str) -> None:
        """A table was created or changed."""
        _log.info("%s: %s", table, text, extra={"fields": {"event": "changed", "table": table}})

    def refusing(self, event: Refusing) -> None:
        """A table refuses many of its events, or no longer."""
        fields = {"event": "refusing", "table": event.table, "source": event.source}
        if event.text:
            _log.warning("table %s: %s", event.table, event.text, extra={"fields": fields})
        else:
            _log.info("table %s: events are accepted again", event.table, extra={"fields": fields})

    def inferred(self, table: str, lines: Sequence[str], events: int) -> None:
        """What was seen of new columns."""
        fields = {"event": "inferred", "table": table, "columns": list(lines), "events": events}
        said = "\n  ".join([f"columns {inferred_from(events)}:", *lines])
        _log.info("%s: %s", table, said, extra={"fields": fields})

    def upkept(self, event: Upkept) -> None:
        """One line for an operation of upkeep."""
        _log.info(
            "%s: %s: %s to %s in %s",
            event.table,
            event.operation,
            counted(event.files_before, "file"),
            counted(event.files_after, "file"),
            readable_seconds(event.seconds),
            extra={"fields": {"event": "upkept", **asdict(event)}},
        )
