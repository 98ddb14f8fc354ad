"""Commands and groups of them, as their help tells them: usage as in the reference, whole sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

_WHOLE = 1000


class Command(TyperCommand):
    """Names its arguments as the reference does: Typer would put braces around them."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the name of the command."""
        return usage_of(self.get_params(ctx))


def usage_of(parameters: Sequence[Any]) -> list[str]:
    """`FILE [OPTIONS]`: the arguments by name, then whether there are options."""
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    names = [str(one.metavar or one.name.upper()) for one in arguments]
    return [*names, "[OPTIONS]"] if len(parameters) > len(arguments) else names


class Group(TyperGroup):
    """Wraps the sentence of a command where Typer would cut it to the width of the terminal."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands and their sentences."""
        rows = [(name, command.get_short_help_str(_WHOLE)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
