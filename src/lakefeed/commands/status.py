"""`lakefeed status`: what the tables hold and how far behind they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lakefeed.pipeline.secrets import Redactor
    from lakefeed.watch.status import PipelineStatus, TableStatus


def status(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Show version, rows, files, last commit, offsets and lag of every table. Starts no JVM."""
    from lakefeed.pipeline.model import Pipeline
    from lakefeed.pipeline.secrets import Redactor
    from lakefeed.watch.status import status as look

    pipeline = Pipeline.from_file(file)
    redactor = Redactor.of(pipeline)
    with redactor.guarding():
        found = look(pipeline)
    if as_json:
        typer.echo(redactor.redact(_json(found)))
    else:
        _print(found, redactor)


def _json(found: PipelineStatus) -> str:
    from dataclasses import asdict

    import orjson

    return orjson.dumps(asdict(found), option=orjson.OPT_INDENT_2).decode()


def _print(found: PipelineStatus, redactor: Redactor) -> None:
    from rich.console import Console
    from rich.table import Table

    from lakefeed.pipeline.units import readable_size

    table = Table(title=None, box=None, pad_edge=False)
    for name in ("table", "version", "rows", "files", "small", "size", "last commit", "lag"):
        table.add_column(name, justify="left" if name in ("table", "last commit") else "right", no_wrap=True)
    for one in [*found.tables, found.dead_letters]:
        if one.version is None:
            table.add_row(
                one.name, "-", *[""] * 4, redactor.redact(one.error) if one.error else "not created yet", ""
            )
            continue
        numbers = (
            f"{one.version:,}",
            f"{one.rows:,}",
            f"{one.files:,}",
            f"{one.small_files:,}",
            readable_size(one.bytes),
        )
        table.add_row(one.name, *numbers, one.last_commit or "", _lag(one))
    # Eighty columns are assumed where there is no terminal; a pipe takes lines of any length.
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    for one in found.tables:
        for source, partitions in one.offsets.items():
            for partition, at in partitions.items():
                end = "?" if at.end is None else f"{at.end:,}"
                lag = "?" if at.lag is None else f"{at.lag:,}"
                typer.echo(f"  {one.name} <- {source} {partition}: next {at.next:,}, end {end}, lag {lag}")
    for source, trouble in found.sources.items():
        if trouble:
            typer.echo(redactor.redact(f"  {source}: {trouble}"))


def _lag(one: TableStatus) -> str:
    if not one.offsets:
        return ""
    return "?" if one.lag is None else f"{one.lag:,}"
