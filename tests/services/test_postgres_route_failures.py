"""A table of a route that cannot be written stops alone, and loses nothing until it can be."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from lakefeed import Pipeline, TableError
from lakefeed.doctor.services import examine
from lakefeed.reports.verify import verify
from lakefeed.sources.postgres import client as postgres_client
from lakefeed.watch.health import reasons
from support.postgres import PostgresServer
from support.postgres_copies import (
    EVERY,
    ITEMS,
    LOG,
    ORDERS,
    ROUTE,
    agrees,
    copies,
    eventually,
    running,
)
from support.postgres_shop import PostgresShop
from support.processes import wait_until

LIMITED = "dead_letters: {stop_above: 10%}"


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    """Two plain tables with a row each."""
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(ORDERS, ITEMS, "INSERT INTO orders VALUES (1, 'a')", "INSERT INTO items VALUES (1, 'x')")
    return shop


def test_tables_that_fail_in_a_run_stop_alone_and_go_on_where_they_were(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_client, "_LOOK_EVERY", 0.3)
    shop.execute(*(ITEMS.replace("items", one) for one in ("many", "clash", "float")))
    with running(shop, ROUTE, EVERY, LIMITED) as state:
        eventually(shop, "orders", "items", "many", "clash", "float")
        shop.execute(
            "ALTER TABLE many ADD d date",
            "INSERT INTO many SELECT i, 'm', 'infinity' FROM generate_series(1, 100) i",
            'ALTER TABLE clash ADD "a b" int, ADD a_b int',
            "INSERT INTO clash VALUES (1, 'c', 2, 3)",
            "ALTER TABLE float ALTER id TYPE float8",
            "INSERT INTO float VALUES (1.5, 'f')",
            "INSERT INTO orders VALUES (2, 'b')",
        )
        eventually(shop, "orders")
        wait_until(lambda: "public.many" in state.view().sources[0].lost, 120, lambda: str(state.view()))
        shop.execute("INSERT INTO orders VALUES (3, 'c')", "INSERT INTO many VALUES (101, 'last', null)")
        eventually(shop, "orders")
        red = "\n".join(reasons(state.view(), Pipeline.from_file(shop.file)))

    assert "copies/public.many: 100 of 100 events (100.0%) would become dead letters" in red
    assert "public.orders" not in red and "public.items" not in red
    assert shop.rows("lake/public.many") == []

    with pytest.raises(TableError, match=r"copies/public\.many: 100 of 101 events"):
        shop.run(ROUTE, EVERY, LIMITED)
    shop.execute("UPDATE items SET v = 'y'")
    shop.run(ROUTE, EVERY)

    agrees(shop, "orders", "items")
    assert shop.table("lake/public.many", "id", "v", "d") == [(101, "last", None)]
    assert len(shop.rows("lake/shop_dead_letters")) == 100
    assert {one["topic"] for one in shop.rows("lake/shop_dead_letters")} == {"public.many"}


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("float8", "1.5", "double cannot be part of a key"),
        ("int[]", "'{1}'", "array<int> cannot be part of a key"),
        ("pair", "(1, 2)", "struct<a: int, b: int> cannot be part of a key"),
    ],
)
def test_a_key_that_no_delta_table_has_is_skipped_and_told(
    shop: PostgresShop, key: str, value: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    shop.execute(
        "CREATE TYPE pair AS (a int, b int)",
        f"CREATE TABLE odd (id {key} PRIMARY KEY, v text)",
        f"INSERT INTO odd VALUES ({value}, 'o')",
    )
    for _ in range(2):
        shop.run(f"{ROUTE}\n{LOG}", EVERY)
        shop.execute("UPDATE orders SET v = v || 'b'")

    agrees(shop, "items")
    assert copies(shop) == ["items", "orders"] and copies(shop, "log") == ["items", "odd", "orders"]
    told = [one.getMessage() for one in caplog.records if "cannot be part of a key" in one.getMessage()]
    assert len(told) == 2
    assert f"table copies skips public.odd: column id of the key of public.odd: {why}" in told[0]
    doctor = [one.text for one in examine(Pipeline.from_file(shop.file)) if why in one.text]
    assert doctor == [f"skips public.odd: column id of the key of public.odd: {why}."]
    if key == "float8":
        # The type of a key may be declared.
        one = "odd: {path: odd, from: db, mode: upsert, streams: public.odd, schema: {id: string, v: string}}"
        shop.run(f"  {one}", EVERY)
        assert shop.table("odd", "id", "v") == [("1.5", "o")]


def test_a_log_whose_table_has_a_column_before_of_its_own_stops_alone(shop: PostgresShop) -> None:
    shop.run(LOG, f"{EVERY}, before: true")
    shop.execute("ALTER TABLE items ADD _before int", "UPDATE items SET v = 'y'", "UPDATE orders SET v = 'b'")

    for _ in range(2):
        with pytest.raises(TableError, match=r"public\.items has a column _before"):
            shop.run(LOG, f"{EVERY}, before: true")
    assert shop.table("log/public.orders", "_op", "v") == [("read", "a"), ("update", "b")]

    # Both remedies that it names; what was changed meanwhile is there.
    shop.execute("UPDATE items SET v = 'z'")
    shop.run(LOG, EVERY)
    assert shop.table("log/public.items", "_op", "v") == [("read", "x"), ("update", "y"), ("update", "z")]


def test_a_snapshot_of_one_table_that_is_refused_leaves_the_others_alone(shop: PostgresShop) -> None:
    shop.execute(
        "CREATE TABLE days (id int PRIMARY KEY, d date)", "INSERT INTO days VALUES (1, '2026-01-01')"
    )
    options = f"{EVERY}, on_recreate: snapshot"
    shop.run(ROUTE, options)
    shop.execute(
        "DROP TABLE days",
        "CREATE TABLE days (id int PRIMARY KEY, d date)",
        "INSERT INTO days SELECT i, 'infinity' FROM generate_series(1, 30) i",
        "INSERT INTO orders VALUES (2, 'b')",
    )

    for _ in range(2):
        with pytest.raises(TableError, match=r"copies/public\.days: 30 of 30 rows of the new snapshot"):
            shop.run(ROUTE, options)
        agrees(shop, "orders", "items")
        shop.execute("UPDATE orders SET v = v || 'b'")
    assert shop.table("lake/public.days", "id") == [(1,)]

    shop.execute("UPDATE days SET d = '2026-02-02'", "DELETE FROM days WHERE id > 3")
    shop.run(ROUTE, options)
    assert shop.table("lake/public.days", "id") == [(1,), (2,), (3,)]
    agrees(shop, "orders", "items")


def test_a_delta_table_that_cannot_be_opened_stops_alone_and_keeps_its_changes(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    shop.run(ROUTE, EVERY)
    first = shop.folder / "lake/public.items/_delta_log/00000000000000000000.json"
    content = first.read_bytes()
    first.write_bytes(b"{")
    for round_ in range(2):
        shop.execute("UPDATE items SET v = v || 'y'", "UPDATE orders SET v = v || 'b'")
        with pytest.raises(TableError, match=r"public\.items"):
            shop.run(ROUTE, EVERY)
        agrees(shop, "orders")
        assert shop.table("lake/public.orders", "v") == [("a" + (round_ + 1) * "b",)]

    first.write_bytes(content)
    shop.run(ROUTE, EVERY)
    agrees(shop, "orders", "items")
    assert verify(Pipeline.from_file(shop.file)).sound
