"""Progress on a terminal: a live table of the tables, above it whatever needs to be read later."""

from __future__ import annotations

import threading
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lakefeed.columns.inferred import inferred_from
from lakefeed.engine.run_events import (
    AllRefused,
    Committed,
    RefusingMany,
    RunEvent,
    SchemaInferred,
    SourceStopped,
    Starting,
    TableChanged,
    TableMoved,
    TableStopped,
    UpkeepDone,
)
from lakefeed.figures import WAITS, ago, thousands, trying_again
from lakefeed.pipeline.secrets import Redactor
from lakefeed.reports.outstanding import copied_words
from lakefeed.text import counted
from lakefeed.watch.alike import AlikeLines
from lakefeed.watch.state import RunState
from lakefeed.watch.summary import summary, where_to_look
from lakefeed.watch.view import RunView, SourceView, TableView

_LINES_BESIDE = 6
"""Lines of the terminal that are left to headings, the sum and troubles."""


class LiveProgress:
    """A table that is redrawn while the run goes on, from its state. Use it as a context manager.

    At the end it gives way to what the run has done. `called` is the pipeline as its user called it, and
    `stop` is set when the run has been told to end, for which it has `patience`. `waits` is false for a run
    that ends by itself.
    """

    def __init__(
        self,
        state: RunState,
        redactor: Redactor,
        console: Console | None = None,
        *,
        called: str = "",
        stop: threading.Event | None = None,
        patience: str = "",
        waits: bool = True,
    ) -> None:
        self._state = state
        self._redact = redactor.redact
        self._console = console or Console(stderr=True)
        self._called = called
        self._stop = stop or threading.Event()
        self._patience = patience
        self._alike = AlikeLines()
        self._waits = waits
        self._live = Live(
            get_renderable=self._draw, console=self._console, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> LiveProgress:
        """Start drawing."""
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Erase what was drawn, and say what was done."""
        self._alike.flush()
        self._live.stop()
        view = self._state.view()
        if kind is not None and not view.started:
            return
        self._console.print(Text(summary(view), style="bold"), soft_wrap=True)
        told = where_to_look(view, self._called) if self._called else []
        widest = max((len(command) for command, _ in told), default=0)
        for command, about in told:
            shown = self._redact(f"  {command:<{widest}}  ")
            self._console.print(Text.assemble(shown, (about, "dim")), soft_wrap=True)

    def watch(self, event: RunEvent) -> None:
        """Print above the table what should be read later as well."""
        self._alike.passes(event.table if isinstance(event, Committed) else None)
        match event:
            case Starting(fetching=True):
                self._print("fetching Delta for Spark, once for this machine (14 MB)", "dim")
            case SourceStopped(source=name, text=text):
                self._print(f"source {name} stopped: {text.removeprefix(f'source {name}: ')}", "red")
            case TableStopped(table=name, text=text):
                said = f"table {name} stopped: {text.removeprefix(f'table {name}: ')}"
                self._alike.add(name, said, lambda line, _: self._print(line, "red"))
            case TableChanged(table=name, text=text) | TableMoved(table=name, text=text):
                self._alike.add(name, f"{name}: {text}", lambda line, _: self._print(line, "dim"))
            case RefusingMany(table=name, text=text):
                self._print(f"table {name}: {text or 'events are accepted again'}", "yellow", soft_wrap=True)
            case AllRefused(table=name, text=text):
                self._print(f"table {name}: {text}", "red", soft_wrap=True)
            case SchemaInferred(table=name, lines=lines, events=events):
                said = "\n  ".join([f"{name}: columns {inferred_from(events)}:", *lines])
                self._print(said, "dim", soft_wrap=True)
            case UpkeepDone(table=name, operation=operation):
                files = f"{event.files_before:,} to {counted(event.files_after, 'file')}"
                self._print(f"{name}: {operation}: {files}", "dim")

    def _print(self, text: str, style: str, *, soft_wrap: bool = False) -> None:
        self._console.print(Text(self._redact(text), style=style), soft_wrap=soft_wrap)

    def _draw(self) -> RenderableType:
        view = self._state.view()
        if not view.started:
            stopping = "stopping as soon as Spark has started; Ctrl-C ends it at once"
            said = stopping if self._stop.is_set() else "starting Spark"
            took = f"  {view.now - view.began:.0f} s"
            return Text.assemble((f"{view.pipeline}  ", "bold"), said, (took, "dim"))

        def again(one: SourceView | TableView) -> str:
            return trying_again(view.now - one.trouble_since, self._state.give_up_after)

        troubles = [
            Text(f"{one.trouble}; {WAITS if one.waits else again(one)}", style="yellow")
            for one in view.sources
            if one.trouble
        ]
        troubles += [
            Text(f"{one.name}: {one.trouble}; {again(one)}", style="yellow")
            for one in view.tables
            if one.trouble
        ]
        troubles += [
            Text(f"{one.name}: {text}", "dim")
            for one in view.sources
            if (text := copied_words(one.outstanding))
        ]
        if self._stop.is_set():
            within = f", at most {self._patience}" if self._patience else ""
            troubles.append(
                Text(f"stopping, waiting for the running batch{within}; Ctrl-C ends it at once", "yellow")
            )
        elif self._waits and view.waiting:
            troubles.append(Text("waiting for events", "dim"))
        room = max(1, self._console.height - _LINES_BESIDE - len(troubles))
        return Group(_tables(view, room), *troubles, _sum(view))


def _tables(view: RunView, room: int) -> Table:
    drawn = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("table", "rows/s", "rows", "lag", "last commit", "new dead letters"):
        drawn.add_column(name, justify="left" if name == "table" else "right", no_wrap=True)
    shown = sorted(view.tables, key=_interest)[:room]
    for table in view.tables:
        if table in shown:
            drawn.add_row(*_cells(table, view))
    if len(view.tables) > len(shown):
        drawn.add_row(Text(f"and {len(view.tables) - len(shown)} more", style="dim"))
    return drawn


def _interest(table: TableView) -> tuple[bool, int, float]:
    """Where not all tables fit: the broken first, then those behind, then the busy."""
    return not table.stopped, -(table.lag or 0), -table.rate


def _cells(table: TableView, view: RunView) -> list[Text | str]:
    if table.stopped:
        return [Text(table.name, style="red"), "", f"{table.written:,}", "", Text("stopped", style="red"), ""]
    only_created = table.version == 0 and not table.commits
    last = "" if table.last_commit is None or only_created else f"{ago(view.now - table.last_commit)} ago"
    lag = table.lag_words or thousands(table.lag)
    letters = Text(f"{table.dead_letters:,}", style="yellow" if table.dead_letters else "dim")
    return [table.name, f"{table.rate:,.0f}", f"{table.written:,}", lag, last, letters]


def _sum(view: RunView) -> Text:
    letters, lag = view.dead_letters, view.lag_words or thousands(view.lag)
    return Text.assemble(
        (f"{view.pipeline}  ", "bold"),
        (counted(view.rows, "row"), "green"),
        f"  {view.rate:,.0f} rows/s  lag {lag}  {counted(view.commits, 'commit')}  ",
        (counted(letters, "new dead letter"), "yellow" if letters else "dim"),
        (f"  {view.now - view.began:.0f} s", "dim"),
    )
