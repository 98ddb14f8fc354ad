"""What Spark's own parser finds in a query: which relations it reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lakefeed.errors import TableError
from lakefeed.pipeline.options.query import table_of
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.refresh.spark_words import spark_words
from lakefeed.text import suggestion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WITH = "UnresolvedWith"
_RELATION = "UnresolvedRelation"


def inputs_of(spark: SparkSession, pipeline: Pipeline, name: str) -> list[str]:
    """The tables of the file that the query of a table reads, as Spark reads the query.

    Raises TableError, with Spark's own words, for what is no query, and for relations that are no tables of
    the file.
    """
    query = pipeline.tables[name].query
    assert query is not None
    with spark_words(name):
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(query)
        found = list(dict.fromkeys(_relations(plan, frozenset())))
    if not found:
        raise TableError(f"table {name}: the query reads no table of the pipeline file, so it is never run.")
    names = []
    for relation in found:
        table = table_of(relation, list(pipeline.tables))
        if table is None:
            others = [one for one in pipeline.tables if one != name]
            message = f"reads '{relation}', which is no table of this file{suggestion(relation, others)}"
            raise TableError(f"table {name}: {pipeline.problem(('tables', name, 'query'), message)}")
        names.append(table)
    return names


def _relations(plan: Any, common: frozenset[str]) -> Iterator[str]:
    """The relations of a parsed plan without its common table expressions, each where it is known."""
    kind = plan.getClass().getSimpleName()
    if kind == _RELATION:
        name = ".".join(_items(plan.multipartIdentifier()))
        if name.casefold() not in common:
            yield name
        return
    if kind == _WITH:
        for defined in _items(plan.cteRelations()):
            name = str(defined._1()).casefold()
            yield from _relations(defined._2(), common | {name} if plan.allowRecursion() else common)
            common |= {name}
    for expression in _items(plan.expressions()):
        yield from _inside(expression, common)
    for child in _items(plan.children()):
        yield from _relations(child, common)


def _inside(expression: Any, common: frozenset[str]) -> Iterator[str]:
    """The relations of the subqueries in an expression."""
    if hasattr(expression, "plan") and "Subquery" in _kinds(expression):
        yield from _relations(expression.plan(), common)
    for child in _items(expression.children()):
        yield from _inside(child, common)


def _kinds(expression: Any) -> str:
    """The names of the class and of those that it is derived from."""
    found, kind = [], expression.getClass()
    while kind is not None:
        found.append(kind.getSimpleName())
        kind = kind.getSuperclass()
    return " ".join(found)


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(at) for at in range(sequence.length())]
