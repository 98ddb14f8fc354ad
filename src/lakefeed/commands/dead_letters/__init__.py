"""`lakefeed dead-letters`: look at events that could not become rows, send them again, or discard them."""

from __future__ import annotations

import typer

from lakefeed.commands.group import Group


class _DeadLetters(Group):
    package = __package__
    names = ("list", "show", "replay", "discard")


dead_letters = typer.Typer(
    name="dead-letters",
    cls=_DeadLetters,
    help="Look at dead letters, send them through the pipeline again, or discard them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
