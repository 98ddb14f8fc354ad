"""`lakefeed status`: what the tables hold and how far behind they are."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from lakefeed.commands.options import Overrides, PipelineFile

if TYPE_CHECKING:
    from rich.table import Table

    from lakefeed.pipeline.pipeline import Pipeline
    from lakefeed.pipeline.secrets import Redactor
    from lakefeed.reports.status import PipelineStatus, TableStatus

_EVERY = 2.0


def status(
    file: PipelineFile,
    overrides: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
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
    from lakefeed.pipeline.pipeline import Pipeline
    from lakefeed.pipeline.secrets import Redactor
    from lakefeed.reports.status import status as look

    pipeline = Pipeline.from_file(file, overrides or ())
    redactor = Redactor.of(pipeline)
    with redactor.guarding(), suppress(KeyboardInterrupt):
        if watch and sys.stdout.isatty() and not as_json:
            _redraw(pipeline, redactor)
        while True:
            found = look(pipeline)
            if as_json:
                typer.echo(redactor.redact(_json(found, in_lines=watch)))
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


def _json(found: PipelineStatus, *, in_lines: bool) -> str:
    from dataclasses import asdict

    import orjson

    return orjson.dumps(asdict(found), option=0 if in_lines else orjson.OPT_INDENT_2).decode()


def _redraw(pipeline: Pipeline, redactor: Redactor) -> None:
    """In place, for as long as somebody looks."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from lakefeed.reports.status import status as look

    with Live(screen=True, auto_refresh=False) as live:
        while True:
            found = look(pipeline)
            lines = [Text(line) for line in _lines(found, redactor)]
            live.update(Group(_table(found, redactor), *lines), refresh=True)
            time.sleep(_EVERY)


def _print(found: PipelineStatus, redactor: Redactor) -> None:
    from rich.console import Console

    # Eighty columns are assumed where there is no terminal; a pipe takes lines of any length.
    Console(width=None if sys.stdout.isatty() else 200).print(_table(found, redactor))
    for line in _lines(found, redactor):
        typer.echo(line)


def _table(found: PipelineStatus, redactor: Redactor) -> Table:
    from rich.table import Table

    from lakefeed.units import readable_size

    table = Table(title=None, box=None, pad_edge=False)
    for name in ("table", "version", "rows", "files", "small", "size", "last commit", "lag"):
        table.add_column(name, justify="left" if name in ("table", "last commit") else "right", no_wrap=True)
    for one in [*found.tables, found.dead_letters]:
        if one.version is None:
            said = redactor.redact(one.error) if one.error else "not created yet"
            table.add_row(one.name, "-", *[""] * 4, said, _lag(one))
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
    """Where each table is in each partition, and what does not answer or cannot go on."""
    for one in found.tables:
        for source, partitions in one.offsets.items():
            for partition, at in partitions.items():
                end = "?" if at.end is None else f"{at.end:,}"
                lag = "?" if at.lag is None else f"{at.lag:,}"
                yield f"  {one.name} <- {source} {partition}: next {at.next:,}, end {end}, lag {lag}"
        if one.error and one.version is not None:
            yield redactor.redact(f"  {one.name}: {one.error}")
    for trouble in filter(None, found.sources.values()):
        yield redactor.redact(trouble)


def _lag(one: TableStatus) -> str:
    if not one.offsets:
        return ""
    return "?" if one.lag is None else f"{one.lag:,}"
