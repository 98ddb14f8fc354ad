"""The page of the command line, generated from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer.main

from lakefeed.commands.app import app
from lakefeed.commands.group import usage_of

_OPENING = """\
# Reference of the command line

Every command with its arguments and options. This page is generated from the commands; `--help` after any of
them shows the same.

- `lakefeed --debug COMMAND` shows tracebacks and debug lines, `lakefeed --version` the version.
- Exit codes: 0 success, 1 the work failed, 2 the command or the file is wrong, 3 a check found a problem.
- A command that changes something only shows its plan; with `--yes` it executes it. With `--dry-run` it
  only shows the plan, even with `--yes`.
- Errors and log lines go to stderr, results to stdout.
"""


def commands_markdown() -> str:
    """The whole page."""
    root: Any = typer.main.get_command(app)
    sections = [_section(name, command) for name, command in _commands(root)]
    return "\n".join([_OPENING, *sections])


def _commands(group: Any, above: str = "lakefeed") -> Iterator[tuple[str, Any]]:
    """Every command below a group by its full name."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{above} {name}")
        else:
            yield f"{above} {name}", command


def _section(name: str, command: Any) -> str:
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    usage = " ".join([name, *usage_of(shown)])
    rows = [
        f"| {_spelling(each)} | {_default(each)} | {_meaning(each)} |"
        for each in shown
        if each.name != "help"
    ]
    table = ["| | default | meaning |", "|---|---|---|", *rows, ""] if rows else []
    words = inspect.cleandoc(command.help or "")
    return "\n".join([f"## {name}", "", "```", usage, "```", "", words, "", *table])


def _spelling(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    value = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
    return ", ".join(f"`{option}{value}`" for option in (*parameter.opts, *parameter.secondary_opts))


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    default = parameter.default
    return "" if default in (None, False, ()) else f"`{default}`"


def _meaning(parameter: Any) -> str:
    text = (parameter.help or "").replace("|", "\\|")
    return f"{text.rstrip(chr(46))}. May be given several times." if parameter.multiple else text
