"""Arrow gives what Spark gives: the same values, and the same rows that throw, with the same words."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakefeed.errors import SqlError
from lakefeed.sql.analysis import analyze
from lakefeed.sql.arrow.letters import lower_case, upper_case
from lakefeed.sql.evaluation import evaluate_rows
from lakefeed.sql.expression import Expression
from lakefeed.sql.spark_words import spark_words
from support.sql_expressions import COLUMNS, batches, expressions

LOCAL = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"

# Many more of them: LAKEFEED_SQL_EXAMPLES=500, with other expressions each time.
EXAMPLES = int(os.environ.get("LAKEFEED_SQL_EXAMPLES", "10"))


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
        with _settings(spark, compiled):
            _compare(spark, batch, known)


EXTREME = [
    *[f"{part}(dt)" for part in ("year", "quarter", "month", "day", "dayofyear", "weekday", "weekofyear")],
    *[f"trunc(dt, '{unit}')" for unit in ("year", "quarter", "month", "week")],
    *[f"date_trunc('{unit}', ts)" for unit in ("year", "week", "day", "hour", "second", "microsecond")],
    *["dt + 1", "dt - 1", "datediff(dt, date'1970-01-01')", "cast(dt AS timestamp)", "date(ts)", "hour(ts)"],
    *["timestamp_millis(l)", "timestamp_seconds(l)", "timestamp_micros(l)", "cast(l AS timestamp)"],
]


def test_the_first_and_last_dates_and_timestamps_are_computed_as_spark_does(spark: SparkSession) -> None:
    ends = [2**31 - 1, -(2**31)], [2**63 - 1, -(2**63)]
    columns = {"dt": pa.array(ends[0], pa.int32()), "ts": pa.array(ends[1]), "l": pa.array(ends[1])}
    batch = pa.RecordBatch.from_arrays(
        [
            columns[one.name].cast(one.type) if one.name in columns else pa.nulls(2, one.type)
            for one in COLUMNS
        ],
        schema=COLUMNS,
    )

    known = {text: one for text in EXTREME if (one := _on_arrow(spark, text)) is not None}

    assert list(known) == EXTREME
    with _settings(spark, compiled=False):
        _compare(spark, batch, known)


def test_every_letter_has_the_upper_and_lower_case_that_spark_gives_it(spark: SparkSession) -> None:
    letters = [chr(code) for code in range(1, 0x20000) if not 0xD800 <= code <= 0xDFFF]
    alpha, sigma = "\u0391", "\u03a3"
    around = [
        "{0}{1}",
        "{0}{1}.",
        "{1}",
        "{1}{0}",
        "{0}{1}{0}",
        "{0}{1}\u0301",
        "1{1}",
        "{0}'{1}",
        "{0}\u00ad{1}",
    ]
    words = [*(one.format(alpha, sigma) for one in around), "I\u0307"]
    texts = [*letters, *words]
    rows = spark.createDataFrame(pa.table({"c": texts}))

    cased = rows.selectExpr("upper(c) AS upper", "lower(c) AS lower").toArrow().to_pydict()

    assert [upper_case(text) for text in texts] == cased["upper"]
    assert [lower_case(text) for text in texts] == cased["lower"]


def test_texts_and_long_decimals_become_numbers_as_spark_makes_them(spark: SparkSession) -> None:
    batch = _in_columns(NUMERALS, DECIMALS)
    kinds = ["double", "float", "decimal(10,2)", "decimal(38,0)", "decimal(38,38)"]
    texts = [f"{word}(s AS {kind})" for kind in kinds for word in ("cast", "try_cast")]
    texts += [f"cast({one} AS {kind})" for one in ("e", "z") for kind in ("bigint", "int", "decimal(20,3)")]
    texts += ["cast(e AS smallint)", "- m", "abs(m)"]

    known = {text: one for text in texts if (one := _on_arrow(spark, text, batch.schema)) is not None}

    assert list(known) == texts
    with _settings(spark, compiled=True):
        _compare(spark, batch, known)
    assert [_on_arrow(spark, text, batch.schema) for text in ("- e", "abs(z)")] == [None, None]


NUMERALS = [
    *["1e37", "1e38", "1e999999999", "-1e100000000", "1e2147483648", "1e-400", "1e-99999999999", "-0e50"],
    *["0e37", "0e38", "0e99999999999", "0e-999999999", "1e00000000000000000005", "1e-2147483649"],
    *["9" * 38, "9" * 39, "9" * 38 + ".5", "0" * 50 + "1", "0." + "9" * 39, "1." + "0" * 60, "1" * 400],
    *["0x1p3", "-0X1.8P1", "0x.8p0d", "0x1", "0x1p", "0x1p99999", "+0x1p-1074", "0x1.fffffffffffff8p1023"],
    *["0x1.000001000000000000001p0", "0x1.00000100000000p0", "0x1p-0000000000000000000000003", "0x0p0f"],
    *["NaN", "+NaN", "-NaN", "+nan", "nan", "-Infinity", "Infinityf", "inf", "1d", "1.5F", "1dd", "1_0"],
    *[
        "\u0661\u0662.\u0663",
        "1\uff11",
        "1e\u0661",
        "\U0001d7d9",
        "\x001",
        "\x1f1\x1f",
        "\x7f1",
        "1\x7f",
        "\u00a01",
    ],
    *["", " ", "+", ".", "e5", "1.e5", "-.5e1", "+-1", "99999999.995", "1e400", "2.4703282292062328e-324"],
]
DECIMALS = [
    *["0.999999999999999999", "-2147483647.999999999999999999", "2147483647.999999999999999999"],
    *["-9223372036854775807.999999999999999999", "9223372036854775808", "-18446744073709551614.999999999999"],
    *["4294967295.99999999999999", "99999999999999999999.999999999999999999", "1.5", "-0.0005", "127.9999"],
]


def _in_columns(numerals: list[str], decimals: list[str]) -> pa.RecordBatch:
    """Texts as `s`, and the numbers as decimals of all widths."""
    count = max(len(numerals), len(decimals))
    texts = pa.array([*numerals, *[None] * (count - len(numerals))])
    values = [*map(Decimal, decimals), *[None] * (count - len(decimals))]
    whole = [one and one.to_integral_value() for one in values]
    short = [one and one % 1000 for one in values]
    columns = {
        "s": texts,
        "e": pa.array(values, pa.decimal128(38, 18)),
        "z": pa.array(whole, pa.decimal128(38, 0)),
        "m": pa.array(short, pa.decimal128(34, 18)),
    }
    return pa.RecordBatch.from_pydict(columns)


def _on_arrow(spark: SparkSession, text: str, columns: pa.Schema = COLUMNS) -> Expression | None:
    try:
        projection = analyze(spark._jvm, columns, [f"{text} AS v"], None, {})
    except SqlError:
        return None
    return None if projection.needs_spark else projection.items[0].expression


@contextmanager
def _settings(spark: SparkSession, compiled: bool) -> Iterator[None]:
    """Have Spark compute as a task does, with compiled expressions, or one by one on the driver."""
    # What two expressions share would be computed before, outside of what is tried.
    spark.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    if compiled:
        spark.conf.set("spark.sql.optimizer.excludedRules", LOCAL)
    yield
    spark.conf.unset("spark.sql.optimizer.excludedRules")
    spark.conf.unset("spark.sql.subexpressionElimination.enabled")


def _compare(spark: SparkSession, batch: pa.RecordBatch, known: dict[str, Expression]) -> None:
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
    if threw and not _same_words(errors[threw[0]], said := _words(rows, batch, threw[0], text)):
        return f"{text}: Spark says {said}, Arrow {errors[threw[0]]}"
    return None


def _tried(spark: SparkSession, text: str) -> Column:
    """A struct with the value, null where Spark throws."""
    jvm: Any = spark._jvm
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    # True, which the optimizer does not see: to it, each value might be null. Spark cannot tell Arrow of a
    # struct that is null around a value that never is.
    always = F.col("s").isNull() | (F.length("s") >= 0)
    value = F.when(always, F.expr(text)).alias("v")
    inner = utils.expression(F.struct(value)._jc)
    return Column(utils.column(jvm.org.apache.spark.sql.catalyst.expressions.TryEval(inner)))


def _words(rows: DataFrame, batch: pa.RecordBatch, row: int, text: str) -> tuple[str, str] | None:
    rows.sparkSession.conf.unset("spark.sql.optimizer.excludedRules")
    alone = rows.sparkSession.createDataFrame(pa.Table.from_batches([batch.slice(row, 1)]))
    try:
        alone.select(F.expr(text)).toArrow()
    except Exception as error:
        said = spark_words(error)
        assert said is not None, repr(error)
        return said.code, said.sentence
    return None


def _same_words(one: tuple[str, str], other: tuple[str, str] | None) -> bool:
    """Java writes some floats with a digit more than is needed."""
    if other and any(f'of the type "{kind}"' in other[1] for kind in ("FLOAT", "DOUBLE")):
        return one[0] == other[0]
    return one == other


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
