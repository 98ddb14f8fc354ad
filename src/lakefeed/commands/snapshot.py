"""`lakefeed snapshot`: reads tables of a Postgres source anew."""

from __future__ import annotations

from typing import Annotated

import typer

from lakefeed.commands.options import DryRun, Overrides, PipelineFile, Yes, nothing_changed
from lakefeed.commands.options import called as called_as
from lakefeed.commands.run import run_pipeline
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.reports.snapshot_sample import refused_lines
from lakefeed.reprocess.snapshot import reading_anew


def snapshot(
    file: PipelineFile,
    source: Annotated[str, typer.Option("--source", help="The Postgres source, by its name in the file.")],
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", help="A table of it, such as public.orders; may be repeated."),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    overrides: Overrides = None,
) -> None:
    """Read tables of a Postgres source anew; the rows replace what is there in one commit.

    Runs the pipeline once. Stop a run of it before. Without --yes, it reads some rows and says how many of
    them would become dead letters. Above `dead_letters.stop_above`, or 50% where the file has none, nothing
    is replaced. A table of changes (`mode: append`) keeps its rows and
    gets a row that says `truncate`, and then all rows.
    """
    pipeline = Pipeline.from_file(file, overrides or ())
    only_shown = dry_run or not yes
    again, streams = reading_anew(pipeline, source, stream or [])
    for one in streams:
        taken = [name for name, table in pipeline.tables_of(source).items() if table.takes(one)]
        typer.echo(
            f"{one}: {'would be' if only_shown else 'is'} read anew into {', '.join(taken) or 'no table'}"
        )
    if only_shown:
        for line in refused_lines(again, source, streams):
            typer.echo(line)
        typer.echo(nothing_changed(dry_run))
        return
    run_pipeline(again, once=True, called=called_as(file, overrides))
