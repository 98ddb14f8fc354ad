"""Tables of queries on a real Spark with Delta, run as a user runs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.reports.verify import verify
from support.jars import delta_jars
from support.lakefeed import run

SHOP = """\
name: shop
sources:
  clicks: {{type: generate, rows: {rows}}}
tables:
  events: {{path: events, from: clicks, schema: {{event_id: long, event_time: timestamp, event_type: string,
    brand: string, price: "decimal(10,2)"}}, evolve: ignore}}
  brands:
    path: brands
    partition_by: [day(last)]
    sort_by: [brand]
    query: |
      WITH sold AS (SELECT * FROM events WHERE event_type = 'purchase')
      SELECT brand, count(*) AS sold, sum(price) AS revenue, max(event_time) AS last, {more}
             collect_set(event_type) AS types
      FROM sold GROUP BY brand
  best:
    path: best
    query: SELECT b.brand, b.sold FROM brands b WHERE sold = (SELECT max(sold) FROM Brands)
{tables}
spark:
  conf:
    spark.jars: "{jars}"
"""


@pytest.fixture
def shop(tmp_path: Path) -> Callable[..., Path]:
    def write(rows: int, more: str = "", tables: str = "") -> Path:
        file = tmp_path / "shop.yaml"
        jars = ",".join(map(str, delta_jars()))
        file.write_text(SHOP.format(rows=rows, more=more, tables=tables, jars=jars))
        return file

    return write


@pytest.mark.timeout(600)
def test_queries_follow_the_events_over_a_kill_and_those_that_fail_are_told_with_the_words_of_spark(
    shop: Callable[..., Path],
) -> None:
    file = shop(3000)

    killed, _, said = run(
        "run", str(file), "--once", env={"LAKEFEED_KILL_AT": "refresh_written:2"}, timeout=300
    )
    versions = _versions(file.parent)

    assert killed == -9, said
    assert versions[1:] == [1, 0], "the first query is committed, the second has no rows yet"
    assert _run(file)[0] == 0
    assert _versions(file.parent) == [versions[0], 1, 1], "what is up to date is not run again"
    _agrees(file.parent, 3000)
    assert verify(Pipeline.from_file(file)).sound
    broken = '  broken: {path: broken, query: "SELECT CAST(brand AS int) AS b FROM events"}\n'
    broken += "  lost: {path: lost, query: SELECT nope FROM events}\n"
    broken += "  odd: {path: odd, query: SELECT event_id FROM events WHERE (}\n"
    shop(4000, more="min(price) AS cheapest,", tables=broken)

    planned, told, _ = run("plan", str(file), timeout=300)
    code, said = _run(file)

    assert (planned, code) == (1, 1)
    assert "reads events: version 1, not read yet\n  the query replaces all rows" in told
    assert "+ cheapest decimal(10,2)" in told
    assert "lost: would stop: table lost: " in told and "name `nope` cannot be resolved" in told
    assert "odd: would stop: table odd: " in told and "PARSE_SYNTAX_ERROR" in told
    assert "table broken: the query failed: [CAST_INVALID_INPUT]" in said
    assert "table lost: the query failed: [UNRESOLVED_COLUMN" in said
    assert "(line 1, position 7 of the query)" in said
    assert "table odd stopped: " in said and "PARSE_SYNTAX_ERROR" in said
    _agrees(file.parent, 4000)
    assert DeltaTable(file.parent / "brands").to_pyarrow_table()["cheapest"].null_count == 0


def _run(file: Path) -> tuple[int, str]:
    code, _, said = run("run", str(file), "--once", timeout=300)
    return code, said


def _versions(folder: Path) -> list[int]:
    return [DeltaTable(folder / name).version() for name in ("events", "brands", "best")]


def _agrees(folder: Path, events: int) -> None:
    """Gold is what DuckDB makes of the events."""
    db = duckdb.connect()
    for name in ("events", "brands", "best"):
        db.register(name, DeltaTable(folder / name).to_pyarrow_table())
    assert db.sql("SELECT count(*) FROM events").fetchall() == [(events,)]
    made = "SELECT brand, sold, revenue, last FROM brands ORDER BY brand"
    wanted = """
        SELECT brand, count(*), sum(price), max(event_time) FROM events
        WHERE event_type = 'purchase' GROUP BY brand ORDER BY brand
    """
    assert db.sql(made).fetchall() == db.sql(wanted).fetchall() != []
    best = "SELECT brand, sold FROM brands WHERE sold = (SELECT max(sold) FROM brands) ORDER BY 1"
    assert db.sql("FROM best ORDER BY 1").fetchall() == db.sql(best).fetchall()
