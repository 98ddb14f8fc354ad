"""Columns of a Postgres table that come, go and change, and what its Delta table makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefeed.engine import evolution
from support.postgres import PostgresServer
from support.postgres_shop import APPEND, ORDERS, UPSERT, PostgresShop


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(ORDERS, "INSERT INTO orders SELECT i, 'c', i, 'n' FROM generate_series(1, 5) i")
    return shop


SIZE = "ALTER TABLE orders ADD size int DEFAULT 5"
ADDED = f"""{SIZE}, ADD label text DEFAULT 'it''s', ADD price numeric(8,2) DEFAULT 1.5,
    ADD at timestamptz DEFAULT '2026-11-17 10:00+00', ADD day date DEFAULT '2026-01-01',
    ADD ok bool DEFAULT true
"""
ALL = "id, customer, total, note, size, label, price, at, day, ok"
MERGED = UPSERT.replace("upsert", "upsert, updates: merge_on_read")


@pytest.mark.parametrize("tables", [UPSERT, MERGED], ids=["copy_on_write", "merge_on_read"])
def test_rows_from_before_a_column_have_its_default_in_an_upsert_table(
    shop: PostgresShop, tables: str
) -> None:
    """Also those that change, come or go before the statement and in one batch with it."""
    shop.run(tables)
    # In files whose deletion vectors leave rows out, where there are such.
    shop.execute("UPDATE orders SET total = 11 WHERE id = 1", "INSERT INTO orders VALUES (9, 'nine', 9, 'n')")
    shop.run(tables)
    shop.execute(
        "UPDATE orders SET total = 20 WHERE id = 2",
        "INSERT INTO orders VALUES (6, 'six', 6, 'n')",
        "DELETE FROM orders WHERE id = 5",
        ADDED,
        "INSERT INTO orders VALUES (7, 'seven', 7, 'n', NULL, NULL)",
        "UPDATE orders SET size = NULL WHERE id = 3",
    )
    shop.run(tables)
    shop.agrees(ALL)
    shop.execute("UPDATE orders SET size = NULL WHERE id = 1", "UPDATE orders SET total = 40 WHERE id = 4")
    shop.run(tables)

    shop.agrees(ALL)


@pytest.mark.parametrize("tables", [UPSERT, MERGED], ids=["copy_on_write", "merge_on_read"])
def test_a_kill_between_the_new_column_and_its_values_is_made_good(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch, tables: str
) -> None:
    shop.run(tables)
    shop.execute(SIZE, "INSERT INTO orders VALUES (6, 'six', 6, 'n', 1)")

    def killed(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(evolution, "fill", killed)
        shop.run(tables)
    assert shop.table("orders", "id", "size") == [(number, None) for number in range(1, 6)]

    shop.run(tables)
    shop.agrees("id, size")


def test_a_default_that_the_publication_does_not_have_is_not_filled_in(shop: PostgresShop) -> None:
    shop.execute("CREATE PUBLICATION own FOR TABLE orders (id, customer)")
    shop.run(UPSERT, "publication: own")
    shop.execute(SIZE, "UPDATE orders SET customer = 'x' WHERE id = 1")
    shop.run(UPSERT, "publication: own")

    assert "size" not in shop.rows("orders")[0]


def test_an_append_table_has_no_default_in_rows_that_it_has_already(shop: PostgresShop) -> None:
    shop.run(APPEND)
    shop.execute(SIZE, "INSERT INTO orders VALUES (6, 'six', 6, 'n', 1)")
    shop.run(APPEND)

    assert shop.table("orders", "id", "_op")[-1] == (6, "insert")
    assert [row["size"] for row in shop.rows("orders") if row["_op"] == "read"] == [None] * 5


def test_a_column_that_is_dropped_stays_and_a_renamed_one_is_new(shop: PostgresShop) -> None:
    shop.run(UPSERT)
    shop.execute(
        "ALTER TABLE orders DROP note",
        "ALTER TABLE orders RENAME customer TO client",
        "INSERT INTO orders (id, client, total) VALUES (6, 'six', 6)",
    )
    shop.run(UPSERT)

    assert shop.table("orders", "id", "customer", "client", "note")[-2:] == [
        (5, "c", None, "n"),
        (6, None, "six", None),
    ]


@pytest.mark.parametrize("runs", [True, False], ids=["while it runs", "while it does not run"])
def test_a_type_change_that_rewrites_values_is_told_with_the_command_that_reads_them(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture, runs: bool
) -> None:
    shop.run(UPSERT)
    shop.execute("VACUUM FULL orders", "INSERT INTO orders VALUES (6, 'six', 6, 'n')")
    shop.run(UPSERT)
    assert "written anew" not in caplog.text
    shop.execute("ALTER TABLE orders ALTER total TYPE int USING total + 1")
    if runs:
        shop.execute("INSERT INTO orders VALUES (7, 'seven', 7, 'n')")
    shop.run(UPSERT)
    shop.run(UPSERT)

    told = [one.getMessage() for one in caplog.records if "written anew" in one.getMessage()]
    assert len(told) == 1
    assert "lakefeed snapshot FILE --source db --stream public.orders" in told[0]


def test_a_dead_letter_from_before_its_key_was_renamed_has_no_key_and_stops_nothing(
    shop: PostgresShop,
) -> None:
    table = "  days: {path: days, from: db}"
    shop.execute(
        "CREATE TABLE days (id int PRIMARY KEY, day date)", "INSERT INTO days VALUES (1, '2026-01-01')"
    )
    shop.run(table, "tables: [public.days]")
    shop.execute(
        "INSERT INTO days VALUES (2, 'infinity')",
        "ALTER TABLE days RENAME id TO number",
        "INSERT INTO days VALUES (3, 'infinity'), (4, '2026-01-04')",
    )
    shop.run(table, "tables: [public.days]")

    assert sorted(row["id"] or row["number"] for row in shop.rows("days")) == [1, 4]
    assert sorted((row["key"] or b"").decode() for row in shop.rows("shop_dead_letters")) == [
        "",
        '{"number":3}',
    ]
