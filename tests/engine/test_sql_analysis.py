"""Spark's analyzer reads select, where and expect: what it finds, and what is refused, in which words."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakefeed.engine.spark import analyzer
from lakefeed.errors import PipelineFileError, SqlError
from lakefeed.pipeline.loading.load import load
from lakefeed.reports.sql import check_sql
from lakefeed.sql.analysis import analyze
from lakefeed.sql.expression import Call, Column, Literal
from lakefeed.sql.projection import Projection

EVENTS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("country", pa.string()),
        ("meta", pa.struct([("ip", pa.string())])),
        ("tags", pa.list_(pa.field("element", pa.string()))),
    ]
)


def analyzed(spark: SparkSession, *select: str, where: str | None = None, **expect: str) -> Projection:
    rules: Any = {name: (that, "warn") for name, that in expect.items()}
    return analyze(spark._jvm, EVENTS, select, where, rules)


def refusal(spark: SparkSession, *select: str, where: str | None = None, **expect: str) -> str:
    with pytest.raises(SqlError) as stopped:
        analyzed(spark, *select, where=where, **expect)
    return str(stopped.value)


def test_names_and_types_of_the_columns_are_those_that_spark_gives(spark: SparkSession) -> None:
    made = analyzed(
        spark, "* EXCEPT (tags, meta)", "meta.ip", "price * 1.2 AS gross", "date(at) AS day"
    ).output

    assert made.names == ["id", "price", "at", "country", "ip", "gross", "day"]
    assert made.field("gross").type == pa.decimal128(13, 3)
    assert made.field("day").type == pa.date32()
    assert not made.field("id").nullable
    assert made.field("gross").nullable


def test_a_cast_without_a_name_has_the_name_of_its_column(spark: SparkSession) -> None:
    assert analyzed(spark, "date(at)", "cast(id AS string)").output.names == ["at", "id"]


def test_a_column_is_found_whatever_the_case_of_its_name(spark: SparkSession) -> None:
    projection = analyzed(spark, "COUNTRY", "Meta.IP AS ip", where="Id > 0")

    assert projection.output.names == ["COUNTRY", "ip"]
    assert projection.columns() == {"country", "meta", "id"}


def test_without_select_every_column_is_taken_as_it_is(spark: SparkSession) -> None:
    projection = analyzed(spark, where="price > 0", cheap="price < 100")

    assert projection.output == EVENTS
    assert [item.name for item in projection.items] == EVENTS.names
    assert projection.where is not None and projection.where.columns() == {"price"}
    assert projection.needs_spark is None


def test_constants_are_computed_by_spark_while_analyzing(spark: SparkSession) -> None:
    where = analyzed(spark, where="at >= '2024-01-01'").where

    assert isinstance(where, Call)
    assert where.given[1] == Literal(pa.timestamp("us", "UTC"), 1704067200000000)


def test_the_time_of_the_batch_can_be_named_and_is_no_part_of_a_star(spark: SparkSession) -> None:
    projection = analyzed(spark, "*", "_batch_time AS loaded_at", where="at < _batch_time")

    assert projection.output.names == [*EVENTS.names, "loaded_at"]
    assert projection.items[-1].expression == Column(pa.timestamp("us", "UTC"), "_batch_time")


def test_rules_read_the_rows_as_the_table_gets_them(spark: SparkSession) -> None:
    projection = analyzed(spark, "id", "price * 2 AS twice", twice_positive="twice > 0")

    assert projection.rules[0].expression.columns() == {"twice"}
    assert "`country`" in refusal(spark, "id", known="country IS NOT NULL")


def test_a_projection_travels_to_workers(spark: SparkSession) -> None:
    projection = analyzed(spark, "*", "upper(country) AS c", "id BETWEEN 1 AND 5 AS few", where="id > 0")

    assert pickle.loads(pickle.dumps(projection)) == projection


def test_what_only_spark_computes_is_named(spark: SparkSession) -> None:
    assert analyzed(spark, "id", "price + 1 AS more").needs_spark is None
    assert analyzed(spark, "regexp_extract(country, 'a', 0) AS c").needs_spark == (
        "regexp_extract is not to be had in Arrow exactly as Spark means it "
        "(regexp_extract(country, 'a', 0) AS c)"
    )
    assert str(analyzed(spark, "try_to_binary(country) AS b").needs_spark).startswith("try_to_binary is not")
    assert "cast from string to timestamp" in str(
        analyzed(spark, "cast(country AS timestamp) AS t").needs_spark
    )
    assert "the type interval" in str(analyzed(spark, where="at > at - interval 1 day").needs_spark)


REFUSED = {
    "prise": "Did you mean one of the following? [`price`,",
    "prise + 1 AS p": "(UNRESOLVED_COLUMN.WITH_SUGGESTION, at character 1)",
    "1 + prise AS p": "at character 5)",
    "uper(country) AS c": "Spark has no function of this name, did you mean 'upper'?",
    "id +": "Syntax error at or near end of input. (PARSE_SYNTAX_ERROR, at character 5)",
    "id, country": "Syntax error at or near ','",
    "id FROM other": "Syntax error at or near 'FROM'",
    "count(id) AS n": "an aggregate needs more than one row",
    "row_number() OVER (ORDER BY id) AS n": "a window function needs more than one row",
    "explode(tags) AS tag": "a generator such as explode makes several rows of one",
    "(SELECT 1) AS one": "a subquery reads more than the row",
    "id IN (SELECT 1) AS one": "a subquery reads more than the row",
    "rand() AS r": "rand() gives another value each time",
    "uuid() AS u": "uuid() gives another value each time",
    "monotonically_increasing_id() AS n": "gives another value each time",
    "input_file_name() AS f": "gives another value each time",
    "current_timestamp() AS t": "use _batch_time, the time of the batch",
    "now() AS t": "use _batch_time, the time of the batch",
    "current_date AS d": "use _batch_time, the time of the batch",
    "unix_timestamp() AS t": "use _batch_time, the time of the batch",
    "current_user() AS u": "current_user() depends on who runs it",
    "id + 1": "a column name may not contain '(': '(id + 1)'; give it another with AS",
    "NULL AS nothing": "a null has no type",
    "array() AS nothing": "a null has no type",
    "map(1, 2) AS m": "the keys of a map must be of type string",
    "interval 1 day AS i": "a table has no column of type interval day",
    "cast(country AS array<int>) AS a": 'cannot cast "STRING" to "ARRAY<INT>"',
    "at > 'soon' AS late": 'The value \'soon\' of the type "STRING" cannot be cast to "TIMESTAMP"',
    "1 / 0 AS x": "Division by zero",
}


def test_what_cannot_be_used_is_refused_with_the_reason(spark: SparkSession) -> None:
    for text, reason in REFUSED.items():
        said = refusal(spark, "id AS first", text)

        assert said.startswith("select[1]: ")
        assert reason in said
        assert "\n" not in said and "Exception" not in said


def test_a_condition_must_be_one(spark: SparkSession) -> None:
    assert '"price" of type "DECIMAL(10,2)" is not a boolean' in refusal(spark, where="price")
    assert refusal(spark, where="rand() > 0.5").startswith("where: rand() gives another value")
    assert "WHERE" in refusal(spark, where="count(id) > 1")
    assert refusal(spark, cheap="prise < 1").startswith("expect.cheap: ")


def test_two_columns_of_one_name_are_refused(spark: SparkSession) -> None:
    said = refusal(spark, "*", "upper(country) AS Country")

    assert said == "select[1]: select[0] makes a column 'Country' too; rename one with AS"


def test_a_program_with_a_session_of_its_own_rules_gets_the_same_meaning(spark: SparkSession) -> None:
    before = analyzed(spark, "cast(country AS int) AS n", where="at > '2024-01-01 00:00:00'")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert analyzed(spark, "cast(country AS int) AS n", where="at > '2024-01-01 00:00:00'") == before
        assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_jvm_without_a_session_gives_the_same_answer(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [
        "*",
        "price * 1.2 AS gross",
        "nullif(country, '') AS c",
        "date(at) AS day",
        "at > '2024-01-01' AS new",
    ]
    monkeypatch.setitem(os.environ, "TZ", "America/New_York")
    gateway = analyzer._launched()
    try:
        alone = analyze(gateway.jvm, EVENTS, texts, "id > 0", {"cheap": ("gross < 5", "drop")})
        with pytest.raises(SqlError, match="Did you mean one of the following"):
            analyze(gateway.jvm, EVENTS, ["prise"], None, {})
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)

    assert alone == analyze(spark._jvm, EVENTS, texts, "id > 0", {"cheap": ("gross < 5", "drop")})


def test_every_wrong_text_of_a_file_is_told_with_its_line(
    spark: SparkSession, pipeline_file: Callable[[str], Path]
) -> None:
    file = pipeline_file(
        """\
        name: shop
        sources:
          orders: {type: generate}
        tables:
          silver:
            path: silver
            from: orders
            schema: {id: long, price: double}
            where: prise > 0
            select:
              - "*"
              - uper(id) AS c
              - rand() AS r
          bronze:
            path: bronze
            from: orders
            where: id >
        """
    )

    with pytest.raises(PipelineFileError) as stopped:
        check_sql(load(file).pipeline)

    told = [str(problem) for problem in stopped.value.problems]
    assert [line.split(" ")[:2] for line in told] == [
        [f"{file}:9:", "tables.silver.where:"],
        [f"{file}:12:", "tables.silver.select.1:"],
        [f"{file}:13:", "tables.silver.select.2:"],
        [f"{file}:17:", "tables.bronze.where:"],
    ]


def test_sql_over_columns_that_the_file_does_not_name_is_only_parsed(
    spark: SparkSession, pipeline_file: Callable[[str], Path]
) -> None:
    file = pipeline_file(
        """\
        name: shop
        sources:
          orders: {type: generate}
        tables:
          bronze: {path: bronze, from: orders, where: id > 0}
        """
    )

    notes = check_sql(load(file).pipeline)

    assert notes == [
        "table bronze: only the syntax of its SQL was checked, as its columns are not in the file"
    ]


def test_sql_over_the_columns_of_a_table_of_the_file_is_checked_with_them(
    spark: SparkSession, pipeline_file: Callable[[str], Path]
) -> None:
    text = """\
        name: shop
        sources:
          orders: {{type: generate}}
        tables:
          bronze: {{path: bronze, from: orders, schema: {{id: long, brand: string}}{evolve}}}
          silver: {{path: silver, from: bronze, select: [id, upper(brand) AS brand]}}
          clean:
            path: clean
            from: silver
            where: {where}
        """

    closed = ", evolve: ignore"
    for evolve, where, wrong in (
        (closed, "brand > 'A'", None),
        (closed, "lowr(brand) = 'a'", "lowr"),
        (closed, "price > 1", "price"),
        ("", "lowr(brand) = 'a'", "lowr"),
    ):
        pipeline = load(pipeline_file(text.format(evolve=evolve, where=where))).pipeline
        if wrong is None:
            assert check_sql(pipeline) == []
            continue
        with pytest.raises(PipelineFileError, match=rf":10: tables.clean.where: .*{wrong}"):
            check_sql(pipeline)
