"""What another session does to one table holds up that table alone: locks, transactions, DROP and REVOKE."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.reprocess.snapshot import reading_anew
from lakefeed.sources.postgres import client as postgres_client
from lakefeed.sources.postgres import read as postgres_read
from support.postgres import PostgresServer
from support.postgres_copies import EVERY, ITEMS, ORDERS, ROUTE, agrees, copies, eventually, running
from support.postgres_shop import PostgresShop
from support.processes import wait_until

LATER = ITEMS.replace("items", "later")


@pytest.fixture
def shop(
    postgres: PostgresServer, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> PostgresShop:
    monkeypatch.setattr(postgres_client, "_LOOK_EVERY", 0.3)
    return made(PostgresShop(postgres, database, tmp_path))


def made(shop: PostgresShop) -> PostgresShop:
    shop.execute(ORDERS, ITEMS, "INSERT INTO orders VALUES (1, 'a')", "INSERT INTO items VALUES (1, 'x')")
    return shop


@contextmanager
def holding(shop: PostgresShop, *statements: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that stays open."""
    with closing(shop.server.connect(shop.database, autocommit=False, application_name="till")) as connection:
        for one in statements:
            connection.execute(one.encode())
        yield connection


@pytest.mark.parametrize("mode", ["SHARE UPDATE EXCLUSIVE", "ACCESS EXCLUSIVE"])
def test_a_new_table_that_is_locked_waits_alone_and_says_for_whom(shop: PostgresShop, mode: str) -> None:
    """VACUUM, CREATE INDEX CONCURRENTLY and ALTER TABLE have such locks."""
    with running(shop, ROUTE, EVERY) as state:

        def shown() -> str:
            return state.view().sources[0].skipped.get("public.later", "")

        eventually(shop, "orders", "items")
        shop.execute(LATER, "INSERT INTO later VALUES (1, 'l')")
        with holding(shop, f"LOCK TABLE later IN {mode} MODE") as other:
            wait_until(lambda: "is locked by another transaction" in shown(), 120, shown)
            for at in (2, 3):
                shop.execute(f"INSERT INTO orders VALUES ({at}, 'b')")
                eventually(shop, "orders")
            assert (
                f"It waits for the transaction of process {other.info.backend_pid} (postgres, till)"
                in shown()
            )
            assert not state.view().sources[0].trouble and "later" not in copies(shop)
            shop.execute(shown().partition("To end it: ")[2])
        eventually(shop, "later")
        wait_until(lambda: not shown(), 120, shown)


@pytest.mark.parametrize("version", [None, "17"])
def test_an_open_alter_table_holds_up_no_other_table(
    version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of one that is read, nor of one that was never analyzed, a partition, or one with a filter."""
    monkeypatch.setattr(postgres_client, "_LOOK_EVERY", 0.3)
    with PostgresServer(version=version) as server, server.database() as database:
        shop = made(PostgresShop(server, database, tmp_path))
        shop.execute(
            LATER,
            "CREATE TABLE parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
            "CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (100)",
            "CREATE TABLE low (id int PRIMARY KEY, v text, g int GENERATED ALWAYS AS (id + 1) STORED)",
            "INSERT INTO low VALUES (1, 's'), (20, 't')",
            "CREATE PUBLICATION mine FOR TABLE orders, items, later, parts, low WHERE (id < 10) "
            "WITH (publish_via_partition_root = true)",
        )
        every = f"{EVERY}, publication: mine"
        shop.run(ROUTE, every)
        altered = ("ALTER TABLE later ADD w int", "ALTER TABLE low ADD w int")
        locked = "LOCK TABLE part IN ACCESS EXCLUSIVE MODE"
        # A start, and a run that goes on.
        with holding(shop, *altered, locked), running(shop, ROUTE, every) as state:
            for at in (2, 3):
                shop.execute(f"INSERT INTO orders VALUES ({at}, 'b')")
                eventually(shop, "orders")
            assert not state.view().sources[0].trouble
        shop.execute("INSERT INTO low (id, v) VALUES (2, 's')", "INSERT INTO later VALUES (1, 'm')")
        shop.run(ROUTE, every)

        agrees(shop, "later")
        assert shop.table("lake/public.low", "id", "v") == [(1, "s"), (2, "s")]


def test_a_restart_with_a_new_table_and_an_open_transaction_holds_up_that_table_alone(
    shop: PostgresShop,
) -> None:
    shop.execute(ITEMS.replace("items", "busy"))
    shop.run(ROUTE, EVERY)
    with holding(shop, "INSERT INTO busy VALUES (1, 'open')") as other:
        shop.execute(LATER, "INSERT INTO later VALUES (1, 'l')", "INSERT INTO orders VALUES (2, 'b')")
        with running(shop, ROUTE, EVERY) as state:
            eventually(shop, "orders")

            def shown() -> str:
                return state.view().sources[0].skipped.get("public.later", "")

            wait_until(lambda: "is read when transactions" in shown(), 120, shown)
            assert f"process {other.info.backend_pid} (postgres, till)" in shown()
            assert shop.rows("lake/public.later") == [] and not state.view().sources[0].trouble
            other.commit()
            eventually(shop, "later", "busy")
            wait_until(lambda: not shown(), 120, shown)


def restrict(shop: PostgresShop, privileges: str) -> str:
    """Run as a role that may read what is granted, through a publication of all tables."""
    role = f"reader_{shop.database}"
    shop.execute(
        f"CREATE ROLE {role} LOGIN REPLICATION",
        "CREATE PUBLICATION every FOR ALL TABLES WITH (publish_via_partition_root = true)",
        *(one.format(role=role) for one in privileges.split("; ")),
    )
    shop.connection = shop.server.dsn(shop.database, role)
    return role


def remove(shop: PostgresShop, role: str) -> None:
    shop.execute(f"DROP OWNED BY {role}")
    shop.server.execute(f"DROP ROLE {role}")


@pytest.mark.parametrize("moment", ["publish", "plan_part"])
def test_a_table_that_is_dropped_between_a_look_and_its_reading_stops_nothing(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    original, calls = getattr(postgres_client, moment), 0

    def drop(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls in (1, 3):
            shop.execute("DROP TABLE IF EXISTS scratch")
        return original(*given)

    monkeypatch.setattr(postgres_client, moment, drop)
    shop.execute("CREATE TABLE scratch (id int PRIMARY KEY)")
    run_inline(Pipeline.from_file(shop.write(ROUTE, EVERY)))
    agrees(shop, "orders", "items")
    assert copies(shop) == ["items", "orders"]

    with running(shop, ROUTE, EVERY):
        calls = 2
        shop.execute("CREATE TABLE scratch (id int PRIMARY KEY)", "INSERT INTO scratch VALUES (1)")
        wait_until(lambda: calls > 2, 120, lambda: "nothing looks")
        shop.execute("UPDATE orders SET v = 'b'")
        eventually(shop, "orders")


@pytest.mark.parametrize("moment", ["plan_part", "read_rows"])
def test_a_right_that_is_taken_away_between_a_look_and_its_reading_stops_nothing(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    module: Any = postgres_client if moment == "plan_part" else postgres_read
    original, calls = getattr(module, moment), 0
    role = restrict(shop, "GRANT SELECT ON orders, items TO {role}")

    def revoke(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            shop.execute(f"REVOKE SELECT ON items FROM {role}")
        return original(*given)

    try:
        shop.run(ROUTE, f"{EVERY}, publication: every")
        shop.execute("UPDATE orders SET v = 'b'")
        again, _ = reading_anew(Pipeline.from_file(shop.file), "db", ["public.items"])
        monkeypatch.setattr(module, moment, revoke)
        run_inline(again)
        agrees(shop, "orders", "items")
    finally:
        remove(shop, role)


def test_a_table_of_which_some_columns_may_be_read_is_skipped_unless_these_are_published(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    role = restrict(shop, "GRANT SELECT ON orders TO {role}; GRANT SELECT (id) ON items TO {role}")
    every = f"{EVERY}, publication: every"
    try:
        shop.run(ROUTE, every)
        assert copies(shop) == ["orders"]
        (told,) = [one for one in caplog.messages if "has columns that the role" in one]
        assert f"public.items has columns that the role {role} may not read: v. It is skipped. " in told
        shop.execute(told.partition("skipped. ")[2], "UPDATE orders SET v = 'b'")
        shop.run(ROUTE, every)
        agrees(shop, "orders", "items")

        shop.execute(
            f"REVOKE SELECT ON items FROM {role}",
            f"GRANT SELECT (id) ON items TO {role}",
            "CREATE PUBLICATION narrow FOR TABLE orders, items (id)",
        )
        shop.run(ROUTE.replace("lake", "narrow"), f"{EVERY}, publication: narrow, slot: {role}")
        assert [{*row} & {"id", "v"} for row in shop.rows("narrow/public.items")] == [{"id"}]
    finally:
        remove(shop, role)
