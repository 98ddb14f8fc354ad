"""The command line: every command, and how errors become exit codes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lakefeed import __version__
from lakefeed.commands.demo import demo
from lakefeed.commands.run import run
from lakefeed.commands.schema import schema
from lakefeed.commands.status import status
from lakefeed.commands.table import table
from lakefeed.commands.validate import validate
from lakefeed.errors import LakefeedError

app = typer.Typer(
    name="lakefeed",
    help="Streams events into Delta Lake tables, exactly once, on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (demo, validate, run, status, schema):
    app.command()(command)
app.add_typer(table)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lakefeed {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and debug lines.")] = False,
) -> None:
    """Streams events into Delta Lake tables, exactly once, on Spark."""


def main() -> None:
    """Run the command line. Exit codes: 0 fine, 1 the work failed, 2 the command or the file is wrong."""
    try:
        app()
    except LakefeedError as error:
        if "--debug" in sys.argv:
            raise
        typer.echo(f"{error}" if error.exit_code == 2 else f"error: {error}", err=True)
        sys.exit(error.exit_code)
