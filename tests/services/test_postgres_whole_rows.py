"""`keys: all`: a copy of a table without a key, in which equal rows are counted."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from lakefeed import LakefeedError, Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.snapshot import reading_anew
from support.postgres import PostgresServer
from support.postgres_shop import LARGE, PostgresShop

OPTIONS = 'tables: "public.*"'
COPIES = """\
  visits: {path: visits, from: db, streams: public.visits, mode: upsert, keys: all}
  merged: {path: merged, from: db, streams: public.visits, mode: upsert, keys: all, updates: merge_on_read,
           rename: {text: note}}
  log: {path: log, from: db, streams: public.visits}
  orders: {path: orders, from: db, streams: public.orders, mode: upsert}"""
MORE = "flush: {rows: 3}"


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(
        "CREATE TABLE visits (page text, visitor int, share float8, text text, day date)",
        "ALTER TABLE visits REPLICA IDENTITY FULL",
        "ALTER TABLE visits ALTER text SET STORAGE EXTERNAL",
        "CREATE TABLE orders (id int PRIMARY KEY, page text)",
    )
    return shop


def agree(shop: PostgresShop) -> None:
    names = ("page", "visitor", "share", "text")
    there = Counter(map(repr, shop.query(f"SELECT {', '.join(names)} FROM visits")))
    for path, text in (("visits", "text"), ("merged", "note")):
        found = Counter[str]()
        for row in shop.rows(path):
            assert row["_count"] > 0
            found[repr((row["page"], row["visitor"], row["share"], row[text]))] += row["_count"]
        assert found == there, path
    logged = Counter[str]()
    emptied = [(row["_lsn"], row["_ordinal"]) for row in shop.rows("log") if row["_op"] == "truncate"]
    for row in shop.rows("log"):
        if (row["_lsn"], row["_ordinal"]) > max(emptied, default=(0, 0)):
            logged[repr(tuple(row[name] for name in names))] += row["_count"]
    assert +logged == there


def read_anew(shop: PostgresShop) -> None:
    run_inline(reading_anew(Pipeline.from_file(shop.file), "db", ["public.visits"])[0])
    assert verify(Pipeline.from_file(shop.file)).sound


def test_equal_rows_are_counted_through_changes_kills_and_snapshots(shop: PostgresShop) -> None:
    shop.execute(
        "INSERT INTO visits VALUES ('gone', 1, 0.5), ('a', 1, NULL), ('a', 1, NULL), ('b', NULL, 'NaN')",
        "INSERT INTO orders VALUES (1, 'a')",
    )
    shop.run(COPIES, OPTIONS, MORE)
    agree(shop)
    shop.execute(
        # One of two equal rows, and one that becomes equal to another one.
        "UPDATE visits SET page = 'c' WHERE ctid = (SELECT min(ctid) FROM visits WHERE page = 'a')",
        "UPDATE visits SET page = 'a', visitor = 1, share = NULL WHERE page = 'gone'",
        "UPDATE visits SET visitor = 2 WHERE visitor IS NULL",
        f"INSERT INTO visits SELECT 'large', i, NULL, {LARGE} FROM generate_series(1, 3) i",
        "UPDATE visits SET visitor = 7 WHERE page = 'large'",
        "UPDATE visits SET page = page",
        "DELETE FROM visits WHERE ctid = (SELECT min(ctid) FROM visits WHERE page = 'large')",
        "UPDATE orders SET page = 'b'",
    )
    shop.run_until_killed("table_committed:2")
    shop.run(COPIES, OPTIONS, MORE)
    agree(shop)
    assert shop.table("orders", "id", "page") == [(1, "b")]
    shop.execute("ALTER TABLE visits ADD city text", "UPDATE visits SET city = 'Bern' WHERE page = 'a'")
    shop.run(COPIES, OPTIONS, MORE)
    agree(shop)

    shop.execute("TRUNCATE visits", "INSERT INTO visits VALUES ('new', 1), ('new', 1), ('once', 1)")
    shop.execute("DELETE FROM visits WHERE page = 'once'")
    shop.run(COPIES, OPTIONS, MORE)
    agree(shop)
    assert [(row["page"], row["_count"]) for row in shop.rows("visits")] == [("new", 2)]
    read_anew(shop)
    agree(shop)
    shop.execute("DELETE FROM visits")
    shop.run(COPIES, OPTIONS, MORE)
    assert shop.rows("visits") == []


def test_a_row_that_the_copy_does_not_have_stops_it_until_the_printed_snapshot(shop: PostgresShop) -> None:
    shop.execute("INSERT INTO visits VALUES ('a', 1), ('b', 1)")
    shop.run(COPIES, OPTIONS, MORE)
    # Each row has another value by now, of which no change tells.
    shop.execute("ALTER TABLE visits ADD city text DEFAULT 'Bern'", "DELETE FROM visits WHERE page = 'a'")

    with pytest.raises(
        LakefeedError, match=f"snapshot {re.escape(str(shop.file))} --source db --stream public"
    ):
        shop.run(COPIES, OPTIONS, MORE)

    assert len(shop.rows("visits")) == 2
    read_anew(shop)
    agree(shop)
    shop.execute("UPDATE visits SET page = 'c'")
    shop.run(COPIES, OPTIONS, MORE)
    agree(shop)


def test_rows_that_no_column_holds_are_dead_letters_that_a_replay_leaves_to_a_snapshot(
    shop: PostgresShop,
) -> None:
    tables = COPIES.partition("\n")[0]
    shop.execute("INSERT INTO visits VALUES ('a', 1, 1, NULL, NULL), ('odd', 1, 1, NULL, 'infinity')")
    shop.run(tables, OPTIONS)
    shop.execute(
        "UPDATE visits SET day = '2026-11-19' WHERE page = 'odd'",
        "INSERT INTO visits VALUES ('late', 1, 1, NULL, 'infinity')",
    )
    shop.run(tables, OPTIONS)
    assert shop.table("visits", "page", "_count") == [("a", 1), ("odd", 1)]

    (report,) = replay(Pipeline.from_file(shop.file), DeadLetterFilter())

    assert report.rows == 0
    assert "lakefeed snapshot" in report.again[0].example
    shop.run(tables, OPTIONS + ", infinity: max")
    run_inline(reading_anew(Pipeline.from_file(shop.file), "db", ["public.visits"])[0])
    assert shop.table("visits", "page", "_count") == [("a", 1), ("late", 1), ("odd", 1)]


def test_a_table_whose_changes_do_not_have_the_old_row_is_refused_with_the_statement(
    shop: PostgresShop,
) -> None:
    tables = "  orders: {path: orders, from: db, streams: public.orders, mode: upsert, keys: all}"
    with pytest.raises(LakefeedError, match=r"ALTER TABLE public\.orders REPLICA IDENTITY FULL"):
        shop.run(tables, "tables: public.orders")
    shop.execute("ALTER TABLE orders REPLICA IDENTITY FULL", "INSERT INTO orders VALUES (1, 'a')")
    shop.run(tables, "tables: public.orders")
    shop.execute("UPDATE orders SET page = 'b'")
    shop.run(tables, "tables: public.orders")
    assert shop.table("orders", "id", "page", "_count") == [(1, "b", 1)]
    shop.execute("ALTER TABLE orders REPLICA IDENTITY DEFAULT", "UPDATE orders SET page = 'c'")
    with pytest.raises(LakefeedError, match="REPLICA IDENTITY FULL"):
        shop.run(tables, "tables: public.orders")
    assert shop.table("orders", "id", "page", "_count") == [(1, "b", 1)]


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("mode: history, keys: all", "`all` has an effect only with `mode: upsert`"),
        ('mode: upsert, keys: all, where: "visitor > 1"', "where: does not go with `keys: all`"),
        ('mode: upsert, keys: all, expect: {few: "visitor > 1"}', "expect: does not go with `keys: all`"),
    ],
)
def test_what_does_not_count_every_row_is_refused(tmp_path: Path, table: str, told: str) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "name: shop\nsources: {db: {type: postgres, host: db, tables: public.visits}}\n"
        f"tables:\n  visits: {{path: visits, from: db, {table}}}\n"
    )
    with pytest.raises(LakefeedError, match=told.replace("(", r"\(")):
        Pipeline.from_file(file)
