"""A query as Spark's own parser and analyzer read it: the relations that it names, the columns that it makes.

Needs a JVM with Spark's classes and no session, so that `plan` and `validate` tell what a run would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa

from lakefeed.errors import Problem, TableError
from lakefeed.pipeline.options.query import calls, table_of, unknown_table
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.sql.catalyst import Catalyst, each, module
from lakefeed.sql.spark_types import spark_schema
from lakefeed.sql.spark_words import SparkWords, spark_words
from lakefeed.text import did_you_mean

_WITH = "UnresolvedWith"
_RELATION = "UnresolvedRelation"
_LINES_BEFORE = 2


class QueryRefused(TableError):
    """A query that cannot be run as it is; `problem` has its line."""

    def __init__(self, table: str, problem: Problem) -> None:
        super().__init__(f"table {table}: {problem}")
        self.problem = problem


def inputs_of(jvm: Any, pipeline: Pipeline, name: str) -> list[str]:
    """The tables of the file that the query of a table reads, as Spark reads the query.

    Raises TableError, with Spark's own words, for what is no query, and for relations that are no tables of
    the file.
    """
    query = pipeline.tables[name].query
    assert query is not None
    parser = module(jvm.org.apache.spark.sql.catalyst.parser, "CatalystSqlParser")
    try:
        found = list(dict.fromkeys(_relations(parser.parsePlan(query), frozenset())))
    except Exception as error:
        raise _refused(pipeline, name, error) from error
    if not found:
        raise _problem(pipeline, name, "reads no table of this file, so it would never be run")
    names = []
    for relation in found:
        table = table_of(relation, list(pipeline.tables))
        if table is None:
            others = [one for one in pipeline.tables if one != name]
            raise _problem(pipeline, name, unknown_table(relation, others))
        names.append(table)
    return names


def columns_of(
    jvm: Any, pipeline: Pipeline, name: str, inputs: Mapping[str, pa.Schema]
) -> list[tuple[str, str]]:
    """The columns that a query makes of tables with these columns, with their types in Spark's words.

    Raises TableError with Spark's own words where it cannot be run over them.
    """
    query = pipeline.tables[name].query
    sql = jvm.org.apache.spark.sql
    types = module(sql.types, "DataType")
    parser = module(sql.catalyst.parser, "CatalystSqlParser")
    analyzer = module(sql.catalyst.analysis, "SimpleAnalyzer")
    relations = ", ".join(f"`{one}` AS ({_empty(types, schema)})" for one, schema in inputs.items())
    try:
        # In lines of its own, so that Spark's positions are those of the query.
        parsed = parser.parsePlan(f"WITH {relations}\nSELECT * FROM (\n{query}\n)")
        analyzed = analyzer.execute(parsed)
        analyzer.checkAnalysis(analyzed)
        made = orjson.loads(analyzed.schema().json())
    except Exception as error:
        if unknown := _unknown_function(jvm, query or "", error):
            raise _problem(pipeline, name, unknown) from error
        raise _refused(pipeline, name, error, _LINES_BEFORE) from error
    return [(one["name"], type_words(one["type"])) for one in made["fields"]]


def type_words(kind: Any) -> str:
    """A type of Spark's in JSON as the pipeline file would write it."""
    match kind:
        case {"type": "struct", "fields": fields}:
            inner = [f"{one['name']}: {type_words(one['type'])}" for one in fields]
            return f"struct<{', '.join(inner)}>"
        case {"type": "array", "elementType": element}:
            return f"array<{type_words(element)}>"
        case {"type": "map", "keyType": key, "valueType": value}:
            return f"map<{type_words(key)}, {type_words(value)}>"
    return str(kind)


def _unknown_function(jvm: Any, query: str, error: Exception) -> str | None:
    """What to say of a function that Spark does not have: an analyzer without a session asks a catalog."""
    said = spark_words(error)
    if said is None or not said.code.startswith(("UNSUPPORTED_CALL", "UNRESOLVED_ROUTINE")):
        return None
    known = Catalyst(jvm).functions()
    called = [name for name in calls(query) if name.casefold() not in known]
    if not called:
        return None
    return f"Spark has no function '{called[0]}'{did_you_mean(called[0], known)}"


def _empty(types: Any, schema: pa.Schema) -> str:
    """A query that makes these columns, all null."""
    converted = types.fromJson(orjson.dumps(spark_schema(schema)).decode())
    columns = [
        f"CAST(NULL AS {one.dataType().sql()}) AS `{one.name().replace('`', '``')}`"
        for one in converted.fields()
    ]
    return f"SELECT {', '.join(columns)}"


def _refused(pipeline: Pipeline, name: str, error: Exception, before: int = 0) -> Exception:
    said = spark_words(error)
    return error if said is None else _problem(pipeline, name, f"Spark says: {_moved(said, before)}")


def _moved(said: SparkWords, before: int) -> SparkWords:
    """With the line counted from the beginning of the query."""
    said.line = max(1, said.line - before) if said.line else 0
    return said


def _problem(pipeline: Pipeline, name: str, message: str) -> QueryRefused:
    return QueryRefused(name, pipeline.problem(("tables", name, "query"), message))


def _relations(plan: Any, common: frozenset[str]) -> Iterator[str]:
    """The relations of a parsed plan without its common table expressions, each where it is known."""
    kind = plan.getClass().getSimpleName()
    if kind == _RELATION:
        name = ".".join(each(plan.multipartIdentifier()))
        if name.casefold() not in common:
            yield name
        return
    if kind == _WITH:
        for defined in each(plan.cteRelations()):
            name = str(defined._1()).casefold()
            yield from _relations(defined._2(), common | {name} if plan.allowRecursion() else common)
            common |= {name}
    for expression in each(plan.expressions()):
        yield from _inside(expression, common)
    for child in each(plan.children()):
        yield from _relations(child, common)


def _inside(expression: Any, common: frozenset[str]) -> Iterator[str]:
    """The relations of the subqueries in an expression."""
    if "PlanExpression" in _kinds(expression):
        yield from _relations(expression.plan(), common)
    for child in each(expression.children()):
        yield from _inside(child, common)


def _kinds(expression: Any) -> Iterator[str]:
    """The names of the class and of those that it is derived from."""
    kind = expression.getClass()
    while kind is not None:
        yield kind.getSimpleName()
        kind = kind.getSuperclass()
