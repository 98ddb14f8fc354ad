"""`lakefeed validate`: checks a pipeline file offline."""

from __future__ import annotations

import typer

from lakefeed.commands.options import Overrides, PipelineFile
from lakefeed.handles.functions import UserFunctions
from lakefeed.pipeline.loading.load import load
from lakefeed.text import counted


def validate(file: PipelineFile, overrides: Overrides = None) -> None:
    """Check a pipeline file, without connecting to anything.

    Every problem is printed with its line, and the exit code is 2.
    """
    loaded = load(file, overrides or ())
    for warning in loaded.warnings:
        typer.echo(f"warning: {warning}", err=True)
    UserFunctions(loaded.pipeline).check()
    sources, tables = len(loaded.pipeline.sources), len(loaded.pipeline.tables)
    typer.echo(f"{file}: ok ({counted(sources, 'source')}, {counted(tables, 'table')})")
