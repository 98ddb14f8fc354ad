"""Values that changes leave out, as the server has them: of the right row, and never of an older one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from lakefeed import GaveUp
from support.postgres import PostgresServer
from support.postgres_shop import LARGE, PostgresShop
from support.processes import wait_until


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    return PostgresShop(postgres, database, tmp_path)


def docs(shop: PostgresShop, path: str) -> list[tuple[object, ...]]:
    """The ends of the large values in a Delta table."""
    return sorted((row["id"], row["st"], row["doc"][-3:]) for row in shop.rows(path))


def letters(shop: PostgresShop) -> list[tuple[str, str]]:
    if not (shop.folder / "shop_dead_letters").exists():
        return []
    return [(row["code"], row["error"]) for row in shop.rows("shop_dead_letters")]


def table(name: str, kind: str = "int", rows: int = 2) -> list[str]:
    """Statements for a table with large values, whose rows do not meet the condition yet."""
    key = "i" if kind == "int" else "'k' || i"
    return [
        f"CREATE TABLE {name} (id {kind} PRIMARY KEY, st text, doc text)",
        f"ALTER TABLE {name} ALTER doc SET STORAGE EXTERNAL",
        f"INSERT INTO {name} SELECT {key}, 'new', {LARGE} || 'own' FROM generate_series(1, {rows}) i",
    ]


def test_a_row_is_asked_for_in_its_own_table_and_not_in_those_that_inherit(shop: PostgresShop) -> None:
    shop.execute(
        'CREATE SCHEMA "a.b"',
        *table('"a.b".parent'),
        'CREATE TABLE "a.b".child () INHERITS ("a.b".parent)',
        f"INSERT INTO \"a.b\".child VALUES (1, 'kid', {LARGE} || 'kid'), (2, 'kid', {LARGE} || 'kid')",
        "CREATE TABLE parts (id int PRIMARY KEY, st text, doc text) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (9)",
        "ALTER TABLE part ALTER doc SET STORAGE EXTERNAL",
        f"INSERT INTO parts VALUES (1, 'new', {LARGE} || 'own')",
        'CREATE PUBLICATION own FOR TABLE ONLY "a.b".parent, parts WITH (publish_via_partition_root = true)',
    )
    tables = "  copies: {route: '{_stream}', from: db, mode: upsert, where: \"st = 'ok'\"}"
    shop.run(tables, "publication: own")
    shop.execute("UPDATE ONLY \"a.b\".parent SET st = 'ok' WHERE id = 1", "UPDATE parts SET st = 'ok'")

    shop.run(tables, "publication: own")

    assert docs(shop, "a.b.parent") == [(1, "ok", "own")]
    assert docs(shop, "public.parts") == [(1, "ok", "own")]


def test_a_table_that_cannot_be_asked_about_refuses_the_change_and_the_others_go_on(
    shop: PostgresShop,
) -> None:
    names = ("relabelled", "retyped", "text", "renamed")
    shop.execute("CREATE TYPE mood AS ENUM ('k1', 'k2')", "CREATE TABLE other (id int PRIMARY KEY)")
    for name in names:
        shop.execute(*table(name, "text"))
    shop.execute(
        "ALTER TABLE relabelled ALTER id TYPE mood USING id::mood",
        "ALTER TABLE text ALTER doc TYPE bytea USING convert_to(doc, 'utf8')",
        "ALTER TABLE text ALTER doc SET STORAGE EXTERNAL",
    )
    where = "mode: upsert, where: \"st = 'ok' AND length(doc) > 9\""
    tables = "\n".join(
        f"  {name}: {{path: {name}, from: db, streams: public.{name}, {where}}}" for name in names
    )
    tables += "\n  other: {path: other, from: db, streams: public.other, mode: upsert}"
    shop.run(tables, "tables: public.*")
    shop.execute(
        *(f"UPDATE {name} SET st = 'ok' WHERE id IN ('k1', 'k2')" for name in names),
        "INSERT INTO other VALUES (1)",
        "ALTER TYPE mood RENAME VALUE 'k1' TO 'k3'",
        "ALTER TABLE retyped ALTER id TYPE int USING substr(id, 2)::int",
        "ALTER TABLE text ALTER doc TYPE text USING 'zz'",
        "ALTER TABLE renamed RENAME doc TO document",
    )

    shop.run(tables, "tables: public.*")

    assert shop.table("other", "id") == [(1,)]
    # Both rows were asked for in one statement, and the key of one of them is no label any more.
    assert [row["id"] for row in shop.rows("relabelled")] == ["k2"]
    found = sorted((row["table"], row["code"], row["key"]) for row in shop.rows("shop_dead_letters"))
    assert found == [
        ("relabelled", "unknown_value", b'{"id":"k1"}'),
        ("renamed", "unknown_value", b'{"id":"k1"}'),
        ("renamed", "unknown_value", b'{"id":"k2"}'),
        ("retyped", "wrong_type", b'{"id":"k1"}'),
        ("retyped", "wrong_type", b'{"id":"k2"}'),
        ("text", "unknown_value", b'{"id":"k1"}'),
        ("text", "unknown_value", b'{"id":"k2"}'),
    ]
    errors = {row["error"] for row in shop.rows("shop_dead_letters") if row["code"] == "unknown_value"}
    assert all("the source cannot be asked" in error for error in errors)


def test_a_change_that_the_server_does_not_show_yet_is_waited_for_and_not_taken_for_a_row_that_is_gone(
    tmp_path: Path,
) -> None:
    with PostgresServer() as server, server.database() as database:
        shop = PostgresShop(server, database, tmp_path)
        shop.execute(*table("orders"))
        where = "  orders: {path: orders, from: db, mode: upsert, where: length(doc) > 20}"
        shop.run(where)
        shop.execute("ALTER SYSTEM SET synchronous_standby_names = 'absent'", "SELECT pg_reload_conf()")
        wait_until(
            lambda: shop.query("SHOW synchronous_standby_names") == [("absent",)], 120, lambda: "no setting"
        )
        # The row 9 is not there for others, and the row 1 is there as it was.
        changes = (
            f"BEGIN; INSERT INTO orders VALUES (9, 'new', {LARGE} || 'nin');"
            "UPDATE orders SET st = 'ok' WHERE id = 9;"
            f"UPDATE orders SET doc = {LARGE} || 'one' WHERE id = 1;"
            "UPDATE orders SET st = 'ok' WHERE id = 1; COMMIT"
        )
        writer = threading.Thread(target=shop.execute, args=(changes,))
        writer.start()
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        wait_until(lambda: bool(shop.query(waiting)), 120, lambda: "no commit waits for the standby")

        with pytest.raises(
            GaveUp, match="is not visible yet, such as one that waits for a synchronous standby"
        ):
            shop.run(where)
        before = docs(shop, "orders")
        with server.connect(database) as connection:
            connection.execute("SET synchronous_commit = local")
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")
        writer.join(120)
        shop.run(where)

        assert before == [(1, "new", "own"), (2, "new", "own")]
        assert docs(shop, "orders") == [(1, "ok", "one"), (2, "new", "own"), (9, "ok", "nin")]
        assert letters(shop) == []
