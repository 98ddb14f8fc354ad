"""`lakefeed validate`: checks a pipeline file offline."""

from __future__ import annotations

import typer

from lakefeed.commands.options import Overrides, PipelineFile
from lakefeed.handles.functions import UserFunctions
from lakefeed.pipeline.loading.load import load
from lakefeed.text import counted


def validate(file: PipelineFile, overrides: Overrides = None) -> None:
    """Check a pipeline file, without connecting to anything.

    Every problem is printed with its line, and the exit code is 2. Spark SQL in the file is checked too, for
    which Java is started: its syntax, and names and types where `schema` declares the columns.
    """
    loaded = load(file, overrides or ())
    for warning in loaded.warnings:
        typer.echo(f"warning: {warning}", err=True)
    UserFunctions(loaded.pipeline).check()
    if any(table.sql or table.query for table in loaded.pipeline.tables.values()):
        # Not for a file without SQL: its check takes less than a second.
        from lakefeed.reports.sql import check_sql

        for note in check_sql(loaded.pipeline):
            typer.echo(f"note: {note}", err=True)
    sources, tables = len(loaded.pipeline.sources), len(loaded.pipeline.tables)
    typer.echo(f"{file}: ok ({counted(sources, 'source')}, {counted(tables, 'table')})")
