"""Dead letters of a snapshot that is read again are there once, wherever its rows have moved meanwhile."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.snapshot import reading_anew
from support.postgres import PostgresServer
from support.postgres_shop import PostgresShop

TABLE = "  orders: {path: orders, from: db, mode: MODE}"
KEYS = {
    "integer": "a int PRIMARY KEY, b text",
    "text": "a int, b text PRIMARY KEY",
    "two columns": "a int, b text, PRIMARY KEY (a, b)",
    "text and integer": "a int, b text, PRIMARY KEY (b, a)",
}


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    return PostgresShop(postgres, database, tmp_path)


def letters(shop: PostgresShop) -> list[bytes]:
    return sorted(row["payload"] for row in shop.rows("shop_dead_letters"))


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("key", KEYS)
def test_a_kill_between_letters_and_rows_doubles_no_letter_of_rows_that_move(
    shop: PostgresShop, key: str, mode: str
) -> None:
    shop.execute(f"CREATE TABLE orders ({KEYS[key]}, due date)")
    shop.execute("INSERT INTO orders SELECT i, 'b' || i, '2026-01-01' FROM generate_series(1, 90) i")
    shop.execute("UPDATE orders SET due = 'infinity' WHERE a % 20 = 0", "ANALYZE orders")
    table, flush = TABLE.replace("MODE", mode), "flush: {rows: 40}"
    shop.write(table, more=flush)

    shop.run_until_killed("letters_committed:1")
    first = letters(shop)
    # To the end of the table, but for one that gets in front of all.
    shop.execute("UPDATE orders SET b = b WHERE a % 3 > 0", "DELETE FROM orders WHERE a = 1", "VACUUM orders")
    shop.execute("INSERT INTO orders VALUES (0, 'b0', '2026-01-01')", "UPDATE orders SET b = b WHERE a > 70")
    shop.run(table, more=flush)

    found = letters(shop)
    assert len(first) >= 1
    assert len(found) == len(set(found)) == 4
    assert set(first) <= set(found)
    there = shop.query("SELECT a FROM orders WHERE due <> 'infinity' ORDER BY a")
    held = shop.table("orders", "a")
    # In a log, rows that were read before the kill have their updates behind them.
    assert (sorted(set(held) - {(1,)}) if mode == "append" else held) == there


def test_a_good_row_with_the_fingerprint_of_a_dead_letter_is_not_taken_for_it(shop: PostgresShop) -> None:
    bad, good = "1,svkzoh,infinity\n", "1,caungcem,2026-01-01\n"
    assert zlib.crc32(bad.encode()) >> 1 == zlib.crc32(good.encode()) >> 1
    shop.execute("CREATE TABLE orders (a int, b text, due date, PRIMARY KEY (a, b))")
    shop.execute("INSERT INTO orders VALUES (1, 'svkzoh', 'infinity'), (1, 'caungcem', '2026-01-01')")
    table = TABLE.replace("MODE", "upsert")
    shop.write(table)

    shop.run_until_killed("letters_committed:1")
    shop.run(table)

    assert shop.table("orders", "a", "b") == [(1, "caungcem")]
    assert len(letters(shop)) == 1


def test_a_dropped_table_of_a_route_is_read_again_and_its_neighbour_keeps_its_dead_letters(
    shop: PostgresShop,
) -> None:
    for name in ("one", "two"):
        shop.execute(f"CREATE TABLE {name} (a int PRIMARY KEY, due date)")
        shop.execute(f"INSERT INTO {name} VALUES (1, '2026-01-01'), (2, 'infinity'), (3, 'infinity')")
    route = '  copies: {route: "{_stream}", from: db, mode: upsert}'
    shop.run(route, "tables: public.*")
    shop.execute(
        "UPDATE one SET due = 'infinity' WHERE a = 1", "UPDATE one SET due = '2026-01-02' WHERE a = 1"
    )
    shop.run(route, "tables: public.*")
    before = len(letters(shop))

    shutil.rmtree(shop.folder / "public.one")
    shop.execute("UPDATE one SET due = '2026-01-03' WHERE a = 2")
    shop.run(route, "tables: public.*")

    # The change of the row 1 is among the rows that are read again; the row 3 does not fit yet.
    assert before == 5
    assert shop.table("public.one", "a") == [(1,), (2,)]
    assert shop.table("public.two", "a") == [(1,)]
    found = sorted((row["topic"], row["key"]) for row in shop.rows("shop_dead_letters"))
    assert found == [("public.one", b'{"a":3}'), ("public.two", b'{"a":2}'), ("public.two", b'{"a":3}')]


@pytest.mark.parametrize(
    "table", [TABLE.replace("MODE", "upsert"), "  copies: {route: '{_stream}', from: db, mode: upsert}"]
)
def test_dead_letters_of_a_table_of_the_database_that_is_gone_hide_no_row(
    shop: PostgresShop, table: str
) -> None:
    statements = [
        "CREATE TABLE orders (a int PRIMARY KEY, due date)",
        "INSERT INTO orders SELECT i, CASE WHEN i < 4 THEN 'infinity' ELSE date '2026-01-01' END "
        "FROM generate_series(1, 5) i",
    ]
    shop.execute(*statements)
    shop.run(table)
    path = "orders" if (shop.folder / "orders").exists() else "public.orders"
    shutil.rmtree(shop.folder / path)
    shop.execute("DROP TABLE orders", *statements)

    shop.run(table, "tables: public.orders, infinity: max")

    assert shop.table(path, "a") == [(1,), (2,), (3,), (4,), (5,)]
    assert len(letters(shop)) == 3


def test_a_letter_of_sql_that_only_spark_has_tells_the_key_of_its_row(
    shop: PostgresShop, spark: object
) -> None:
    shop.execute(
        "CREATE TABLE orders (a int PRIMARY KEY, b text)", "INSERT INTO orders VALUES (1, 'x'), (2, 'y')"
    )
    rule = "  orders: {path: orders, from: db, mode: upsert, expect: {heard: \"soundex(b) = 'X000'\"}}"
    pipeline = Pipeline.from_file(shop.write(rule))
    pipeline.run(once=True)
    (letter,) = shop.rows("shop_dead_letters")

    shop.write(rule.replace("X000", "Y000"))
    (report,) = replay(Pipeline.from_file(shop.file), DeadLetterFilter())

    assert (letter["key"], report.rows) == (b'{"a":2}', 1)
    assert shop.table("orders", "a", "b") == [(1, "x"), (2, "y")]


def test_letters_of_rows_that_are_read_anew_as_they_were_are_no_finding(shop: PostgresShop) -> None:
    shop.execute(
        "CREATE TABLE days (id int PRIMARY KEY, day date)",
        "INSERT INTO days VALUES (1, 'infinity'), (2, now())",
    )
    tables = (
        "  days: {path: days, from: db, mode: upsert}\n  all: {route: '{_stream}', from: db, mode: upsert}"
    )
    shop.run(tables, "tables: public.days", "dead_letters: {path: letters, stop_above: 100%}")
    pipeline = Pipeline.from_file(shop.file)

    run_inline(reading_anew(pipeline, "db", ["public.days"])[0])

    assert {row["key"] for row in shop.rows("letters")} == {b'{"id":1}'}
    assert verify(pipeline, deep=True).sound


def test_a_letter_of_a_change_that_a_snapshot_goes_past_is_no_finding(shop: PostgresShop) -> None:
    shop.execute("CREATE TABLE days (id int PRIMARY KEY, day date)", "INSERT INTO days VALUES (1, now())")
    shop.run("  days: {path: days, from: db, mode: upsert}", "tables: [public.days]")
    shop.execute("INSERT INTO days VALUES (2, 'infinity')")
    shop.run_until_killed("letters_committed:1")
    pipeline = Pipeline.from_file(shop.file)
    assert len(letters(shop)) == 1 and shop.table("days", "id") == [(1,)]

    shop.execute("UPDATE days SET day = '2026-01-01'")
    run_inline(reading_anew(pipeline, "db", ["public.days"])[0])

    assert shop.table("days", "id") == [(1,), (2,)]
    assert verify(pipeline, deep=True).sound
    # A letter that is missing is one.
    shop.execute("INSERT INTO days VALUES (3, 'infinity')")
    run_inline(pipeline)
    assert verify(pipeline, deep=True).sound
    shutil.rmtree(shop.folder / "shop_dead_letters")
    assert not verify(pipeline, deep=True).sound
