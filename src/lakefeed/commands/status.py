"""`lakefeed status`: what the tables hold and how far behind they are."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from threading import Event
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from lakefeed.commands.folding import fold
from lakefeed.commands.options import Everything, Json, Overrides, PipelineFile
from lakefeed.commands.output import opened, skipped_lines, to_json, width
from lakefeed.dead_letters.unapplied import unapplied_words
from lakefeed.figures import readable_size, thousands
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.secrets import Redactor
from lakefeed.reports import status as report
from lakefeed.reports.outstanding import behind_words, copied_words, young_words
from lakefeed.reports.status import PartitionStatus, PipelineStatus, QueryStatus, TableStatus
from lakefeed.tables.detail.shaped import Shaped
from lakefeed.text import counted, few, listed

_EVERY = 2.0
_RESULTS = {"dead_letter": "dead letters"}


def status(
    file: PipelineFile,
    overrides: Overrides = None,
    as_json: Json = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Repeat every two seconds until Ctrl-C; with --json, one line each time."
        ),
    ] = False,
    everything: Everything = False,
) -> None:
    """Show version, rows, files, last commit, offsets and lag of every table. Starts no JVM.

    Positions that are the same for many tables are one line, unless `--all` is given. The exit code is 1 if a
    source does not answer within some seconds, or a table cannot be read.
    """
    ending = _interrupted() if watch else nullcontext(Event())
    with opened(file, overrides) as (pipeline, redactor), ending as interrupted:
        if watch and sys.stdout.isatty() and not as_json:
            _redraw(pipeline, redactor, everything, interrupted)
        while not interrupted.is_set():
            found = report.status(pipeline)
            if as_json:
                typer.echo(redactor.redact(to_json(found, indent=not watch)))
            else:
                _print(found, redactor, everything)
            if not watch:
                break
            time.sleep(_EVERY)
    if not watch and _is_incomplete(found):
        raise typer.Exit(1)


@contextmanager
def _interrupted() -> Iterator[Event]:
    """An event that Ctrl-C sets, besides the exception, which interrupted code may swallow."""
    interrupted = Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        with suppress(KeyboardInterrupt):
            yield interrupted
    finally:
        signal.signal(signal.SIGINT, previous)


def _is_incomplete(found: PipelineStatus) -> bool:
    unread = any(one.error and one.version is None for one in [*found.tables, found.dead_letters])
    return unread or any(found.sources.values())


def _redraw(pipeline: Pipeline, redactor: Redactor, everything: bool, interrupted: Event) -> None:
    """Draw again in the same place, until Ctrl-C."""
    from rich.live import Live

    with Live(screen=True, auto_refresh=False) as live:
        while not interrupted.is_set():
            found = report.status(pipeline)
            lines = [Text(line) for line in _lines(found, redactor, everything)]
            live.update(Group(_table(found, redactor, everything), *lines), refresh=True)
            time.sleep(_EVERY)


def _print(found: PipelineStatus, redactor: Redactor, everything: bool) -> None:
    Console(width=width()).print(_table(found, redactor, everything))
    for line in _lines(found, redactor, everything):
        typer.echo(line)


def _table(found: PipelineStatus, redactor: Redactor, everything: bool) -> Table:
    table = Table(title=None, box=None, pad_edge=False)
    for name in ("table", "version", "rows", "files", "small", "size", "last commit", "lag"):
        table.add_column(name, justify="left" if name in ("table", "last commit") else "right", no_wrap=True)
    absent = {one.name: _absence(one) for one in found.tables if one.version is None}
    folded = {names[0]: names for names, _ in fold(absent.items(), everything=everything)}
    for one in [*found.tables, found.dead_letters]:
        if one.version is None:
            names = [one.name] if one is found.dead_letters else folded.get(one.name)
            if names:
                state = redactor.redact(one.error) if one.error else "not created yet"
                table.add_row(few(names), "-", *[""] * 4, state, _lag(one))
            continue
        numbers = (
            f"{one.version:,}",
            f"{one.rows:,}",
            f"{one.files:,}",
            "" if one is found.dead_letters else f"{one.small_files:,}",
            readable_size(one.bytes),
        )
        table.add_row(one.name, *numbers, one.last_commit or "", _lag(one))
    return table


def _absence(one: TableStatus) -> str:
    """What is shown of a table that there is not."""
    return f"{one.error or ''} {_lag(one)}"


def _positions(tables: Sequence[TableStatus], everything: bool) -> Iterator[str]:
    """The position of each table in each partition; many tables or partitions at one position are a line."""
    places = [
        (f"{one.name} <- {source} {partition}", f"{source}: {_position(at)}")
        for one in tables
        for source, partitions in one.offsets.items()
        for partition, at in partitions.items()
    ]
    for names, place in fold(places, everything=everything):
        source, _, text = place.partition(": ")
        fed = list(dict.fromkeys(name.partition(" <- ")[0] for name in names))
        if len(names) == 1:
            yield f"  {names[0]}: {text}"
        elif len(fed) == 1:
            partitions = [name.partition(" <- ")[2].removeprefix(f"{source} ") for name in names]
            yield f"  {fed[0]} <- {source} {few(partitions)}: {text}"
        else:
            yield f"  {counted(len(fed), 'table')} <- {source}: {text} ({few(fed)})"


def _position(at: PartitionStatus) -> str:
    following, end = at.next_place or f"{at.next:,}", at.end_place or thousands(at.end)
    return f"next {following}, end {end}, lag {at.lag_words or thousands(at.lag)}"


def _lines(found: PipelineStatus, redactor: Redactor, everything: bool = True) -> Iterator[str]:
    """The position of each table in each partition, then tables and sources with errors."""
    yield from _positions(found.tables, everything)
    for one in found.tables:
        if one.shaped:
            yield from _shaped_lines(one.name, one.shaped)
        if one.query:
            yield from _query_lines(one.name, one.query)
        for text in one.outdated:
            yield redactor.redact(f"  {one.name}: {_indented(text)}")
        yield from (f"  {one.name}: {text}" for text in one.backwards)
        if one.unapplied:
            yield f"  {one.name}: {unapplied_words(one.unapplied)}"
    for error, names in _errors(found).items():
        yield redactor.redact(f"  {listed(names) if everything else few(names)}: {_indented(error)}")
    for source, waiting in found.outstanding.items():
        for text in filter(None, (copied_words(waiting), behind_words(waiting), young_words(waiting))):
            yield f"  {source}: {text}"
    yield from (redactor.redact(f"  {line}") for line in skipped_lines(found.skipped, everything=everything))
    for error in filter(None, found.sources.values()):
        yield redactor.redact(error)


def _errors(found: PipelineStatus) -> dict[str, list[str]]:
    """What keeps tables from being read on, with their names: a lost slot concerns all tables of a source."""
    errors: dict[str, list[str]] = {}
    for one in found.tables:
        if one.error and one.version is not None:
            errors.setdefault(one.error, []).append(one.name)
    return errors


def _indented(text: str) -> str:
    """A text of several lines below the name that it is about."""
    return text.replace("\n", "\n    ")


def _shaped_lines(name: str, shaped: Shaped) -> Iterator[str]:
    """What the newest versions have left out, and how rows have met each rule."""
    since = f", since version {shaped.since:,}" if shaped.since else ""
    if shaped.filtered:
        yield f"  {name}: {counted(shaped.filtered, 'row')} left out{since}"
    for rule, results in shaped.expectations.items():
        missed = [f"{count:,} {_RESULTS.get(result, result)}" for result, count in results.items() if count]
        yield f"  {name} expects {rule}: {', '.join(missed) or 'no rows yet'}{since}"


def _query_lines(name: str, query: QueryStatus) -> Iterator[str]:
    """The versions that a query has read, and what has come since."""
    for table, at in query.inputs.items():
        if at.newest is None:
            yield f"  {name} <- {table}: does not exist yet"
        elif at.version is None:
            yield f"  {name} <- {table}: newest version {at.newest:,}, not read yet"
        else:
            behind = counted(at.behind or 0, "version") + " behind" if at.behind else "up to date"
            yield f"  {name} <- {table}: made of version {at.version:,}, newest {at.newest:,}, {behind}"
    if query.refreshed:
        yield f"  {name}: refreshed {query.refreshed}"


def _lag(one: TableStatus) -> str:
    if one.query:
        return "" if one.query.behind is None else counted(one.query.behind, "version")
    if not one.offsets:
        return ""
    return one.lag_words or thousands(one.lag)
