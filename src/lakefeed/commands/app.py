"""The command line: every command, and how errors become exit codes."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from lakefeed import __version__
from lakefeed.commands.dead_letters import dead_letters
from lakefeed.commands.files import files
from lakefeed.commands.group import Group
from lakefeed.commands.table import table
from lakefeed.errors import LakefeedError


class _Lakefeed(Group):
    package = __package__
    names = (
        "demo",
        "init",
        "validate",
        "test",
        "plan",
        "run",
        "ingest",
        "status",
        "verify",
        "rewind",
        "rebuild",
        "snapshot",
        "doctor",
        "schema",
    )


app = typer.Typer(
    name="lakefeed",
    cls=_Lakefeed,
    help="Streams events into Delta Lake tables, exactly once, on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(dead_letters)
app.add_typer(files)
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


def _final_line(error: LakefeedError) -> str:
    """The last line of a failed command; an error that was shown when it happened is not shown again."""
    if error.reported:
        return "error: a part of the run has stopped; the lines above say why."
    return str(error) if error.exit_code == 2 else f"error: {error}"


class _WithLevel(logging.Formatter):
    """`warning: ...` for log lines of commands that set up no log, as those that only look."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        return f"{record.levelname.lower()}: {super().format(record)}"


def main() -> None:
    """Run the command line.

    Exit codes: 0 success, 1 the work failed, 2 the command or the file is wrong, 3 a check found a problem.
    """
    if logging.lastResort:
        logging.lastResort.setFormatter(_WithLevel())
    try:
        app()
    except LakefeedError as error:
        if "--debug" in sys.argv:
            raise
        typer.echo(_final_line(error), err=True)
        sys.exit(error.exit_code)
