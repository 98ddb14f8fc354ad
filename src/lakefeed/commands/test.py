"""`lakefeed test`: sends the sample events of a pipeline's tests through it, and compares the tables."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lakefeed.commands.options import Json, Overrides, PipelineFile
from lakefeed.commands.output import to_json, width
from lakefeed.errors import UsageError
from lakefeed.pipeline.loading.companion import companion_of
from lakefeed.pipeline.loading.load import load
from lakefeed.testing import Verdict, check


def test(
    file: PipelineFile,
    spark: Annotated[
        bool, typer.Option("--spark", help="Run on Spark, as `run` does; some seconds slower.")
    ] = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Check a pipeline with sample events; connects to nothing.

    Sends the events through the pipeline and compares the rows and dead letters with the expected ones. Tests
    are in the file under `tests`, or in shop.test.yaml next to shop.yaml. The exit code is 3 when a test
    fails.
    """
    pipeline = load(file, overrides or (), with_tests=True).pipeline
    if not pipeline.tests:
        raise UsageError(
            f"{file}: there are no tests.\nAdd some under `tests` in the file, or in {companion_of(file)}."
        )
    verdicts = []
    for verdict in check(pipeline, spark=spark, starting=_say):
        verdicts.append(verdict)
        if not as_json:
            _print(verdict)
    failed = sum(not verdict.passed for verdict in verdicts)
    if as_json:
        typer.echo(to_json([{**asdict(verdict), "passed": verdict.passed} for verdict in verdicts]))
    else:
        typer.echo(f"{len(verdicts) - failed} passed, {failed} failed")
    raise typer.Exit(3 if failed else 0)


def _say(why: str) -> None:
    typer.echo(f"starting Spark: {why}", err=True)


def _print(verdict: Verdict) -> None:
    console = Console(width=width(), highlight=False)
    word = Text("ok    ", "green") if verdict.passed else Text("FAILED", "red")
    console.print(Text.assemble(word, "  ", verdict.name))
    if verdict.error:
        console.print(Text(f"        the run failed: {verdict.error}"))
    for table, lines in verdict.columns.items():
        console.print(Text(f"        {table}: columns inferred from the events", "dim"))
        for line in lines:
            console.print(Text(f"          {line}", "dim"))
    if not verdict.differences:
        return
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("        table", "", "column", "expected", "got"):
        shown.add_column(name, overflow="fold")
    above = ("", "")
    for one in verdict.differences:
        here = (one.table, one.place)
        name, place = ("", "") if here == above else here
        missing = "nothing" if one.got is None else one.got
        wanted = "nothing" if one.expected is None else one.expected
        shown.add_row(f"        {name}", place, *map(Text, (one.column, wanted, missing)))
        above = here
    console.print(shown)
