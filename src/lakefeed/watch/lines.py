"""Progress as log lines: one for each commit, for a run that nobody looks at."""

from __future__ import annotations

import logging
from dataclasses import asdict

from lakefeed.engine.report import Committed, Quiet, Upkept
from lakefeed.pipeline.units import readable_size
from lakefeed.pipeline.wording import counted

_log = logging.getLogger("lakefeed")


class LogLines(Quiet):
    """Writes what happens to the log; where lines are JSON, with the figures as fields of their own."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self._trouble: dict[str, str] = {}

    def committed(self, event: Committed) -> None:
        """One line for a version of a table."""
        letters = f", {counted(event.letters, 'dead letter')}" if event.letters else ""
        retries = f", {event.retries} retries" if event.retries else ""
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

    def trouble(self, source: str, text: str) -> None:
        """Say what is being retried, once for each text, and when it is over."""
        if text == self._trouble.get(source, ""):
            return
        self._trouble[source] = text
        if text:
            what, _, remedy = text.partition("\n")
            said = f"{what}; trying again" + (f"\n{remedy}" if remedy else "")
            _log.warning("%s", said, extra={"fields": {"event": "trouble", "source": source}})
        else:
            _log.info("source %s: going on", source, extra={"fields": {"event": "over", "source": source}})

    def stopped(self, what: str, text: str) -> None:
        """An error that ends a part of the run."""
        kind, _, name = what.partition(" ")
        _log.error("%s stopped: %s", what, text, extra={"fields": {"event": "stopped", kind: name}})

    def changed(self, table: str, text: str) -> None:
        """A table was created or changed."""
        _log.info("%s: %s", table, text, extra={"fields": {"event": "changed", "table": table}})

    def upkept(self, event: Upkept) -> None:
        """One line for an operation of upkeep."""
        _log.info(
            "%s: %s: %s to %s in %.1f s",
            event.table,
            event.operation,
            counted(event.files_before, "file"),
            counted(event.files_after, "file"),
            event.seconds,
            extra={"fields": {"event": "upkept", **asdict(event)}},
        )
