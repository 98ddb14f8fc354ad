"""The schedule of upkeep: when each operation was last done for each table, kept over restarts."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

_log = logging.getLogger("lakefeed")


class Schedule:
    """Remembers in a file of the state folder; where that is lost, every interval begins anew.

    So a pipeline that is restarted each night still vacuums once a day, and nothing is done in the first
    moments of a new one. Safe in many threads.
    """

    def __init__(self, file: Path, now: Callable[[], float] = time.time) -> None:
        self._file = file
        self._now = now
        self._lock = threading.Lock()
        self._done: dict[str, float] = {}
        self._ordered: dict[str, dict[str, float]] = {}
        try:
            kept = json.loads(file.read_text())
            self._done = {str(name): float(at) for name, at in kept["done"].items()}
            self._ordered = {
                str(table): {str(key): float(at) for key, at in keys.items()}
                for table, keys in kept["ordered"].items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            _log.debug("no record of earlier upkeep at %s; intervals start now", file)

    def seconds_until(self, table: str, operation: str, every: float) -> float:
        """How long until an operation is due, at most `every`; negative when it is overdue."""
        name, now = f"{table} {operation}", self._now()
        with self._lock:
            if name not in self._done:
                self._done[name] = now
                self._keep()
            # A clock that was set back must not put an operation off for longer than its interval.
            return min(self._done[name], now) + every - now

    def is_due(self, table: str, operation: str, every: float) -> bool:
        """Whether the interval of an operation is over, or there is no record of the last time."""
        now = self._now()
        with self._lock:
            last = self._done.get(f"{table} {operation}")
        return last is None or min(last, now) + every <= now

    def wait(self, table: str, operation: str, every: float, seconds: float) -> None:
        """Let an operation be due again after some seconds, or after its interval if that is shorter."""
        with self._lock:
            self._done[f"{table} {operation}"] = self._now() - every + min(every, seconds)
            self._keep()

    def ordered(self, table: str) -> dict[str, float] | None:
        """By partition, when the newest file was added that is in order; None where nothing is known."""
        return self._ordered.get(table)

    def set_ordered(self, table: str, partitions: dict[str, float]) -> None:
        """Remember for each partition of a table up to which file it is in order, in seconds since 1970."""
        with self._lock:
            self._ordered[table] = dict(partitions)
            self._keep()

    def _keep(self) -> None:
        """Write the file; what cannot be written is only done again sooner or later than it should be."""
        part = self._file.with_suffix(".part")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps({"done": self._done, "ordered": self._ordered}))
            part.replace(self._file)
        except OSError as error:
            _log.debug("the times of upkeep cannot be saved", exc_info=error)
