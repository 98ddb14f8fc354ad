"""`lakefeed table`: the commands that look at one Delta table and look after it, whoever wrote it."""

from __future__ import annotations

import typer

from lakefeed.commands.group import Command, Group
from lakefeed.commands.table.changes import changes
from lakefeed.commands.table.checkpoint import checkpoint
from lakefeed.commands.table.convert import convert
from lakefeed.commands.table.delete import delete
from lakefeed.commands.table.detail import detail
from lakefeed.commands.table.drop import drop
from lakefeed.commands.table.files import files
from lakefeed.commands.table.history import history
from lakefeed.commands.table.optimize import optimize
from lakefeed.commands.table.properties import properties
from lakefeed.commands.table.replace import replace
from lakefeed.commands.table.restore import restore
from lakefeed.commands.table.vacuum import vacuum

table = typer.Typer(
    name="table",
    cls=Group,
    help="Inspect and maintain one Delta table, of Lakefeed or of another engine. Starts no JVM.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
for command in (
    detail,
    history,
    files,
    changes,
    optimize,
    vacuum,
    checkpoint,
    properties,
    delete,
    replace,
    restore,
    convert,
    drop,
):
    table.command(cls=Command)(command)
