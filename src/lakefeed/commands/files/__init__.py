"""`lakefeed files`: the ledger of a source of files: what was read when, what to read again."""

from __future__ import annotations

import typer

from lakefeed.commands.group import Group


class _Files(Group):
    package = __package__
    names = ("list", "retry", "forget")


files = typer.Typer(
    name="files",
    cls=_Files,
    help="Look at the files that a source has found, read one again, or forget one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
