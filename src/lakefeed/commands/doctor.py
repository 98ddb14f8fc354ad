"""`lakefeed doctor`: looks at this machine and at everything that a pipeline talks to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lakefeed.commands.options import Overrides

_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="The pipeline file; without it, only this machine."),
    ] = None,
    overrides: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Find what prevents a pipeline from running; starts no JVM.

    Checks Java, Python, packages and memory of this machine, then the sources, stores and tables of the file.
    Each line is ok, warn or fail, and says how to repair the problem. The exit code is 3 if a check fails.
    """
    from dataclasses import asdict, replace

    import orjson

    from lakefeed.doctor import examine
    from lakefeed.pipeline.pipeline import Pipeline
    from lakefeed.pipeline.secrets import Redactor

    pipeline = Pipeline.from_file(file, overrides or ()) if file else None
    redact = Redactor.of(pipeline).redact if pipeline else Redactor().redact
    found = []
    for finding in examine(pipeline):
        told = replace(finding, text=redact(finding.text), remedy=redact(finding.remedy))
        found.append(told)
        if not as_json:
            _print(told.check, told.state, told.text, told.remedy)
    if as_json:
        typer.echo(orjson.dumps([asdict(each) for each in found], option=orjson.OPT_INDENT_2).decode())
    raise typer.Exit(3 if any(each.state == "fail" for each in found) else 0)


def _print(check: str, state: str, text: str, remedy: str) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True, highlight=False, no_color=not sys.stdout.isatty())
    console.print(Text.assemble((f"{state:<6}", _STYLES[state]), f"{check}: {text}"))
    if remedy:
        console.print(Text(f"      {remedy}"))
