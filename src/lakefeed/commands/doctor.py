"""`lakefeed doctor`: looks at this machine and at everything that a pipeline talks to."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from lakefeed.commands.options import Json, Overrides
from lakefeed.commands.output import to_json
from lakefeed.doctor import CheckResult, examine
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.secrets import Redactor

_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="The pipeline file; without it, only this machine."),
    ] = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Find what prevents a pipeline from running; starts no JVM.

    Checks Java, Python, packages and memory of this machine, then the sources, stores and tables of the file.
    Each line is ok, warn or fail, and says how to repair the problem. The exit code is 3 if a check fails.
    """
    pipeline = Pipeline.from_file(file, overrides or ()) if file else None
    redact = Redactor.of(pipeline).redact if pipeline else Redactor().redact
    results = []
    for found in examine(pipeline):
        result = replace(found, text=redact(found.text), remedy=redact(found.remedy))
        results.append(result)
        if not as_json:
            _print(result)
    if as_json:
        typer.echo(to_json(results))
    raise typer.Exit(3 if any(each.state == "fail" for each in results) else 0)


def _print(result: CheckResult) -> None:
    console = Console(soft_wrap=True, highlight=False, no_color=not sys.stdout.isatty())
    state = (f"{result.state:<6}", _STYLES[result.state])
    console.print(Text.assemble(state, f"{result.check}: {result.text}"))
    if result.remedy:
        console.print(Text(f"      {result.remedy}"))
