"""A database copied by a route: each Delta table has the columns and types of its own Postgres table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakefeed import LakefeedError, Pipeline
from lakefeed.commands.plan import _lines
from lakefeed.dead_letters.discard import discard
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.doctor.services import examine
from lakefeed.engine.inline import run_inline
from lakefeed.handles.tables import Tables
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.stores import open_store
from lakefeed.tables.log.log import Log
from lakefeed.tables.positions import positions_of
from lakefeed.tables.table import commit_info_of
from lakefeed.watch.log_lines import LogLines
from lakefeed.watch.state import RunState
from support.faultpoints import POINTS
from support.postgres import PostgresServer
from support.postgres_shop import PostgresShop

ROUTE = "  copies: {route: 'lake/{_stream}', from: db, mode: upsert}"
EVERY = 'tables: "public.*"'
UUID = "0cc175b9-c0f1-b6a8-31c3-99e269772661"
ORDERS, USERS, ITEMS = "lake/public.orders", "lake/public.users", "lake/public.items"


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    """Three tables whose columns have the same names, other types, and other keys."""
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, at timestamptz, v int)",
        "CREATE TABLE users (id uuid PRIMARY KEY, at text, v jsonb)",
        "CREATE TABLE items (id text, line int, at date, v numeric(10,2), PRIMARY KEY (line, id))",
        "INSERT INTO orders VALUES (1, '2026-01-01 00:00:00+00', 1), (2, null, null)",
        "INSERT INTO users VALUES (md5('a')::uuid, 'noon', '{\"a\": 1.50}')",
        "INSERT INTO items VALUES ('x', 1, '2026-02-03', 1.50), ('x', 2, null, null)",
    )
    return shop


def types(shop: PostgresShop, path: str) -> dict[str, str]:
    """The columns of a Delta table that are those of its Postgres table."""
    schema = DeltaTable(str(shop.folder / path)).schema()
    found = {one.name: getattr(one.type, "type", str(one.type)) for one in schema.fields}
    return {name: kind for name, kind in found.items() if not name.startswith("_")}


def agrees(shop: PostgresShop, table: str, columns: str, path: str = "lake") -> None:
    """A Delta table is the table of the database."""
    wanted = [tuple(map(str, row)) for row in shop.query(f"SELECT {columns} FROM {table}")]
    names = columns.split(", ")
    found = [tuple(str(row[one]) for one in names) for row in shop.rows(f"{path}/public.{table}")]
    assert sorted(found) == sorted(wanted)


def all_agree(shop: PostgresShop) -> None:
    agrees(shop, "orders", "id, v")
    agrees(shop, "users", "id, at")
    agrees(shop, "items", "id, line, at, v")


def letters(shop: PostgresShop) -> list[dict[str, Any]]:
    path = "lake/shop_dead_letters"
    return shop.rows(path) if (shop.folder / path).exists() else []


def test_tables_of_a_route_have_the_types_of_their_own_postgres_table(shop: PostgresShop) -> None:
    shop.run(ROUTE, EVERY)
    shop.execute(
        "UPDATE users SET at = 'dusk'",
        "UPDATE items SET line = 3 WHERE line = 2",
        "DELETE FROM orders WHERE id = 1",
        "INSERT INTO orders VALUES (3, null, 3)",
    )
    shop.run(ROUTE, EVERY)

    assert types(shop, ORDERS) == {"id": "long", "at": "timestamp", "v": "integer"}
    assert types(shop, USERS) == {"id": "string", "at": "string", "v": "string"}
    assert types(shop, ITEMS) == {"id": "string", "line": "integer", "at": "date", "v": "decimal(10,2)"}
    all_agree(shop)
    assert shop.rows(USERS)[0]["id"] == UUID and shop.rows(USERS)[0]["v"] == '{"a": 1.50}'
    assert letters(shop) == []


@pytest.mark.parametrize("mode", ["append", "history"])
def test_a_log_and_a_history_of_each_table(shop: PostgresShop, mode: str) -> None:
    route = ROUTE.replace("upsert", mode)
    shop.run(route, EVERY)
    shop.execute("UPDATE users SET at = 'dusk'", "UPDATE items SET v = 2 WHERE line = 1")
    shop.run(route, EVERY)

    assert sorted(row["at"] for row in shop.rows(USERS)) == ["dusk", "noon"]
    assert sorted(str(row["v"]) for row in shop.rows(ITEMS)) == ["1.50", "2.00", "None"]
    assert len(shop.rows(ORDERS)) == 2


def test_an_empty_table_and_one_that_comes_later_have_their_types(shop: PostgresShop) -> None:
    shop.execute("CREATE TABLE nothing (id bool PRIMARY KEY, v date)")
    shop.run(ROUTE, EVERY)
    shop.execute(
        "CREATE TABLE later (id date PRIMARY KEY, v bool)",
        "INSERT INTO later VALUES ('2026-01-01', true)",
        "INSERT INTO nothing VALUES (true, '2026-01-01')",
    )
    before = DeltaTable(str(shop.folder / "lake/public.nothing")).count()
    shop.run(ROUTE, EVERY)

    assert before == 0
    assert types(shop, "lake/public.nothing") == {"id": "boolean", "v": "date"}
    assert types(shop, "lake/public.later") == {"id": "date", "v": "boolean"}
    agrees(shop, "later", "id, v")
    agrees(shop, "nothing", "id, v")


def test_all_tables_are_made_before_the_first_batch_is_read_again(shop: PostgresShop) -> None:
    batches: list[object] = []
    pipeline = Pipeline.from_file(shop.write(ROUTE, EVERY))

    run_inline(pipeline, lambda event: batches.append(event) if type(event).__name__ == "BatchDone" else None)

    # One that shows the columns, and one that brings the rows.
    assert len(batches) <= 3
    all_agree(shop)


def test_one_of_the_tables_gets_columns_that_others_have_with_another_type(shop: PostgresShop) -> None:
    shop.run(ROUTE, EVERY)
    shop.execute(
        "ALTER TABLE orders ADD line text DEFAULT 'none'",
        "INSERT INTO orders VALUES (3, null, 3, 'third')",
        "UPDATE users SET at = 'dusk'",
        "INSERT INTO items VALUES ('y', 7, null, 7)",
    )
    shop.run(ROUTE, EVERY)

    assert types(shop, ORDERS)["line"] == "string" and types(shop, ITEMS)["line"] == "integer"
    assert "line" not in types(shop, USERS)
    # The rows from before have what the server gives them.
    agrees(shop, "orders", "id, v, line")
    all_agree(shop)


def test_a_column_that_changes_its_type_concerns_its_own_table(shop: PostgresShop) -> None:
    shop.run(ROUTE, EVERY)
    shop.execute(
        "ALTER TABLE orders ALTER v TYPE text USING v::text",
        "INSERT INTO orders VALUES (3, null, 'three')",
        "INSERT INTO items VALUES ('y', 7, null, 7)",
    )
    shop.run(ROUTE, EVERY)

    all_agree(shop)
    assert letters(shop) == []
    assert (types(shop, ORDERS)["v"], types(shop, ITEMS)["v"]) == ("string", "decimal(10,2)")


@pytest.mark.parametrize("point", [*(f"{one}:1" for one in POINTS), "table_committed:2", "table_committed:5"])
def test_a_kill_anywhere_loses_and_doubles_nothing(shop: PostgresShop, point: str) -> None:
    """At the first batches, which make the tables, or with rows, changes and a dead letter of one of them."""
    route = "\n".join(
        [ROUTE, ROUTE.replace("copies", "logs").replace("upsert", "append").replace("lake", "log")]
    )
    shop.execute("INSERT INTO items VALUES ('y', 9, 'infinity', 1)")
    shop.write(route, EVERY)
    shop.run_until_killed(point)
    # A row that changes is another event to the letters: those of `items` stay as they are.
    shop.execute("DELETE FROM orders WHERE id = 2", "INSERT INTO items VALUES ('z', 10, null, 9)")
    shop.run(route, EVERY)
    shop.execute("UPDATE users SET at = 'dusk'", "DELETE FROM items WHERE line = 9")
    shop.run(route, EVERY)

    all_agree(shop)
    assert verify(Pipeline.from_file(shop.file)).sound
    assert sorted(row["at"] for row in shop.rows("log/public.users")) == ["dusk", "noon"]
    kinds = sorted((one["table"], one["code"]) for one in letters(shop))
    assert kinds == [("copies", "out_of_range"), ("logs", "out_of_range")]


def test_dead_letters_of_several_tables_are_replayed_into_their_own(shop: PostgresShop) -> None:
    """Each has a key of its own, which its letter tells, and a column of one name in another type."""
    shop.execute(
        "ALTER TABLE orders ADD day date, ADD n numeric(5,2)",
        "ALTER TABLE items ADD n bigint",
        "INSERT INTO orders VALUES (8, null, 8, 'infinity', 1)",
        "INSERT INTO items VALUES ('y', 9, 'infinity', 1, 5)",
    )
    shop.run(ROUTE, EVERY)
    assert len(letters(shop)) == 2
    assert sorted(one["key"] for one in letters(shop)) == [b'{"id":8}', b'{"line":9,"id":"y"}']

    shop.write(ROUTE.replace("upsert", "upsert, evolve: {type_change: rescue}"), EVERY)
    shop.run(ROUTE.replace("upsert", "upsert, evolve: {type_change: rescue}"), EVERY)
    pipeline = Pipeline.from_file(shop.file)
    (foreseen,) = replay(pipeline, DeadLetterFilter(), dry_run=True)
    (report,) = replay(pipeline, DeadLetterFilter())

    assert (foreseen.rows, report.rows) == (2, 2)
    assert letters(shop) == []
    assert shop.table(ITEMS, "id", "line", "n")[-1] == ("y", 9, 5)
    assert {row["id"]: str(row["n"]) for row in shop.rows(ORDERS)}[8] == "1.00"
    shop.execute("DELETE FROM items WHERE line = 9", "UPDATE orders SET v = 80, day = null WHERE id = 8")
    shop.run(ROUTE.replace("upsert", "upsert, evolve: {type_change: rescue}"), EVERY)
    assert ("y", 9) not in shop.table(ITEMS, "id", "line")
    assert {row["id"]: row["v"] for row in shop.rows(ORDERS)}[8] == 80


def test_a_table_too_many_stops_the_route_and_loses_nothing(shop: PostgresShop) -> None:
    """As dead letters, a whole table would wait for somebody, and hold the slot."""
    two = ROUTE.replace("from: db", "from: db, max_tables: 2")
    with pytest.raises(
        LakefeedError, match=r"public.users is read, and has no table: .* as `max_tables` allows"
    ):
        shop.run(two, EVERY)
    shop.execute("UPDATE users SET at = 'dusk'", "DELETE FROM orders WHERE id = 1")
    shop.run(ROUTE, EVERY)

    assert letters(shop) == []
    all_agree(shop)


def test_each_table_has_positions_in_its_own_stream_and_the_slot_moves_on(shop: PostgresShop) -> None:
    confirmed = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE database = current_database()"
    shop.run(ROUTE, EVERY)
    ((before,),) = shop.query(confirmed)
    shop.execute("UPDATE users SET at = 'dusk'")
    shop.run(ROUTE, EVERY)

    table = Tables(Pipeline.from_file(shop.file)).routed_handle("copies", ("public.users",)).look()
    assert table is not None
    assert sorted(positions_of(table.transactions, "shop", "db")) == ["public.users", "public.users:rows"]
    assert shop.query(f"SELECT ({confirmed}) > '{before}'") == [(True,)]


@pytest.mark.parametrize("mode", ["upsert", "append"])
def test_a_table_of_a_route_counts_the_dead_letters_of_its_stream(
    shop: PostgresShop, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    route = ROUTE.replace("upsert", mode)
    shop.run(route, EVERY)
    shop.execute("INSERT INTO orders VALUES (8, 'infinity', 8), (9, null, 9)", "UPDATE users SET at = 'dusk'")
    pipeline = Pipeline.from_file(shop.write(route, EVERY))
    lines = LogLines(RunState(pipeline))
    run_inline(pipeline, lines.watch)
    proof = verify(pipeline, deep=True)

    assert proof.sound and len(letters(shop)) == 1
    counts = {
        one.name: [(at.read, at.dead_letters) for at in one.partitions if not at.partition.endswith(":rows")]
        for one in proof.tables
    }
    assert counts["copies/public.orders"] == [(2, 1)] and counts["copies/public.users"] == [(1, 0)]
    orders = Log.open(open_store(str(shop.folder / ORDERS), {}))
    assert orders is not None
    info = commit_info_of(orders.entry(orders.newest).info)
    assert info["ranges"]["public.orders"][2:] == [2, 1] and "routed" not in info
    assert "copies/public.orders: version" in caplog.text and ", 1 new dead letter, " in caplog.text
    discard(pipeline, DeadLetterFilter(), who="me", reason="no date")
    assert [at.settled for one in verify(pipeline).tables for at in one.partitions if at.settled] == [1]


def test_plan_and_doctor_show_each_table_with_its_types(shop: PostgresShop) -> None:
    pipeline = Pipeline.from_file(shop.write(ROUTE, EVERY))
    found = plan_run(pipeline)

    planned = {one.name: one for one in found.tables}
    assert planned["copies"].action == "route" and "copies: a table for each stream" in _lines(found)
    assert planned["copies/public.orders"].columns[:3] == ["id long", "at timestamp", "v int"]
    assert planned["copies/public.users"].columns[:3] == ["id string", "at string", "v string"]
    assert not any(one.refused for one in found.tables)
    assert [one for one in examine(pipeline) if one.state == "fail"] == []
    shop.run(ROUTE, EVERY)
    shop.execute("ALTER TABLE users ADD line date")
    altered = {one.name: one for one in plan_run(pipeline).tables}
    assert altered["copies/public.users"].columns == ["line date"]
    assert altered["copies/public.orders"].action == "nothing"


def test_plan_of_a_route_tells_what_waits_and_nothing_of_what_its_tables_have(shop: PostgresShop) -> None:
    shop.execute("INSERT INTO orders VALUES (9, 'infinity', 9)")
    shop.run(ROUTE, EVERY)
    pipeline = Pipeline.from_file(shop.file)
    done = {one.name: one for one in plan_run(pipeline).tables}
    shop.execute(
        "INSERT INTO orders VALUES (10, '-infinity', 10), (11, null, 11)", "ALTER TABLE users ADD w int"
    )
    shop.execute("CREATE TABLE more (id int PRIMARY KEY)", "INSERT INTO more VALUES (1), (2), (3)")
    waits = {one.name: one for one in plan_run(pipeline).tables}

    assert (done["copies"].action, done["copies"].resumes, done["copies"].lag) == ("route", {"db": {}}, 0)
    assert len(letters(shop)) == 1 and not any(one.sampled for one in done.values())
    orders = waits["copies/public.orders"]
    assert (orders.sampled, orders.sampled_dead_letters) == (2, {"out_of_range": 1})
    assert waits["copies/public.items"].sampled == 0
    assert sorted(waits["copies"].resumes["db"]) == ["public.more", "public.more:rows"]
    assert waits["copies/public.more"].action == "create" and waits["copies/public.more"].sampled == 3


def test_what_has_one_type_for_a_name_is_refused_with_the_way_on(shop: PostgresShop) -> None:
    """SQL reads columns of one type, as a table does that takes several streams."""
    filtered = ROUTE.replace("from: db", "from: db, where: _op <> 'delete'")
    for refused in (filtered, "  one: {path: one, from: db, mode: upsert}"):
        with pytest.raises(
            LakefeedError, match=r"column id is string in public.items and long in public.orders"
        ):
            shop.run(refused, EVERY)
    (planned,) = plan_run(Pipeline.from_file(shop.file)).tables
    told = {one.check: one for one in examine(Pipeline.from_file(shop.file)) if one.state == "fail"}
    shop.run(
        filtered.replace("from: db", "from: db, streams: [public.items]")
        + "\n  orders: {path: orders, from: db, streams: public.orders, mode: upsert}",
        EVERY,
    )

    assert planned.refused and "Give public.orders a table of its own" in planned.refused
    assert "Give public.orders a table of its own with `streams: public.orders`" in told["table one"].remedy
    assert shop.table("orders", "id", "v") == [(1, 1), (2, None)]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (
            ['"a b"', "a_b"],
            r"public\.a b and public\.a_b are both public\.a_b in a path, and would be one table",
        ),
        ([f"{'x' * 60}.{'y' * 60}"], "it has a name that is too long for a path"),
    ],
)
def test_tables_that_have_no_path_of_their_own_are_skipped(
    shop: PostgresShop, names: list[str], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each would change and delete the rows of the other."""
    shop.execute(f"CREATE SCHEMA {'x' * 60}", *(f"CREATE TABLE {one} (id int PRIMARY KEY)" for one in names))

    every = f'tables: ["public.*", "{"x" * 60}.*"]'
    shop.run(ROUTE, every)
    found = [one.state for one in examine(Pipeline.from_file(shop.file)) if "path" in one.text]
    assert found == ["warn"] * len(names) and re.search(told, caplog.text)
    assert sorted(one.name for one in (shop.folder / "lake").iterdir() if one.name[0] != "_") == [
        "public.items",
        "public.orders",
        "public.users",
    ]


@pytest.mark.parametrize("condition", ["where: v > 0", "expect: {positive: v > 0}"])
def test_a_stream_of_which_no_row_is_taken_has_a_table_and_does_not_hold_the_slot(
    condition: str, postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    shop = PostgresShop(postgres, database, tmp_path)
    for name, value in (("a", 1), ("b", -1)):
        shop.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, v int)", f"INSERT INTO {name} VALUES (1, {value})"
        )
    route = f"  copies: {{route: 'lake/{{_stream}}', from: db, mode: append, {condition}}}"
    shop.run(route, EVERY)
    shop.execute("INSERT INTO a VALUES (2, 2)", "INSERT INTO b VALUES (2, -2)")
    before = shop.query("SELECT pg_current_wal_lsn()")
    shop.run(route, EVERY)
    shop.run(route, EVERY)

    behind = "SELECT confirmed_flush_lsn >= %s FROM pg_replication_slots WHERE database = current_database()"
    assert shop.query(behind.replace("%s", f"'{before[0][0]}'")) == [(True,)]
    assert (len(shop.rows("lake/public.a")), len(shop.rows("lake/public.b"))) == (2, 0)
    assert sorted(types(shop, "lake/public.b")) == ["id", "v"]
    assert len(letters(shop)) == (2 if "expect" in condition else 0)
    assert verify(Pipeline.from_file(shop.file)).sound

    shop.write(route.replace("v > 0", "v > -9"), EVERY)
    if "expect" in condition:
        (report,) = replay(Pipeline.from_file(shop.file), DeadLetterFilter())
        assert report.rows == 2 and len(shop.rows("lake/public.b")) == 2


def test_columns_that_the_file_declares_have_its_type_in_every_table(shop: PostgresShop) -> None:
    declared = ROUTE.replace("upsert", "upsert, schema: {_stream: string, id: string, v: json}")
    shop.execute(
        "DELETE FROM orders", "DROP TABLE orders", "CREATE TABLE orders (id text PRIMARY KEY, v jsonb)"
    )
    shop.execute("INSERT INTO orders VALUES ('one', '[1]')")
    shop.run(declared, EVERY)

    assert {types(shop, path)["id"] for path in (ORDERS, USERS, ITEMS)} == {"string"}
    assert types(shop, ITEMS)["v"] == "string" and types(shop, ITEMS)["at"] == "date"
    assert shop.table(ORDERS, "id", "v") == [("one", "[1]")]
    assert sorted(str(row["v"]) for row in shop.rows(ITEMS)) == ["1.50", "None"]


def test_all_tables_get_their_new_columns_and_types_before_a_batch_is_read_again(shop: PostgresShop) -> None:
    """Each reading of a batch may be long, and nothing is committed before the last of them."""
    shop.run(ROUTE, EVERY)
    shop.execute(
        "ALTER TABLE orders ADD more int DEFAULT 7",
        "ALTER TABLE users ADD more text[] DEFAULT '{a}'",
        "ALTER TABLE items ALTER v TYPE text",
        "UPDATE orders SET v = 1 WHERE id = 2",
        "UPDATE users SET at = 'night'",
        "UPDATE items SET v = 'none' WHERE line = 2",
    )

    shop.run_until_killed("task_started:2")

    assert types(shop, ORDERS)["more"] == "integer"
    assert "more" in types(shop, USERS)
    assert types(shop, ITEMS)["v"] == "string"
    shop.run(ROUTE, EVERY)
    assert shop.table(ORDERS, "id", "v", "more") == [(1, 1, 7), (2, 1, 7)]
    assert shop.table(USERS, "at", "more") == [("night", ["a"])]
    assert shop.table(ITEMS, "line", "v") == [(1, "1.50"), (2, "none")]
