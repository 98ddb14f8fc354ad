"""Groups of commands that import a command when it is called, and help that shows whole sentences."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.resources import files
from typing import Any, ClassVar

import typer
import typer.main
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
    """Commands by name. The help of the group imports none of them, so it loads neither Spark nor Arrow.

    A command is the function of its module's name, with `_` at its end if Python has such a function. One
    that parses its arguments in a way of its own has a class for that, such as `IngestCommand`.
    """

    package: ClassVar[str]
    names: ClassVar[tuple[str, ...]]

    def __init__(self, **settings: Any) -> None:
        """Take the settings of a Typer group; its commands are groups inside this one."""
        super().__init__(**settings)
        self.commands: Any = _Commands(self.package, self.names, self.commands)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the help."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands with their sentences, which Typer would cut to the width of the terminal."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands.sentence(name)) for name in self.commands])


def group(name: str, package: str, names: tuple[str, ...], help: str) -> typer.Typer:
    """The commands of a package, as one more group of the command line."""
    kind = type("_Group", (Group,), {"package": package, "names": names})
    return typer.Typer(
        name=name, cls=kind, help=help, no_args_is_help=True, add_completion=False, rich_markup_mode=None
    )


class _Commands(Mapping[str, Any]):
    """The commands of a group. A command is imported when it is taken."""

    def __init__(self, package: str, names: Sequence[str], groups: Mapping[str, Any]) -> None:
        self._package = package
        self._names = (*names, *groups)
        self._taken = dict(groups)

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._taken:
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            module = import_module(f"{self._package}.{name}")
            kind = getattr(module, f"{name.capitalize()}Command", Command)
            app.command(name, cls=kind)(getattr(module, _function(name)))
            self._taken[name] = typer.main.get_command(app)
        return self._taken[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def sentence(self, name: str) -> str:
        """The first sentence of the help of a command; the source of its function has it, too."""
        if name in self._taken:
            command = self._taken[name]
        else:
            source = (files(self._package) / f"{name}.py").read_text()
            functions = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
            function = next(node for node in functions if node.name == _function(name))
            command = TyperCommand(name, help=ast.get_docstring(function))
        return str(command.get_short_help_str(_WHOLE))


def _function(name: str) -> str:
    return f"{name}_" if hasattr(builtins, name) else name
