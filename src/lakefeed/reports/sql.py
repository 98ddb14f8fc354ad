"""The SQL of a pipeline file, checked before anything runs: by Spark's own analyzer, without a session."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakefeed.engine.spark.analyzer import analyze_here, bare_jvm
from lakefeed.errors import JavaError, PipelineFileError, Problem, SqlError
from lakefeed.handles.query.analysis import QueryRefused, inputs_of
from lakefeed.handles.shaping import CONDITIONS, Shaping, sql_problem
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.table import Table
from lakefeed.sources import source_of
from lakefeed.sql.analysis import check_syntax


def check_sql(pipeline: Pipeline) -> list[str]:
    """Check every text of Spark SQL in the tables; returns what could not be checked, and why.

    Names and types are checked where the file says which columns the texts read, by `schema` or by a table
    that feeds the table; the syntax everywhere. Raises PipelineFileError with all problems.
    """
    tables = {name: table for name, table in pipeline.tables.items() if table.sql or table.query}
    if not tables:
        return []
    try:
        bare_jvm()
    except JavaError as error:
        return [f"the SQL of {', '.join(tables)} was not checked: {error}"]
    found = {name: _read_by(pipeline, table) for name, table in tables.items()}
    problems = [one for name, known in found.items() for one in _problems(pipeline, name, known)]
    if problems:
        raise PipelineFileError(problems)
    return [
        f"table {name}: only the syntax of its SQL was checked, as its columns are not in the file"
        for name, known in found.items()
        if known is None and not tables[name].query
    ]


@dataclass(frozen=True)
class _Known:
    """The columns that the texts of a table read; there may be others where they are not `complete`."""

    columns: pa.Schema
    complete: bool


def _problems(pipeline: Pipeline, name: str, known: _Known | None) -> list[Problem]:
    table = pipeline.tables[name]
    try:
        if table.query:
            # Which columns the tables have that it reads, `plan` knows.
            inputs_of(bare_jvm(), pipeline, name)
        elif known is None:
            check_syntax(bare_jvm(), table.sql)
        else:
            shaping = Shaping(table, analyze_here)
            shaping.projection(known.columns)
            for option in CONDITIONS:
                shaping.condition(option, known.columns)
    except QueryRefused as error:
        return [error.problem]
    except SqlError as error:
        wrong = [
            one for one in (error, *error.others) if not one.lacks_column or known is None or known.complete
        ]
        return [sql_problem(pipeline, name, one) for one in wrong]
    return []


def _read_by(pipeline: Pipeline, table: Table) -> _Known | None:
    """The columns that the texts of a table read: those declared, or those of the table that feeds it.

    A function returns what it likes, and events bring what they like.
    """
    if table.python is not None:
        return None
    if table.declared is not None:
        feeds = [source_of(pipeline, name) for name in table.from_ if name in pipeline.sources]
        more = table.evolve.new_column == "add" and any(one.types_by_stream for one in feeds)
        return _Known(table.declared, complete=not more)
    feeding = pipeline.tables.get(table.from_[0]) if len(table.from_) == 1 else None
    return None if feeding is None or table.from_[0] in pipeline.sources else _made_by(pipeline, feeding)


def _made_by(pipeline: Pipeline, table: Table) -> _Known | None:
    read = None if table.query or table.route else _read_by(pipeline, table)
    if read is None:
        return None
    more = table.rename or table.drop or table.partition_by or table.interval or table.metadata
    complete = read.complete and not more and table.evolve.new_column == "ignore"
    if table.select is None:
        return _Known(read.columns, complete)
    try:
        made = Shaping(table, analyze_here).projection(read.columns)
    except SqlError:
        return None
    assert made is not None
    return _Known(made.output, read.complete and not table.partition_by and not table.interval)
