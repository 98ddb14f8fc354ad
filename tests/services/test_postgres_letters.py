"""Dead letters of a snapshot that is read again are there once, wherever its rows have moved meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.reprocess.replay import replay
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
