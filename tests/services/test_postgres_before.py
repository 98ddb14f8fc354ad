"""`before: true`: a log has the rows as they were, and a table without a key can be made of it again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefeed import LakefeedError, Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.reprocess.snapshot import reading_anew
from lakefeed.sources import source_of
from support.postgres import PostgresServer
from support.postgres_shop import LARGE, PostgresShop

ROOT = Path(__file__).parents[2]
OPTIONS = 'tables: "public.*", before: true'
LOG = "  visits: {path: visits, from: db, streams: public.visits}"
VISITS = "CREATE TABLE visits (page text, visitor int, seen date)"


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    return PostgresShop(postgres, database, tmp_path)


def rebuilt(shop: PostgresShop) -> list[tuple[Any, ...]]:
    """The table that the query of docs/sources/postgres.md makes of the log."""
    page = (ROOT / "docs" / "sources" / "postgres.md").read_text()
    found = re.search(r"```sql\n(WITH emptied.*?)```", page, re.DOTALL)
    assert found is not None
    visits = pa.RecordBatchReader.from_stream(DeltaTable(str(shop.folder / "visits")).scan()).read_all()
    with duckdb.connect() as connection:
        connection.register("visits", visits)
        return sorted(connection.sql(found[1]).fetchall(), key=repr)


def there(shop: PostgresShop) -> list[tuple[Any, ...]]:
    query = "SELECT page, visitor, count(*) FROM visits GROUP BY page, visitor"
    return sorted(shop.query(query), key=repr)


def test_table_without_a_key_is_rebuilt_from_its_log(shop: PostgresShop) -> None:
    shop.execute(
        VISITS,
        "ALTER TABLE visits REPLICA IDENTITY FULL",
        "INSERT INTO visits VALUES ('gone', 1, NULL), ('a', 1, NULL), ('a', 1, NULL), ('b', NULL, NULL)",
    )
    shop.run(LOG, OPTIONS)
    shop.execute(
        # One of two equal rows.
        "UPDATE visits SET page = 'c' WHERE ctid = (SELECT min(ctid) FROM visits WHERE page = 'a')",
        "UPDATE visits SET visitor = 2 WHERE visitor IS NULL",
        "DELETE FROM visits WHERE page = 'gone'",
        f"INSERT INTO visits SELECT {LARGE}, i, NULL FROM generate_series(1, 3) i",
        "UPDATE visits SET visitor = visitor + 10 WHERE length(page) > 100",
        "ALTER TABLE visits ADD city text DEFAULT 'Bern'",
        "UPDATE visits SET city = 'Basel' WHERE page = 'b'",
    )
    shop.run_until_killed("files_written")
    shop.run(LOG, OPTIONS)

    assert rebuilt(shop) == there(shop)
    rows = shop.rows("visits")
    (one,) = [row for row in rows if row["_op"] == "update" and row["city"] == "Basel"]
    assert one["_before"] == {"page": "b", "visitor": 2, "seen": None, "city": "Bern"}
    assert all((row["_before"] is None) == (row["_op"] in ("read", "insert")) for row in rows)
    shop.execute("TRUNCATE visits", "INSERT INTO visits VALUES ('new', 1, NULL), ('new', 1, NULL)")
    shop.run(LOG, OPTIONS)
    assert rebuilt(shop) == there(shop) == [("new", 1, 2)]
    run_inline(reading_anew(Pipeline.from_file(shop.file), "db", ["public.visits"])[0])
    assert rebuilt(shop) == there(shop)


def test_old_rows_of_tables_with_a_key_and_values_that_no_column_holds(shop: PostgresShop) -> None:
    shop.execute(
        "CREATE TABLE plain (id int PRIMARY KEY, v text, d date)",
        "CREATE TABLE whole (id int PRIMARY KEY, v text, d date)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "INSERT INTO plain VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO whole VALUES (1, 'a', NULL), (2, 'b', NULL), (3, 'c', 'infinity')",
    )
    tables = """\
  plain: {path: plain, from: db, streams: public.plain}
  whole: {path: whole, from: db, streams: public.whole}
  copy: {path: copy, from: db, streams: public.whole, mode: upsert}"""
    shop.run(tables, OPTIONS)
    for name in ("plain", "whole"):
        shop.execute(
            f"UPDATE {name} SET v = 'x' WHERE id = 1",
            f"UPDATE {name} SET id = 20 WHERE id = 2",
            f"DELETE FROM {name} WHERE id = 1",
        )
    shop.execute("UPDATE whole SET d = '2026-01-01' WHERE id = 3")
    shop.run(tables, OPTIONS)

    assert all(row["_before"] is None for row in shop.rows("plain"))
    found = [
        (row["_op"], row["id"], row["_before"] and row["_before"]["v"])
        for row in sorted(shop.rows("whole"), key=lambda row: (row["_lsn"], row["_ordinal"]))
    ]
    assert found[2:] == [
        ("update", 1, "a"),
        ("delete", 2, "b"),
        ("insert", 20, None),
        ("delete", 1, "x"),
    ]
    # What the row was cannot be held, so the change is a dead letter of the log, and of no copy.
    dead = [row["error"] for row in shop.rows("shop_dead_letters") if row["table"] == "whole"]
    assert sorted(dead) == [
        '_before: expected struct<id: int, v: string, d: date>, got "infinity", which it cannot hold',
        'd: expected date, got "infinity", which it cannot hold',
    ]
    assert "_before" not in shop.rows("copy")[0]
    assert shop.table("copy", "id", "v") == [(3, "c"), (20, "b")]
    with_findings = source_of(Pipeline.from_file(shop.file), "db").client("shop", "db")
    warned = [one for one in with_findings.findings() if "_before" in one.text]
    assert [(one.stream, one.remedy) for one in warned] == [
        ("public.plain", 'ALTER TABLE "public"."plain" REPLICA IDENTITY FULL;')
    ]
    with_findings.close()


def test_table_with_such_a_column_of_its_own_is_refused_alone(shop: PostgresShop) -> None:
    shop.execute(
        VISITS,
        "ALTER TABLE visits REPLICA IDENTITY FULL",
        "INSERT INTO visits VALUES ('a', 1, NULL)",
        "CREATE TABLE own (id int PRIMARY KEY, _before text)",
        "INSERT INTO own VALUES (1, 'x')",
    )
    tables = LOG + "\n  own: {path: own, from: db, streams: public.own}"

    with pytest.raises(LakefeedError, match=r"public\.own has a column _before of its own"):
        shop.run(tables, OPTIONS)

    assert rebuilt(shop) == there(shop)
