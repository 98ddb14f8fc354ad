"""The SQL of a pipeline file, checked before anything runs: by Spark's own analyzer, without a session."""

from __future__ import annotations

from lakefeed.engine.spark.analyzer import analyze_here, bare_jvm
from lakefeed.errors import JavaError, PipelineFileError, Problem, SqlError
from lakefeed.handles.query.analysis import QueryRefused, inputs_of
from lakefeed.handles.shaping import CONDITIONS, Shaping, sql_problem
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.table import Table
from lakefeed.sql.analysis import check_syntax


def check_sql(pipeline: Pipeline) -> list[str]:
    """Check every text of Spark SQL in the tables; answers what could not be checked, and why.

    Names and types are checked where `schema` declares the columns that the texts read, the syntax
    everywhere. Raises PipelineFileError with all problems.
    """
    tables = {name: table for name, table in pipeline.tables.items() if table.sql or table.query}
    if not tables:
        return []
    try:
        bare_jvm()
    except JavaError as error:
        return [f"the SQL of {', '.join(tables)} was not checked: {error}"]
    problems = [one for name, table in tables.items() for one in _problems(pipeline, name, table)]
    if problems:
        raise PipelineFileError(problems)
    unknown = [name for name, table in tables.items() if not _knows_columns(table) and not table.query]
    return [
        f"table {name}: only the syntax of its SQL was checked, as its columns are not in the file"
        for name in unknown
    ]


def _problems(pipeline: Pipeline, name: str, table: Table) -> list[Problem]:
    try:
        if table.query:
            # Which columns the tables have that it reads, `plan` knows.
            inputs_of(bare_jvm(), pipeline, name)
        elif _knows_columns(table):
            shaping = Shaping(table, analyze_here)
            shaping.projection(table.declared)
            for option in CONDITIONS:
                shaping.condition(option, table.declared)
        else:
            check_syntax(bare_jvm(), table.sql)
    except QueryRefused as error:
        return [error.problem]
    except SqlError as error:
        return [sql_problem(pipeline, name, one) for one in (error, *error.others)]
    return []


def _knows_columns(table: Table) -> bool:
    """Whether the file says which columns the texts read; a function returns what it likes."""
    return table.declared is not None and table.python is None
