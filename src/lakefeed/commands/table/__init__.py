"""`lakefeed table`: the commands that look at one Delta table and look after it, whoever wrote it."""

from __future__ import annotations

import typer

from lakefeed.commands.group import Group


class _Table(Group):
    package = __package__
    names = (
        "detail",
        "history",
        "files",
        "changes",
        "optimize",
        "vacuum",
        "checkpoint",
        "properties",
        "delete",
        "replace",
        "restore",
        "convert",
        "drop",
    )


table = typer.Typer(
    name="table",
    cls=_Table,
    help="Inspect and maintain one Delta table, of Lakefeed or of another engine. Starts no JVM.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
