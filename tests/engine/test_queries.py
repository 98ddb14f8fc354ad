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


def test_queries_follow_the_events_in_order_and_rest_when_there_are_none(shop: Callable[..., Path]) -> None:
    file = shop(3000)
    assert _run(file)[0] == 0
    _agrees(file.parent, 3000)
    versions = _versions(file.parent)

    broken = '  broken: {path: broken, query: "SELECT CAST(brand AS int) AS b FROM events"}\n'
    broken += "  lost: {path: lost, query: SELECT nope FROM events}\n"
    broken += "  odd: {path: odd, query: SELECT event_id FROM events WHERE (}\n"
    code, said = _run(shop(3000, tables=broken))

    assert code == 1
    assert "table broken: the query failed: [CAST_INVALID_INPUT]" in said
    assert "table lost: the query failed: [UNRESOLVED_COLUMN" in said
    assert "(line 1, position 7 of the query)" in said
    assert "table odd stopped: the query failed: [PARSE_SYNTAX_ERROR]" in said
    assert _versions(file.parent) == versions

    assert _run(shop(4000, more="min(price) AS cheapest,"))[0] == 0

    _agrees(file.parent, 4000)
    brands = DeltaTable(file.parent / "brands").to_pyarrow_table()
    assert brands["cheapest"].null_count == 0
    assert verify(Pipeline.from_file(file)).sound


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
