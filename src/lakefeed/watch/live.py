"""Progress on a terminal: a live table of the tables, above it whatever needs to be read later."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lakefeed.engine.report import Quiet, Upkept
from lakefeed.pipeline.secrets import Redactor
from lakefeed.watch.figures import ago
from lakefeed.watch.logbook import Logbook
from lakefeed.watch.view import RunView, TableView

_LINES_BESIDE = 6
"""Lines of the terminal that are left to headings, the sum and troubles."""


class LiveProgress(Quiet):
    """A table that is redrawn while the run goes on, from the logbook. Use it as a context manager."""

    def __init__(self, logbook: Logbook, redactor: Redactor, console: Console | None = None) -> None:
        self._logbook = logbook
        self._redact = redactor.redact
        self._console = console or Console(stderr=True)
        self._live = Live(
            get_renderable=self._draw, console=self._console, refresh_per_second=4, transient=False
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

    def stopped(self, what: str, text: str) -> None:
        """Print an error above the table."""
        self._console.print(Text(self._redact(f"{what} stopped: {text}"), style="red"))

    def changed(self, table: str, text: str) -> None:
        """Print a change above the table."""
        self._console.print(Text(self._redact(f"{table}: {text}"), style="dim"))

    def upkept(self, event: Upkept) -> None:
        """Print what upkeep did above the table."""
        files = f"{event.files_before:,} to {event.files_after:,} files"
        self._console.print(Text(f"{event.table}: {event.operation}: {files}", style="dim"))

    def _draw(self) -> RenderableType:
        view = self._logbook.view()
        troubles = [
            Text(f"{one.trouble}; trying again", style="yellow") for one in view.sources if one.trouble
        ]
        room = max(1, self._console.height - _LINES_BESIDE - len(troubles))
        return Group(_tables(view, room), *troubles, _sum(view))


def _tables(view: RunView, room: int) -> Table:
    drawn = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("table", "rows/s", "rows", "lag", "last commit", "dead letters"):
        drawn.add_column(name, justify="left" if name == "table" else "right", no_wrap=True)
    shown = sorted(view.tables, key=_interest)[:room]
    for table in view.tables:
        if table in shown:
            drawn.add_row(*_cells(table, view.now))
    if len(view.tables) > len(shown):
        drawn.add_row(Text(f"and {len(view.tables) - len(shown)} more", style="dim"))
    return drawn


def _interest(table: TableView) -> tuple[bool, int, float]:
    """Where not all tables fit: the broken first, then those behind, then the busy."""
    return not table.stopped, -(table.lag or 0), -table.rate


def _cells(table: TableView, now: float) -> list[Text | str]:
    if table.stopped:
        return [Text(table.name, style="red"), "", f"{table.written:,}", "", Text("stopped", style="red"), ""]
    last = "" if table.last_commit is None else f"{ago(now - table.last_commit)} ago"
    lag = "?" if table.lag is None else f"{table.lag:,}"
    letters = Text(f"{table.letters:,}", style="yellow" if table.letters else "dim")
    return [table.name, f"{table.rate:,.0f}", f"{table.written:,}", lag, last, letters]


def _sum(view: RunView) -> Text:
    rows = sum(one.written for one in view.tables)
    commits = sum(one.commits for one in [*view.tables, view.letters])
    letters = view.letters.written
    lag = view.lag or 0
    return Text.assemble(
        (f"{view.pipeline}  ", "bold"),
        (f"{rows:,} rows", "green"),
        f"  {sum(one.rate for one in view.sources):,.0f} rows/s  lag {lag:,}  {commits:,} commits  ",
        (f"{letters:,} dead letters", "yellow" if letters else "dim"),
        (f"  {view.now - view.began:.0f} s", "dim"),
    )
