"""`lakefeed validate`: checks a pipeline file offline."""

from __future__ import annotations

import typer

from lakefeed.commands.options import Overrides, PipelineFile
from lakefeed.errors import PipelineFileError, Problem
from lakefeed.handles.functions import UserFunctions
from lakefeed.pipeline.loading.load import Loaded, load
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.text import counted


def validate(file: PipelineFile, overrides: Overrides = None) -> None:
    """Check a pipeline file, without connecting to anything.

    Every problem is printed with its line, and the exit code is 2. Spark SQL in the file is checked too, for
    which Java is started: its syntax, and names and types where `schema` declares the columns.
    """
    problems: list[Problem] = []
    try:
        loaded = load(file, overrides or ())
    except PipelineFileError as error:
        if error.pipeline is None:
            raise
        # A wrong name in a query says nothing of the rest.
        problems, loaded = error.problems, Loaded(error.pipeline)
    for warning in loaded.warnings:
        typer.echo(f"warning: {warning}", err=True)
    notes: list[str] = []
    for check in (_check_functions, _check_sql):
        try:
            notes += check(loaded.pipeline)
        except PipelineFileError as error:
            problems += error.problems
    if problems:
        raise PipelineFileError(list(dict.fromkeys(problems)))
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    sources, tables = len(loaded.pipeline.sources), len(loaded.pipeline.tables)
    typer.echo(f"{file}: ok ({counted(sources, 'source')}, {counted(tables, 'table')})")


def _check_functions(pipeline: Pipeline) -> list[str]:
    UserFunctions(pipeline).check()
    return []


def _check_sql(pipeline: Pipeline) -> list[str]:
    if not any(table.sql or table.query for table in pipeline.tables.values()):
        # Without SQL, the check takes less than a second.
        return []
    from lakefeed.reports.sql import check_sql

    return check_sql(pipeline)
