"""Spark's analyzer reads select, where and expect: what it finds, and what is refused, in which words."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j import java_gateway
from pyspark import SparkContext
from pyspark.sql import SparkSession

from lakefeed.columns.column_types import EVENT_NAME
from lakefeed.engine.spark import analyzer
from lakefeed.errors import PipelineFileError, SqlError
from lakefeed.handles.shaping import Shaping
from lakefeed.pipeline.loading.load import load
from lakefeed.pipeline.table import Table
from lakefeed.reports.sql import check_sql
from lakefeed.sql.analysis import analyze
from lakefeed.sql.evaluation import evaluate_rows
from lakefeed.sql.expression import Call, Column, Literal
from lakefeed.sql.projection import Projection
from lakefeed.sql.respelling import respells
from support.command_line import in_process
from support.landing import Landing

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


def test_a_name_in_backticks_may_be_that_of_the_field_of_a_column(spark: SparkSession) -> None:
    kind = pa.struct([pa.field("user_id", pa.int64(), metadata={EVENT_NAME: b"user id"})])
    columns = pa.schema(
        [
            pa.field("US_Gross", pa.int64(), metadata={EVENT_NAME: b"US Gross"}),
            pa.field("with_space", pa.int64()),
            pa.field("m", kind, metadata={EVENT_NAME: b"the m"}),
        ]
    )
    select = ["`us gross` * 2 AS twice", "`the m`.`user id`", "`with space`"]
    texts = {"from": "films", "path": "films", "select": select, "where": "`US Gross` > 0"}
    shaping = Shaping(Table.model_validate(texts), partial(analyze, spark._jvm))

    found = shaping.projection(columns)

    assert found is not None
    assert found.output.names == ["twice", "user_id", "with_space"]
    assert found.where_text == "`US_Gross` > 0"


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
    "struct() AS v": "'v': a struct needs a field",
    "named_struct('a', struct()) AS v": "'v': a struct needs a field",
    "interval 1 day AS i": "a table has no column of type interval day",
    "cast(country AS array<int>) AS a": 'cannot cast "STRING" to "ARRAY<INT>"',
    "at > 'soon' AS late": 'The value \'soon\' of the type "STRING" cannot be cast to "TIMESTAMP"',
    "1 / 0 AS x": "Division by zero",
    "transform(tags, tag -> 1 / 0) AS x": "Division by zero",
}


def test_what_cannot_be_used_is_refused_with_the_reason(spark: SparkSession) -> None:
    for text, reason in REFUSED.items():
        said = refusal(spark, "id AS first", text)

        assert said.startswith("select[1]: ")
        assert reason in said
        assert "\n" not in said and "Exception" not in said


def test_a_constant_that_throws_is_no_error_of_the_text_where_few_rows_reach_it(spark: SparkSession) -> None:
    rows = pa.RecordBatch.from_pydict({"id": [1, 2]}, schema=pa.schema([("id", pa.int64())]))
    texts = ["CASE WHEN id > {0} THEN 1 + 1 / 0 ELSE 7D END", "if(id > {0}, cast('x' AS double), 7D)"]

    for text in texts:
        for most, threw in ((5, []), (1, [1])):
            item = analyze(spark._jvm, rows.schema, [text.format(most) + " AS v"], None, {}).items[0]
            (values,), errors = evaluate_rows([item.expression], rows)

            assert list(errors) == threw
            assert [one.as_py() for at, one in enumerate(values) if at not in threw] == [7.0] * (
                2 - len(threw)
            )


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
    # As it is in a process whose own session has ended.
    monkeypatch.setattr(analyzer, "_bare", [gateway])
    monkeypatch.setattr(analyzer, "existing_session", lambda: None)
    monkeypatch.setattr(SparkContext, "_jvm", None)
    monkeypatch.setattr(java_gateway, "get_return_value", java_gateway.get_return_value)
    try:
        with pytest.raises(SqlError, match="Did you mean one of the following"):
            analyzer.analyze_here(EVENTS, ["prise"], None, {})
        alone = analyze(gateway.jvm, EVENTS, texts, "id > 0", {"cheap": ("gross < 5", "drop")})
        with pytest.raises(SqlError, match="Did you mean one of the following"):
            analyze(gateway.jvm, EVENTS, ["prise"], None, {})
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(120)

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


def test_unknown_name_in_a_query_hides_no_other_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources: {orders: {type: generate}}
tables:
  bronze: {path: bronze, from: orders, where: "id >"}
  silver: {path: silver, from: orders, schema: {id: long}, python: "nowhere:function"}
  other: {path: other, from: orders, schema: {id: long}, where: "idd > 0"}
  gold: {path: gold, query: SELECT * FROM silverr JOIN lake.bronzee}
  best: {path: best, query: SELECT (id FROM otherr}
"""
    )

    code, _, told = in_process(capsys, monkeypatch)("validate", file)

    wrong = [line.removeprefix(f"{file}:").split(": ", 2)[:2] for line in told.splitlines()]
    assert code == 2
    assert wrong == [
        ["4", "tables.bronze.where"],
        ["5", "tables.silver.python"],
        ["6", "tables.other.where"],
        ["7", "tables.gold.query"],
        ["7", "tables.gold.query"],
        ["8", "tables.best.query"],
        ["8", "tables.best.query"],
    ]
    assert "reads 'lake.bronzee', which is no table of this file; a query reads tables of this file" in told
    assert "did you mean 'silver'?" in told and "PARSE_SYNTAX_ERROR" in told.splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "is_respelled"),
    [
        ("n", False),
        ("n % 2 = 0", False),
        ("if(n > 5, 'many', 'few')", False),
        ("cast(n AS int)", False),
        ("cast(cast(n AS bigint) AS string)", False),
        ("concat(country, s.name)", False),
        ("concat(element_at(names, 1), tags[0])", False),
        ("concat('k', n)", True),
        ("length(n) > 2", True),
        ("hash(n)", True),
        ("to_json(s)", True),
        ("transform(numbers, one -> concat('k', one))", True),
        ("cast(at AS string)", True),
    ],
)
def test_text_of_a_number_depends_on_its_type(spark: SparkSession, text: str, is_respelled: bool) -> None:
    wider = pa.schema(
        [
            ("n", pa.float64()),
            ("s", pa.struct([("n", pa.float64()), ("name", pa.string())])),
            ("numbers", pa.list_(pa.field("element", pa.float64()))),
            ("names", pa.map_(pa.float64(), pa.string())),
            ("at", pa.timestamp("us", "UTC")),
        ]
    )
    events = pa.schema([*wider, ("country", pa.string()), EVENTS.field("tags")])
    (item,) = analyze(spark._jvm, events, [f"{text} AS made"], None, {}).items

    assert respells(item.expression, wider.names) == is_respelled


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("select: [\"concat('k', n) AS key\", m]", "`concat('k', n) AS key` makes text of it, which would"),
        (
            "where: \"concat('k', n) <> 'k7'\"",
            "`where: concat('k', n) <> 'k7'` makes text of it, which would",
        ),
        ("expect: {even: n & 1 = 0}", 'tables.rows.expect.even: Cannot resolve "(n & 1)"'),
    ],
)
def test_a_column_whose_wider_type_would_change_what_sql_makes_is_not_widened(
    spark: SparkSession, tmp_path: Path, table: str, reason: str
) -> None:
    landing = Landing(tmp_path, table=table)
    landing.put("1.json", '{"n": 10, "m": 1}')
    landing.run()
    landing.put("2.json", '{"n": 10.5, "m": 2}\n{"n": 10, "m": 3}\n{"n": 12, "m": 4.5}')
    landing.run()

    assert sorted(landing.rows("m")) == [1.0, 3.0, 4.5]
    (letter,) = landing.letters()
    assert letter["error"].startswith("n: expected long, got 10.5; n is not widened to double: ")
    assert reason in letter["error"]
