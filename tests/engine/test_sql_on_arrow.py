"""Arrow gives what Spark gives: the same values, and the same rows that throw, with the same words."""

from __future__ import annotations

import math
import os
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakefeed.errors import SqlError
from lakefeed.sql.analysis import analyze
from lakefeed.sql.evaluation import evaluate_rows
from lakefeed.sql.expression import Expression
from lakefeed.sql.spark_words import spark_words
from support.sql_expressions import COLUMNS, batches, expressions

EXAMPLES = int(os.environ.get("LAKEFEED_SQL_EXAMPLES", "12"))


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="LAKEFEED_SQL_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
@given(
    batch=batches(),
    texts=st.lists(expressions(), min_size=8, max_size=8, unique=True),
    compiled=st.booleans(),
)
def test_random_expressions_mean_the_same_on_arrow_and_in_spark(
    spark: SparkSession, batch: pa.RecordBatch, texts: list[str], compiled: bool
) -> None:
    known = {text: one for text in texts if (one := _on_arrow(spark, text)) is not None}
    if known:
        _compare(spark, batch, known, compiled)


def _on_arrow(spark: SparkSession, text: str) -> Expression | None:
    try:
        projection = analyze(spark._jvm, COLUMNS, [f"{text} AS v"], None, {})
    except SqlError:
        return None
    return None if projection.needs_spark else projection.items[0].expression


def _compare(
    spark: SparkSession, batch: pa.RecordBatch, known: dict[str, Expression], compiled: bool
) -> None:
    rule = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
    spark.conf.set("spark.sql.optimizer.excludedRules", rule if compiled else "")
    # What two expressions share would be computed before, outside of what is tried.
    spark.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    rows = spark.createDataFrame(pa.Table.from_batches([batch]))
    tried = rows.select(*[_tried(spark, text).alias(f"v{at}") for at, text in enumerate(known)])
    expected = tried.toArrow().combine_chunks()
    for at, (text, expression) in enumerate(known.items()):
        assert (
            problem := _difference(rows, batch, text, expression, expected.column(at).chunk(0))
        ) is None, problem


def _difference(
    rows: DataFrame, batch: pa.RecordBatch, text: str, expression: Expression, expected: pa.Array
) -> str | None:
    """What Arrow computes otherwise than Spark, or None."""
    (found,), errors = evaluate_rows([expression], batch)
    threw = pc.indices_nonzero(pc.is_null(expected)).to_pylist()
    if sorted(errors) != threw:
        which = sorted(set(errors) ^ set(threw))
        return f"{text}: only one throws for {_shown(batch, expression, which[0])}: {errors.get(which[0])}"
    wanted = _plain(pc.struct_field(expected, [0]))
    for row, (one, other) in enumerate(zip(wanted, _plain(found), strict=True)):
        if row not in errors and not _same(one, other):
            return f"{text}: Spark {one!r}, Arrow {other!r} for {_shown(batch, expression, row)}"
    if threw and errors[threw[0]] != (said := _words(rows, batch, threw[0], text)):
        return f"{text}: Spark says {said}, Arrow {errors[threw[0]]}"
    return None


def _tried(spark: SparkSession, text: str) -> Column:
    """A struct with the value, null where Spark throws."""
    jvm: Any = spark._jvm
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    value = F.when(F.lit(True), F.expr(text)).alias("v")
    inner = utils.expression(F.struct(value)._jc)
    return Column(utils.column(jvm.org.apache.spark.sql.catalyst.expressions.TryEval(inner)))


def _words(rows: DataFrame, batch: pa.RecordBatch, row: int, text: str) -> tuple[str, str] | None:
    rows.sparkSession.conf.set("spark.sql.optimizer.excludedRules", "")
    alone = rows.sparkSession.createDataFrame(pa.Table.from_batches([batch.slice(row, 1)]))
    try:
        alone.select(F.expr(text)).toArrow()
    except Exception as error:
        said = spark_words(error)
        assert said is not None, repr(error)
        return said.code or "ARITHMETIC_OVERFLOW", said.sentence
    return None


def _plain(found: pa.Array) -> list[Any]:
    """Values that Python can hold: it has neither the first nor the last dates and timestamps."""
    plain = {pa.date32(): pa.int32(), pa.timestamp("us", "UTC"): pa.int64()}.get(found.type)
    return (found.cast(plain) if plain else found).to_pylist()


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or repr(one) == repr(other)
    return bool(one == other and type(one) is type(other))


def _shown(batch: pa.RecordBatch, expression: Expression, row: int) -> dict[str, Any]:
    return {name: _plain(batch.column(name).slice(row, 1))[0] for name in sorted(expression.columns())}
