"""`lakefeed status`: what the tables hold and how far behind they are."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from lakefeed.commands.options import Json, Overrides, PipelineFile
from lakefeed.commands.output import opened, to_json, width
from lakefeed.figures import readable_size, thousands
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.secrets import Redactor
from lakefeed.reports import status as report
from lakefeed.reports.outstanding import behind_words, copied_words, young_words
from lakefeed.reports.status import PipelineStatus, QueryStatus, TableStatus
from lakefeed.tables.detail.shaped import Shaped
from lakefeed.text import counted

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
) -> None:
    """Show version, rows, files, last commit, offsets and lag of every table. Starts no JVM.

    The exit code is 1 if a source does not answer within some seconds, or a table cannot be read.
    """
    ending = suppress(KeyboardInterrupt) if watch else nullcontext()
    with opened(file, overrides) as (pipeline, redactor), ending:
        if watch and sys.stdout.isatty() and not as_json:
            _redraw(pipeline, redactor)
        while True:
            found = report.status(pipeline)
            if as_json:
                typer.echo(redactor.redact(to_json(found, indent=not watch)))
            else:
                _print(found, redactor)
            if not watch:
                break
            time.sleep(_EVERY)
    if not watch and _is_incomplete(found):
        raise typer.Exit(1)


def _is_incomplete(found: PipelineStatus) -> bool:
    unread = any(one.error and one.version is None for one in [*found.tables, found.dead_letters])
    return unread or any(found.sources.values())


def _redraw(pipeline: Pipeline, redactor: Redactor) -> None:
    """Draw again in the same place, until Ctrl-C."""
    from rich.live import Live

    with Live(screen=True, auto_refresh=False) as live:
        while True:
            found = report.status(pipeline)
            lines = [Text(line) for line in _lines(found, redactor)]
            live.update(Group(_table(found, redactor), *lines), refresh=True)
            time.sleep(_EVERY)


def _print(found: PipelineStatus, redactor: Redactor) -> None:
    Console(width=width()).print(_table(found, redactor))
    for line in _lines(found, redactor):
        typer.echo(line)


def _table(found: PipelineStatus, redactor: Redactor) -> Table:
    table = Table(title=None, box=None, pad_edge=False)
    for name in ("table", "version", "rows", "files", "small", "size", "last commit", "lag"):
        table.add_column(name, justify="left" if name in ("table", "last commit") else "right", no_wrap=True)
    for one in [*found.tables, found.dead_letters]:
        if one.version is None:
            state = redactor.redact(one.error) if one.error else "not created yet"
            table.add_row(one.name, "-", *[""] * 4, state, _lag(one))
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


def _lines(found: PipelineStatus, redactor: Redactor) -> Iterator[str]:
    """The position of each table in each partition, then tables and sources with errors."""
    for one in found.tables:
        for source, partitions in one.offsets.items():
            for partition, at in partitions.items():
                following = at.next_place or f"{at.next:,}"
                end = at.end_place or thousands(at.end)
                lag = at.lag_words or thousands(at.lag)
                yield f"  {one.name} <- {source} {partition}: next {following}, end {end}, lag {lag}"
        if one.shaped:
            yield from _shaped_lines(one.name, one.shaped)
        if one.query:
            yield from _query_lines(one.name, one.query)
        if one.error and one.version is not None:
            yield redactor.redact(f"  {one.name}: {one.error}")
    for source, waiting in found.outstanding.items():
        for text in filter(None, (copied_words(waiting), behind_words(waiting), young_words(waiting))):
            yield f"  {source}: {text}"
    for error in filter(None, found.sources.values()):
        yield redactor.redact(error)


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
