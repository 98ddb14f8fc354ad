"""Progress on a terminal: one live line a source and table, above it whatever needs to be read later."""

from __future__ import annotations

import threading
import time
from collections import deque
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from lakefeed.engine.lake import LETTERS
from lakefeed.engine.report import BatchDone, Committed, Upkept
from lakefeed.pipeline.secrets import Redactor

_WINDOW = 10.0


class LiveProgress:
    """A line for each source that is redrawn while it runs. Use it as a context manager."""

    def __init__(self, name: str, redactor: Redactor, console: Console | None = None) -> None:
        """Start with nothing read."""
        self._name = name
        self._redact = redactor.redact
        self._console = console or Console(stderr=True)
        self._lock = threading.Lock()
        self._rows = self._letters = self._commits = 0
        self._read = 0
        self._lag: dict[str, int] = {}
        self._trouble: dict[str, str] = {}
        self._recent: deque[tuple[float, int]] = deque()
        self._began = time.monotonic()
        self._live = Live(
            get_renderable=self._draw, console=self._console, refresh_per_second=5, transient=False
        )

    def __enter__(self) -> LiveProgress:
        """Start drawing."""
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Draw a last time."""
        self._live.stop()

    def committed(self, event: Committed) -> None:
        """Count a commit."""
        with self._lock:
            self._commits += 1
            if event.table == LETTERS:
                self._letters += event.rows
            else:
                self._rows += event.rows

    def batch_done(self, event: BatchDone) -> None:
        """Count a batch."""
        with self._lock:
            self._read += event.read
            self._recent.append((time.monotonic(), event.read))
            self._lag[event.source] = event.lag

    def lag(self, source: str, records: int) -> None:
        """Remember how much waits."""
        with self._lock:
            self._lag[source] = records

    def trouble(self, source: str, text: str) -> None:
        """Show what is being retried."""
        with self._lock:
            self._trouble[source] = self._redact(text)

    def stopped(self, what: str, text: str) -> None:
        """Print an error above the line."""
        self._console.print(Text(self._redact(f"{what} stopped: {text}"), style="red"))

    def changed(self, table: str, text: str) -> None:
        """Print a change above the line."""
        self._console.print(Text(f"{table}: {text}", style="dim"))

    def upkept(self, event: Upkept) -> None:
        """Not worth a line: the table is as it was, only in fewer files."""

    def _draw(self) -> Group:
        with self._lock:
            now = time.monotonic()
            while self._recent and now - self._recent[0][0] > _WINDOW:
                self._recent.popleft()
            span = min(_WINDOW, now - self._began) or 1.0
            rate = sum(count for _, count in self._recent) / span
            lag = sum(self._lag.values())
            line = Text.assemble(
                (f"{self._name}  ", "bold"),
                (f"{self._rows:,} rows", "green"),
                f"  {rate:,.0f} rows/s  lag {lag:,}  {self._commits:,} commits  ",
                (f"{self._letters:,} dead letters", "yellow" if self._letters else "dim"),
                (f"  {now - self._began:.0f} s", "dim"),
            )
            troubles = [
                Text(f"{text}; trying again", style="yellow") for text in self._trouble.values() if text
            ]
            return Group(*troubles, line)
