"""`snapshot: never` takes changes alone, `snapshot: only` copies the rows, needs no slot, and ends."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.engine.inline import InlineFlow, run_inline
from lakefeed.engine.spark.local_tasks import LocalTasks
from lakefeed.engine.supervisor import Supervisor
from lakefeed.handles.tables import Tables
from lakefeed.reports.plan.plan import plan_run
from support.postgres import PostgresServer
from support.postgres_shop import APPEND, ORDERS, UPSERT, PostgresShop

ONLY = "tables: public.orders, snapshot: only"
NEVER = "tables: public.orders, snapshot: never"


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(ORDERS, "INSERT INTO orders SELECT i, 'c', i, 'n' FROM generate_series(1, 300) i")
    shop.execute("ANALYZE orders")
    return shop


def test_never_has_the_changes_from_the_moment_of_the_slot_and_no_row_of_before(shop: PostgresShop) -> None:
    shop.run(APPEND, NEVER)
    shop.execute("INSERT INTO orders VALUES (301, 'new', 1, 'n')", "UPDATE orders SET total = 0 WHERE id = 1")
    shop.run(APPEND, NEVER)
    shop.execute("DELETE FROM orders WHERE id = 2")
    shop.run(APPEND, NEVER)

    assert shop.table("orders", "id", "_op") == [(1, "update"), (2, "delete"), (301, "insert")]


def test_never_takes_what_a_slot_that_was_there_before_still_has(shop: PostgresShop) -> None:
    shop.execute(
        "CREATE PUBLICATION lakefeed_shop_db FOR TABLE orders",
        "SELECT pg_create_logical_replication_slot('lakefeed_shop_db', 'pgoutput')",
        "INSERT INTO orders VALUES (301, 'between', 1, 'n')",
    )
    shop.run(APPEND, NEVER)

    assert shop.table("orders", "id", "_op") == [(301, "insert")]


def test_only_copies_the_rows_once_and_leaves_nothing_at_the_server(shop: PostgresShop) -> None:
    shop.run(APPEND, ONLY, "flush: {rows: 100}")
    shop.execute("INSERT INTO orders VALUES (301, 'later', 1, 'n')")
    shop.run(APPEND, ONLY)

    assert shop.table("orders", "id", "_op") == [(number, "read") for number in range(1, 301)]
    assert shop.query("SELECT 1 FROM pg_replication_slots WHERE database = current_database()") == []
    assert shop.query("SELECT 1 FROM pg_publication") == []


def test_only_ends_by_itself_without_once(shop: PostgresShop, tmp_path: Path) -> None:
    pipeline = Pipeline.from_file(shop.write(UPSERT, ONLY))
    tables, stop, ended = Tables(pipeline), threading.Event(), threading.Event()
    flow = InlineFlow(tables, "db", LocalTasks(), tmp_path / "state", lambda event: None, once=False)

    def run() -> None:
        Supervisor(pipeline, [flow], lambda event: None, stop).run()
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    over = ended.wait(120)
    stop.set()

    assert over and ended.wait(120)
    shop.agrees()


def test_only_has_the_rows_of_one_moment_however_many_batches_it_takes(shop: PostgresShop) -> None:
    """A key that moves from what was not copied to what was would be lost, and the other way round double."""
    wanted = shop.query("SELECT id, customer, total, note FROM orders ORDER BY id")
    batches = 0

    def meddle(event: object) -> None:
        nonlocal batches
        if type(event).__name__ == "BatchDone":
            batches += 1
            # The first one shows the columns, and is read again.
            if batches > 1:
                moved = f"UPDATE orders SET id = {-batches} WHERE id = {300 - batches}"
                shop.execute(moved, "DELETE FROM orders WHERE id = 250")

    run_inline(Pipeline.from_file(shop.write(UPSERT, ONLY, "flush: {rows: 50}")), meddle)

    assert batches >= 5
    assert shop.table("orders", "id", "customer", "total", "note") == wanted


def test_only_needs_no_right_but_to_read_and_no_logical_wal(tmp_path: Path) -> None:
    with PostgresServer({"wal_level": "replica"}) as server:
        server.execute("CREATE DATABASE shop")
        shop = PostgresShop(server, "shop", tmp_path)
        shop.execute(
            ORDERS,
            "ALTER TABLE orders DROP CONSTRAINT orders_pkey",
            "INSERT INTO orders VALUES (1, 'a', 1, 'n')",
            "CREATE ROLE reader LOGIN",
            "GRANT SELECT ON orders TO reader",
        )
        shop.connection = server.dsn("shop", "reader")

        shop.run(APPEND, ONLY)
        (planned,) = plan_run(Pipeline.from_file(shop.file)).tables

        assert shop.table("orders", "id", "_op") == [(1, "read")]
        assert planned.refused is None and planned.warnings == []
