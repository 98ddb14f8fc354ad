"""Lines that are the same for many tables: the first is written at once, the others together in one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from lakefeed.text import counted, few, pattern_of

_TOGETHER = 1.0
"""Seconds within which lines that are the same for several tables become one."""
_WRITTEN_EACH = 2
"""So many more lines are written as they are."""

Write = Callable[[str, Sequence[str]], None]
"""Writes a line, which is about these tables."""


def line_pattern(table: str, text: str) -> str:
    """A text with `*` for the name of its table, or for the value that a route made the table for."""
    return pattern_of(table.partition("/")[2] or table, text)


class AlikeLines:
    """Holds lines back that differ from the last one by the name of their table only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pattern = ""
        self._write: Write | None = None
        self._held: dict[str, str] = {}
        self._last = 0.0
        # Events come from several threads.
        self._lock = threading.RLock()

    def add(self, table: str, line: str, write: Write) -> None:
        """Write the line of a table, or hold it back where it is like the last one."""
        pattern, now = line_pattern(table, line), self._clock()
        with self._lock:
            is_alike = pattern == self._pattern and now - self._last < _TOGETHER
            if is_alike and table not in self._held:
                self._held[table] = line
            else:
                self.flush()
                self._pattern, self._write = pattern, write
                write(line, (table,))
            self._last = now

    def passes(self, table: str | None) -> None:
        """Something else happens, to a table or to none: write what is held back, unless more may come."""
        with self._lock:
            if self._held and (table in self._held or self._clock() - self._last >= _TOGETHER):
                self.flush()

    def flush(self) -> None:
        """Write what is held back."""
        with self._lock:
            held, self._held = self._held, {}
            pattern, self._pattern = self._pattern, ""
            if self._write is None:
                return
            if len(held) > _WRITTEN_EACH:
                self._write(f"{pattern} ({counted(len(held), 'more table')}: {few(held)})", tuple(held))
            else:
                for table, line in held.items():
                    self._write(line, (table,))
