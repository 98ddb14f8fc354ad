"""Several watchers as one."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from lakefeed.engine.report import BatchDone, Committed, Counted, DeadLettersFound, Refusing, Upkept, Watcher

_log = logging.getLogger("lakefeed")


class Together:
    """Tells each watcher, in their order. One that fails is a bug, but must not end a run."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def starting(self) -> None:
        """Tell all."""
        self._tell("starting")

    def started(self) -> None:
        """Tell all."""
        self._tell("started")

    def committed(self, event: Committed) -> None:
        """Tell all."""
        self._tell("committed", event)

    def failed(self, table: str, source: str, text: str) -> None:
        """Tell all."""
        self._tell("failed", table, source, text)

    def lettered(self, event: DeadLettersFound) -> None:
        """Tell all."""
        self._tell("lettered", event)

    def refusing(self, event: Refusing) -> None:
        """Tell all."""
        self._tell("refusing", event)

    def inferred(self, table: str, lines: Sequence[str], events: int) -> None:
        """Tell all."""
        self._tell("inferred", table, lines, events)

    def batch_done(self, event: BatchDone) -> None:
        """Tell all."""
        self._tell("batch_done", event)

    def seen(self, source: str, ends: Mapping[str, int]) -> None:
        """Tell all."""
        self._tell("seen", source, ends)

    def reached(self, table: str, source: str, positions: Mapping[str, int]) -> None:
        """Tell all."""
        self._tell("reached", table, source, positions)

    def counted(self, event: Counted) -> None:
        """Tell all."""
        self._tell("counted", event)

    def trouble(self, source: str, text: str) -> None:
        """Tell all."""
        self._tell("trouble", source, text)

    def delayed(self, table: str, source: str, text: str) -> None:
        """Tell all."""
        self._tell("delayed", table, source, text)

    def moved(self, table: str, source: str, text: str, apart: bool) -> None:
        """Tell all."""
        self._tell("moved", table, source, text, apart)

    def stopped(self, what: str, text: str) -> None:
        """Tell all."""
        self._tell("stopped", what, text)

    def changed(self, table: str, text: str) -> None:
        """Tell all."""
        self._tell("changed", table, text)

    def upkept(self, event: Upkept) -> None:
        """Tell all."""
        self._tell("upkept", event)

    def _tell(self, what: str, *told: Any) -> None:
        for watcher in self._watchers:
            try:
                getattr(watcher, what)(*told)
            except Exception:
                _log.exception("%s failed at the event %s", type(watcher).__name__, what)
