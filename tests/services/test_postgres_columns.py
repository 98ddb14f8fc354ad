"""Columns of a database with odd names, and columns that a server does not send."""

from __future__ import annotations

import logging
from datetime import date
from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.doctor.services import examine
from lakefeed.engine.inline import run_inline
from lakefeed.errors import TableError
from lakefeed.handles.tables import Tables
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reprocess.snapshot import reading_anew
from lakefeed.testing.landed import read_rows
from lakefeed.text import quoted_name as quoted
from support.postgres import PostgresServer
from support.postgres_shop import LARGE, UPSERT, PostgresShop

ODD = """
CREATE TABLE orders (
    "order id" int PRIMARY KEY, "with space" text, "a.b" int, "c,d;e" int, "price (EUR)" numeric(10,2),
    "x=y" date
)
"""


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    return PostgresShop(postgres, database, tmp_path)


def told(caplog: pytest.LogCaptureFixture, level: int, word: str) -> set[str]:
    return {one.message for one in caplog.records if one.levelno == level and word in one.message}


def test_names_that_delta_does_not_take_are_cleaned_in_rows_keys_and_changes(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    tables = UPSERT + "\n  log: {path: log, from: db}\n  past: {path: past, from: db, mode: history}"
    shop.execute(ODD, 'ALTER TABLE orders ALTER "with space" SET STORAGE EXTERNAL')
    shop.execute(f"INSERT INTO orders SELECT i, {LARGE}, i, i, i, '2026-01-01' FROM generate_series(1, 4) i")
    with caplog.at_level(logging.INFO, "lakefeed"):
        shop.run(tables)
    shop.execute(
        'UPDATE orders SET "c,d;e" = 10 WHERE "order id" = 1',
        'UPDATE orders SET "order id" = 5 WHERE "order id" = 2',
        'DELETE FROM orders WHERE "order id" = 3',
        'ALTER TABLE orders ADD "new one" int DEFAULT 7',
        'UPDATE orders SET "x=y" = \'infinity\' WHERE "order id" = 4',
    )
    shop.run(tables)

    names = ("order_id", "with_space", "a.b", "c_d_e", "price__EUR_", "new_one")
    held = shop.table("orders", *names)
    there = shop.query(
        'SELECT "order id", "with space", "a.b", "c,d;e", "price (EUR)", "new one" FROM orders'
    )
    assert held == sorted(there)
    assert all(row[1] for row in held)
    (letter,) = {row["key"] for row in shop.rows("shop_dead_letters")}
    assert letter == b'{"order_id":4}'
    (renamed,) = told(caplog, logging.INFO, "another name")
    assert "`order id` is order_id, `with space` is with_space, `c,d;e` is c_d_e" in renamed
    planned = plan_run(Pipeline.from_file(shop.file)).tables[0]
    assert [text for text in planned.warnings if "`with space` is with_space" in text]


def test_lower_makes_the_names_of_new_columns_lower_case_and_sql_takes_those_of_the_database(
    shop: PostgresShop,
) -> None:
    tables = (
        "  orders: {path: orders, from: db, mode: upsert, names: lower}\n"
        "  shaped: {path: shaped, from: db, mode: upsert, names: lower,\n"
        '    select: ["*", "`With Space` AS note"], where: "`Order Id` < 9"}'
    )
    shop.execute(
        'CREATE TABLE orders ("Order Id" int PRIMARY KEY, "With Space" text, "Total" int)',
        'ALTER TABLE orders ALTER "With Space" SET STORAGE EXTERNAL',
        f"INSERT INTO orders SELECT i, {LARGE}, i FROM generate_series(1, 4) i",
    )
    shop.run(tables)
    shop.execute(
        'UPDATE orders SET "Total" = 10 WHERE "Order Id" = 1',
        'UPDATE orders SET "Order Id" = 5 WHERE "Order Id" = 2',
        'DELETE FROM orders WHERE "Order Id" = 3',
        'ALTER TABLE orders ADD "New One" int DEFAULT 7',
        'UPDATE orders SET "Total" = 9 WHERE "Order Id" = 4',
    )
    shop.run(tables)

    there = sorted(shop.query('SELECT "Order Id", "With Space", "Total", "New One" FROM orders'))
    names = ("order_id", "with_space", "total", "new_one")
    assert shop.table("orders", *names) == shop.table("shaped", *names) == there
    assert shop.table("shaped", "order_id", "note") == [row[:2] for row in there]


def test_names_of_the_database_are_kept_in_tables_with_column_mapping(shop: PostgresShop) -> None:
    tables = """
  orders: {path: orders, from: db, mode: upsert, names: keep}
  marked: {path: marked, from: db, mode: upsert, names: keep, updates: merge_on_read, keys: [order id]}
  past: {path: past, from: db, mode: history, names: keep}"""
    shop.execute(ODD, 'ALTER TABLE orders ALTER "with space" SET STORAGE EXTERNAL')
    shop.execute(f"INSERT INTO orders SELECT i, {LARGE}, i, i, i, '2026-01-01' FROM generate_series(1, 4) i")
    planned = plan_run(Pipeline.from_file(shop.write(tables))).tables[0]
    assert [one.split(" ")[0:2] for one in planned.columns][:2] == [["order", "id"], ["with", "space"]]
    shop.run(tables)
    shop.execute(
        'UPDATE orders SET "c,d;e" = 10 WHERE "order id" = 1',
        'UPDATE orders SET "order id" = 5 WHERE "order id" = 2',
        'DELETE FROM orders WHERE "order id" = 3',
        'ALTER TABLE orders ADD "new one" int DEFAULT 7',
        'UPDATE orders SET "c,d;e" = 11 WHERE "order id" = 4',
    )
    shop.run(tables)

    names = ("order id", "with space", "a.b", "c,d;e", "price (EUR)", "x=y", "new one")
    there = sorted(shop.query(f"SELECT {', '.join(map(quoted, names))} FROM orders"))
    for table in ("orders", "marked", "past"):
        schema, rows = read_rows(str(shop.folder / table))
        assert {*names} <= {*schema.names}
        now = [row for row in rows if row.get("valid_to") is None]
        assert sorted(tuple(row[name] for name in names) for row in now) == there
    assert read_rows(str(shop.folder / "shop_dead_letters"))[1] == []


def test_rename_and_drop_take_the_names_of_the_database(shop: PostgresShop) -> None:
    shop.execute(ODD, "INSERT INTO orders VALUES (1, 'a', 2, 3, 4, '2026-01-01')")
    table = (
        '  orders: {path: orders, from: db, mode: upsert, rename: {"with space": note, price__EUR_: price}, '
        'drop: ["c,d;e"], keys: [order_id]}'
    )
    shop.run(table)
    shop.execute("UPDATE orders SET \"with space\" = 'b'")
    shop.run(table)

    (row,) = shop.rows("orders")
    assert {name: value for name, value in row.items() if not name.startswith("_")}.keys() == {
        "order_id",
        "note",
        "a.b",
        "price",
        "x_y",
    }
    assert row["note"] == "b"


def test_a_kill_neither_loses_nor_doubles_rows_and_dead_letters_with_odd_names(shop: PostgresShop) -> None:
    shop.execute(ODD, "INSERT INTO orders SELECT i, 'a', 2, 3, 4, '2026-01-01' FROM generate_series(1, 9) i")
    shop.execute('UPDATE orders SET "x=y" = \'infinity\' WHERE "order id" > 7')
    shop.write(UPSERT)
    shop.run_until_killed("letters_committed:1")
    shop.execute('DELETE FROM orders WHERE "order id" = 1')
    shop.run(UPSERT)

    assert [row[0] for row in shop.table("orders", "order_id")] == list(range(2, 8))
    keys = sorted(row["key"] for row in shop.rows("shop_dead_letters"))
    assert keys == [b'{"order_id":8}', b'{"order_id":9}']


def test_columns_with_names_of_lakefeeds_own_get_others(shop: PostgresShop) -> None:
    names = ("_op", "_LSN", "_stream", "_unchanged", "_lakefeed_op")
    columns = ", ".join(f'"{name}" text' for name in names)
    shop.execute(f"CREATE TABLE orders (id int PRIMARY KEY, {columns})")
    shop.execute("INSERT INTO orders VALUES (1, 'a', 'b', 'c', 'd', 'e')")
    tables = UPSERT + "\n  log: {path: log, from: db}"
    shop.run(tables)
    shop.execute("UPDATE orders SET _op = 'z'")
    shop.run(tables)

    others = [f"{name}_" for name in names]
    rows = [(1, "read", "a", "b", "c", "d", "e"), (1, "update", "z", "b", "c", "d", "e")]
    assert shop.table("orders", "id", "_op", *others) == rows[1:]
    assert shop.table("log", "id", "_op", *others) == rows


def test_names_that_would_be_one_stop_their_own_table_and_the_remedy_lets_it_go_on(
    shop: PostgresShop,
) -> None:
    shop.execute(
        'CREATE TABLE orders (id int PRIMARY KEY, "a b" int)',
        "CREATE TABLE other (id int PRIMARY KEY)",
        "INSERT INTO orders VALUES (1, 2)",
    )
    tables = (
        "  orders: {path: orders, from: db, mode: upsert, streams: public.orders}\n"
        "  other: {path: other, from: db, mode: upsert, streams: public.other}"
    )
    options = "tables: [public.orders, public.other]"
    shop.run(tables, options)
    shop.execute(
        "ALTER TABLE orders ADD a_b int",
        "INSERT INTO orders VALUES (2, 3, 4)",
        "INSERT INTO other VALUES (1)",
    )
    with pytest.raises(TableError) as stopped:
        shop.run(tables, options)

    assert str(stopped.value).startswith(
        "table orders: public.orders has the columns `a b` and `a_b`, and all of them would be called a_b"
    )
    assert shop.table("other", "id") == [(1,)]
    assert shop.table("orders", "id", "a_b") == [(1, 2)]
    assert not (shop.folder / "shop_dead_letters").exists()
    planned = plan_run(Pipeline.from_file(shop.file)).tables[0]
    assert [text for text in planned.warnings if 'ALTER TABLE public.orders RENAME COLUMN "a b" TO' in text]

    shop.execute('ALTER TABLE public.orders RENAME COLUMN "a b" TO "b c"')
    again, _ = reading_anew(Pipeline.from_file(shop.file), "db", ["public.orders"])
    run_inline(again)
    assert shop.table("orders", "id", "b_c", "a_b") == [(1, 2, None), (2, 3, 4)]


GENERATED = """
CREATE TABLE orders (
    id int PRIMARY KEY, price int, gross int GENERATED ALWAYS AS (price * 2) STORED
)
"""


def missing(pipeline: Pipeline) -> list[str]:
    return [one.text + " " + one.remedy for one in examine(pipeline) if "generated" in one.text]


def test_generated_columns_that_no_server_before_18_sends_are_told_and_can_be_computed(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.execute(GENERATED, "INSERT INTO orders (id, price) VALUES (1, 1), (2, 2)")
    shop.run(UPSERT)
    text = (
        "public.orders has generated columns, and PostgreSQL 15 does not send them: its copy does not have "
        "gross"
    )
    assert "gross" not in shop.rows("orders")[0]
    assert len(told(caplog, logging.WARNING, text)) == 1
    pipeline = Pipeline.from_file(shop.file)
    (found,) = missing(pipeline)
    (planned,) = plan_run(pipeline).tables
    assert found.startswith(text) and [one for one in planned.warnings if text in one]

    assert found.endswith("with `select`, in Spark SQL. In the database, gross is integer AS (price * 2)")
    table = '  copy: {path: copy, from: db, mode: upsert, select: ["*", "price * 2 AS gross"]}'
    shop.run(table)
    shop.execute("UPDATE orders SET price = 5 WHERE id = 1")
    shop.run(table)

    assert shop.table("copy", "id", "gross") == shop.query("SELECT id, gross FROM orders ORDER BY id")


def test_rows_alone_have_generated_columns(shop: PostgresShop) -> None:
    shop.execute(GENERATED, "INSERT INTO orders (id, price) VALUES (1, 1)")
    shop.run(UPSERT, "tables: public.orders, snapshot: only")

    assert shop.table("orders", "id", "gross") == [(1, 2)]


def test_stored_generated_columns_of_18_are_in_rows_and_changes(tmp_path: Path) -> None:
    with PostgresServer(version="18") as server, server.database() as database:
        shop = PostgresShop(server, database, tmp_path)
        shop.execute(GENERATED, "ALTER TABLE orders ADD net int GENERATED ALWAYS AS (price - 1) VIRTUAL")
        shop.execute("INSERT INTO orders (id, price) VALUES (1, 1), (2, 2)")
        shop.run(UPSERT)
        shop.execute(
            "UPDATE orders SET price = 5 WHERE id = 1", "INSERT INTO orders (id, price) VALUES (3, 3)"
        )
        shop.run(UPSERT)
        assert shop.table("orders", "id", "gross") == [(1, 10), (2, 4), (3, 6)]
        (found,) = missing(Pipeline.from_file(shop.file))
        assert "virtual columns are never sent: its copy does not have net " in found

        # A publication of somebody else leaves them out, until the printed statement is run.
        shop.execute("CREATE PUBLICATION own FOR TABLE orders", "ALTER TABLE orders DROP net")
        own = UPSERT.replace("path: orders", "path: own")
        options = "tables: public.orders, publication: own, slot: own"
        shop.run(own, options)
        pipeline = Pipeline.from_file(shop.file)
        assert "gross" not in shop.rows("own")[0]
        (found,) = missing(pipeline)
        statement = found[found.index("ALTER PUBLICATION") : found.index(";")]
        shop.execute(statement)
        again, _ = reading_anew(pipeline, "db", ["public.orders"])
        run_inline(again)
        assert shop.table("own", "id", "gross") == [(1, 10), (2, 4), (3, 6)]
        assert missing(pipeline) == []


def test_names_that_would_be_one_leave_the_other_tables_of_a_route_alone(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.execute(
        "CREATE TABLE orders (id int PRIMARY KEY)",
        'CREATE TABLE bad (id int PRIMARY KEY, "a b" text, a_b text)',
        "INSERT INTO orders VALUES (1)",
    )
    route = '  copies: {route: "lake/{_stream}", from: db, mode: upsert}'
    own = "  own: {path: lake/own, from: db, mode: upsert, streams: public.orders}"

    shop.run(f"{route}\n{own}", 'tables: "public.*"')

    assert shop.table("lake/public.orders", "id") == shop.table("lake/own", "id") == [(1,)]
    assert len(told(caplog, logging.WARNING, "public.bad has the columns `a b` and `a_b`")) == 1
    # A table of its own in the folder of a route is not the route's.
    assert set(Tables(Pipeline.from_file(shop.file)).routed_handles("copies")) == {("public.orders",)}


def test_names_that_differ_only_by_case_or_that_the_table_makes_skip_their_table(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.execute(
        "CREATE TABLE orders (id int PRIMARY KEY)",
        'CREATE TABLE bad (id int PRIMARY KEY, total int, "Total" int)',
        "CREATE TABLE dated (id int PRIMARY KEY, valid_from date)",
        "INSERT INTO orders VALUES (1)",
        "INSERT INTO bad VALUES (1, 3, 2)",
        "INSERT INTO dated VALUES (1, '2026-01-01')",
    )
    route = '  copies: {route: "lake/{_stream}", from: db, mode: upsert}'
    past = '  past: {route: "past/{_stream}", from: db, mode: history}'
    every = 'tables: "public.*"'

    shop.run(f"{route}\n{past}", every)

    assert sorted(one.name for one in (shop.folder / "past").iterdir()) == ["public.orders"]
    assert shop.table("lake/public.dated", "id") == [(1,)]
    assert not (shop.folder / "lake/public.bad").exists()
    assert not list(shop.folder.rglob("*dead_letters*"))
    alike = "it has the columns total and Total, and a Delta table can have only one of them."
    assert told(caplog, logging.WARNING, "public.bad") == {
        f"table {name} skips public.bad: {alike} "
        "Give public.bad a table with `streams: public.bad` and `rename` or `drop` for total."
        for name in ("copies", "past")
    }
    assert told(caplog, logging.WARNING, "public.dated") == {
        "table past skips public.dated: it has the column valid_from, and `valid_from` makes one "
        "of this name. Give public.dated a table with `streams: public.dated` and `rename` or `drop` for "
        "valid_from, or change `valid_from`."
    }

    # What is printed, tried.
    own = (
        "  bad: {path: bad, from: db, mode: upsert, streams: public.bad, rename: {total: sum}}\n"
        "  dated: {path: dated, from: db, mode: history, streams: public.dated, rename: {valid_from: t}}\n"
        "  later: {path: later, from: db, mode: history, streams: public.dated, valid_from: begins}"
    )
    shop.run(own, every)
    assert shop.table("bad", "id", "Total", "sum") == [(1, 2, 3)]
    assert (
        shop.table("dated", "id", "t") == shop.table("later", "id", "valid_from") == [(1, date(2026, 1, 1))]
    )
    with pytest.raises(TableError, match=r"table own: public\.bad has the columns total and Total"):
        shop.run(
            "  own: {path: own, from: db, mode: upsert, streams: public.bad, rename: {Total: sum}}", every
        )


def test_a_column_that_is_generated_no_more_is_outdated_until_a_snapshot(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.execute(GENERATED, "INSERT INTO orders (id, price) VALUES (1, 1), (2, 2)")
    shop.run(UPSERT)
    shop.execute("ALTER TABLE orders ALTER gross DROP EXPRESSION", "UPDATE orders SET price = 5 WHERE id = 1")

    shop.run(UPSERT)

    assert (
        len(told(caplog, logging.WARNING, "column gross of public.orders had another name before, was")) == 1
    )


def test_a_key_that_the_server_does_not_send_skips_its_table(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.execute(
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "CREATE TABLE bad (a int NOT NULL, n int, twice int GENERATED ALWAYS AS (a * 2) STORED PRIMARY KEY)",
        "INSERT INTO orders VALUES (1)",
        "INSERT INTO bad VALUES (1, 1), (2, 2)",
    )
    route, every = '  copies: {route: "lake/{_stream}", from: db, mode: upsert}', 'tables: "public.*"'

    shop.run(route, every)

    text = "the key of public.bad has twice, which the server computes and does not send"
    assert len(told(caplog, logging.WARNING, text)) == 1
    assert shop.table("lake/public.orders", "id") == [(1,)]
    assert not (shop.folder / "lake/public.bad").exists()
    once = "  once: {path: once, from: db, mode: upsert}"
    shop.run(once, "tables: public.bad, snapshot: only, publication: none")
    assert shop.table("once", "twice", "a") == [(2, 1), (4, 2)]

    shop.execute("CREATE UNIQUE INDEX bad_a ON bad (a)", "ALTER TABLE bad REPLICA IDENTITY USING INDEX bad_a")
    shop.run(route, every)
    shop.execute("UPDATE bad SET n = 3 WHERE a = 1", "DELETE FROM bad WHERE a = 2")
    shop.run(route, every)
    assert shop.table("lake/public.bad", "a", "n") == [(1, 3)]
