"""A group of commands, whose help tells each of them with a whole sentence."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

_WHOLE = 1000


class Group(TyperGroup):
    """Wraps the sentence of a command where Typer would cut it to the width of the terminal."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands and their sentences."""
        rows = [(name, command.get_short_help_str(_WHOLE)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
