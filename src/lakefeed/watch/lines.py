"""Progress as log lines: one for each commit, for a run that nobody looks at."""

from __future__ import annotations

import logging

from lakefeed.engine.report import BatchDone, Committed, Upkept
from lakefeed.pipeline.units import readable_size
from lakefeed.pipeline.wording import counted

_log = logging.getLogger("lakefeed")


class LogLines:
    """Writes what happens to the log."""

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
        )

    def batch_done(self, event: BatchDone) -> None:
        """The commits have said it all."""

    def lag(self, source: str, records: int) -> None:
        """Not worth a line."""

    def trouble(self, source: str, text: str) -> None:
        """Say what is being retried, once for each text, and when it is over."""
        if text == self._trouble.get(source, ""):
            return
        self._trouble[source] = text
        if text:
            _log.warning("%s; trying again", text)
        else:
            _log.info("source %s: going on", source)

    def stopped(self, what: str, text: str) -> None:
        """An error that ends a part of the run."""
        _log.error("%s stopped: %s", what, text)

    def changed(self, table: str, text: str) -> None:
        """A table was created or changed."""
        _log.info("%s: %s", table, text)

    def upkept(self, event: Upkept) -> None:
        """One line for a step of upkeep: what there was, and what there is instead."""
        _log.info(
            "%s: %s: %s, %s became %s, %s in %.1f s",
            event.table,
            event.operation,
            counted(event.files_before, "file"),
            readable_size(event.bytes_before),
            counted(event.files_after, "file"),
            readable_size(event.bytes_after),
            event.seconds,
        )
