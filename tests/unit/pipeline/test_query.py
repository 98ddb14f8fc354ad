from __future__ import annotations

from collections.abc import Callable

import pytest

from lakefeed import Pipeline
from lakefeed.pipeline.options.query import inputs_in_order, relations

Problems = Callable[[str], list[str]]


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("SELECT * FROM a", ["a"]),
        ("SELECT a.x FROM a, b WHERE a.y IN (SELECT z FROM c) GROUP BY 1", ["a", "b", "c"]),
        ("SELECT extract(year FROM day) FROM o JOIN `my-table` m ON m.a = o.b, z", ["o", "my-table", "z"]),
        ("WITH x AS (SELECT * FROM a), y AS (SELECT * FROM x JOIN b) SELECT * FROM y, c", ["a", "b", "c"]),
        ("WITH orders AS (SELECT * FROM orders) SELECT * FROM orders", ["orders"]),
        ("WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT * FROM r JOIN a", ["a"]),
        ("SELECT * FROM (WITH i AS (SELECT * FROM a) SELECT * FROM i) JOIN i", ["a", "i"]),
        ("SELECT * FROM range(10) r JOIN a", ["a"]),
        ("SELECT * FROM (SELECT * FROM a) x JOIN (b JOIN c ON b.i = c.i)", ["a", "b", "c"]),
        ("SELECT a IS DISTINCT FROM b FROM t", ["t"]),
        ("SELECT k, v FROM t LATERAL VIEW explode(m) e AS k, v WHERE x = 'FROM q'", ["t"]),
        ("SELECT * FROM delta.`/x/y`", ["delta./x/y"]),
        ("SELECT trim(BOTH 'x' FROM n), (SELECT max(v) FROM b) FROM a -- FROM z\n/* FROM y */", ["b", "a"]),
        ("SELECT * FROM a UNION ALL SELECT * FROM b EXCEPT SELECT * FROM c", ["a", "b", "c"]),
        ("SELECT * FROM VALUES (1), (2) AS t(x)", []),
        ("FROM a |> WHERE x > 1 |> JOIN b ON a.i = b.i", ["a", "b"]),
    ],
)
def test_the_relations_of_a_query_are_found_in_its_text(query: str, read: list[str]) -> None:
    assert relations(query) == read


def test_tables_of_queries_come_behind_those_that_they_read() -> None:
    queries = {"c": "SELECT * FROM b, x", "a": "SELECT * FROM x", "b": "SELECT * FROM a", "x": None}

    assert list(inputs_in_order(queries).items()) == [("a", ["x"]), ("b", ["a"]), ("c", ["b", "x"])]
    with pytest.raises(ValueError, match="b -> c -> b"):
        inputs_in_order({"a": "SELECT * FROM b", "b": "SELECT * FROM c", "c": "SELECT * FROM b"})


def test_a_table_has_either_sources_or_a_query(problems: Problems) -> None:
    assert problems(_file("{path: lake/x}")) == [
        "shop.yaml:6: tables.x.from: required, but missing",
    ]
    assert problems(_file("{path: lake/x, from: clicks, query: SELECT 1 FROM clicks}")) == [
        "shop.yaml:6: tables.x.from: a table has either `from` or `query`; remove one of them",
    ]
    assert problems(_file("{path: lake/x, from: clicks, refresh: 5s}")) == [
        "shop.yaml:6: tables.x.refresh: has an effect only with `query`; add that, or remove this",
    ]


@pytest.mark.parametrize(
    ("more", "key", "reason"),
    [
        ("mode: overwrite", "mode", "each refresh replaces all rows"),
        ("schema: {a: int}", "schema", "use CAST"),
        ("rename: {a: b}", "rename", "use AS"),
        ("metadata: true", "metadata", "has no effect on a table with `query`"),
        ("share: true", "share", "has no effect on a table with `query`"),
        ("evolve: rescue", "evolve", "use add, ignore or fail"),
        ("evolve: {type_change: dead_letter}", "evolve", "use add, ignore or fail"),
        ("upkeep: {delete_after: {column: a, age: 5d}}", "upkeep.delete_after", "into its WHERE"),
    ],
)
def test_what_a_query_has_no_use_for_is_refused_with_the_reason(
    more: str, key: str, reason: str, problems: Problems
) -> None:
    [told] = problems(_file(f"{{path: lake/x, query: SELECT 1 AS one FROM clicks, {more}}}"))

    assert told.startswith(f"shop.yaml:6: tables.x.{key}: ") and reason in told


def test_what_suits_a_table_of_a_query_is_taken(problems: Problems) -> None:
    more = "refresh: 5m, evolve: ignore, partition_by: [day(t)], sort_by: [a], compression: snappy"
    more += ", properties: {delta.dataSkippingNumIndexedCols: '4'}, upkeep: {vacuum: {retain: 8d}}"

    assert problems(_file(f"{{path: lake/x, query: 'SELECT a, t FROM clicks', {more}}}")) == []


def test_an_unknown_relation_is_told_with_the_near_name(problems: Problems) -> None:
    assert problems(_file("{path: lake/x, query: SELECT 1 FROM clcks}")) == [
        "shop.yaml:6: tables.x.query: reads 'clcks', which is no table of this file, did you mean 'clicks'?",
    ]
    assert problems(_file("{path: lake/x, query: SELECT 1 FROM delta.`/lake/y`}")) == [
        "shop.yaml:6: tables.x.query: reads 'delta./lake/y', which is no table of this file; a query reads "
        "tables of this file by their names",
    ]


def test_a_query_that_reads_no_table_is_refused(problems: Problems) -> None:
    [told] = problems(_file("{path: lake/x, query: SELECT 1 AS one}"))

    assert told.startswith("shop.yaml:6: tables.x.query: reads no table")


def test_a_query_over_its_own_result_is_refused(problems: Problems) -> None:
    text = _file("{path: lake/x, query: SELECT * FROM y}") + "  y: {path: lake/y, query: SELECT * FROM x}\n"

    assert problems(text) == [
        "shop.yaml:6: tables.x.query: reads its own result: x -> y -> x; a table cannot be made of itself",
    ]


@pytest.mark.parametrize(
    "query", ["DELETE FROM clicks", "SELECT 1; SELECT 2", "' '", "CREATE TABLE x (a int)"]
)
def test_only_one_query_is_a_query(query: str, problems: Problems) -> None:
    [told] = problems(_file(f"{{path: lake/x, query: {query}}}"))

    assert told.startswith("shop.yaml:6: tables.x.query: expected ")


def test_queries_of_the_python_api_are_known_with_their_inputs(write: Callable[[str], object]) -> None:
    write(
        _file("{path: lake/x, query: SELECT * FROM Y}") + "  y: {path: lake/y, query: SELECT 1 FROM clicks}\n"
    )

    pipeline = Pipeline.from_file("shop.yaml")

    assert pipeline.queries() == {"y": ["clicks"], "x": ["y"]}
    assert pipeline.tables["x"].refresh_every == 60.0
    upkeep = pipeline.upkeep_for("x")
    assert upkeep is not None and upkeep.delete_after == "off"


def _file(table: str) -> str:
    return (
        "name: shop\nsources:\n  clicks: {type: queue, brokers: here}\n"
        f"tables:\n  clicks: {{path: lake/clicks, from: clicks}}\n  x: {table}\n"
    )
