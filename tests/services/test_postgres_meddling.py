"""Postgres into tables while somebody meddles: tables emptied, swapped, rewritten, slots moved, WAL lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.doctor.services import examine
from lakefeed.errors import DataLoss, LakefeedError, SourceError, TableError
from lakefeed.reports.plan.plan import plan_run
from lakefeed.sources.postgres import client as postgres_client
from lakefeed.sources.postgres import read as postgres_read
from lakefeed.sources.postgres import relations
from lakefeed.sources.postgres.connection import connect
from lakefeed.sources.postgres.source import PostgresSource
from support.postgres import PostgresServer
from support.postgres_shop import APPEND, ORDERS, UPSERT, PostgresShop

ALL = 'tables: "public.*"'
ROUTE = '  copies: {route: "lake/{_stream}", from: db, mode: upsert}'
TWO = (
    "  orders: {path: orders, from: db, mode: upsert, streams: public.orders}\n"
    "  items: {path: items, from: db, mode: upsert, streams: public.items}"
)
ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text)"
PUBLISHED = "CREATE PUBLICATION lakefeed_shop_db FOR TABLE orders WITH (publish_via_partition_root = true)"


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    return PostgresShop(postgres, database, tmp_path)


def filled(shop: PostgresShop, rows: int = 5) -> PostgresShop:
    shop.execute(ORDERS, f"INSERT INTO orders SELECT i, 'c' || i, i, 'n' FROM generate_series(1, {rows}) i")
    shop.execute("ANALYZE orders")
    return shop


def refusal(shop: PostgresShop, tables: str = UPSERT, options: str = "tables: public.orders") -> str:
    with pytest.raises(DataLoss) as caught:
        shop.run(tables, options)
    return str(caught.value)


def at_call(
    patch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    number: int,
    act: Callable[[], object],
    late: bool = False,
) -> None:
    """Do something right before, or right after, a call of a function."""
    called, calls = getattr(owner, name), 0

    def wrapped(*args: Any, **words: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and not late:
            act()
        result = called(*args, **words)
        if calls == number and late:
            act()
        return result

    patch.setattr(owner, name, wrapped)


def test_rows_that_are_copied_after_a_truncation_of_an_earlier_batch_stay(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(shop, 500)
    again = "INSERT INTO orders SELECT i, 'again', 1, 'n' FROM generate_series(1, 500) i"
    at_call(
        monkeypatch,
        postgres_client,
        "plan_part",
        3,
        lambda: shop.execute(f"BEGIN; TRUNCATE orders; {again}; COMMIT"),
    )

    shop.run(UPSERT, more="flush: {rows: 100}")

    shop.agrees()


def test_a_table_cannot_be_rewritten_between_its_snapshot_and_the_copy(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(shop, 50)
    tried: list[str] = []

    def rewrite() -> None:
        try:
            shop.execute("SET lock_timeout = '300ms'", "ALTER TABLE orders ALTER total TYPE numeric(12,3)")
        except Exception as error:
            tried.append(type(error).__name__)

    at_call(monkeypatch, postgres_client, "plan_part", 1, rewrite, late=True)
    shop.run(UPSERT)

    assert tried == ["LockNotAvailable"]
    shop.agrees()


def test_a_role_that_may_read_only_some_columns_copies_those(shop: PostgresShop) -> None:
    role = f"some_{shop.database}"
    shop.server.execute(f"CREATE ROLE {role} LOGIN REPLICATION")
    filled(shop).execute(
        "CREATE PUBLICATION lakefeed_shop_db FOR TABLE orders (id, total)",
        f"GRANT SELECT (id, total) ON orders TO {role}",
    )
    shop.connection = shop.server.dsn(shop.database, role)

    shop.run(UPSERT)

    shop.agrees("id, total")


def test_a_slot_that_is_moved_on_between_plan_and_read_is_no_empty_batch(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(shop).run(APPEND)
    shop.execute("INSERT INTO orders VALUES (6, 'lost', 6, 'n')")
    moved = "SELECT pg_replication_slot_advance('lakefeed_shop_db', pg_current_wal_flush_lsn())"
    at_call(monkeypatch, postgres_client.PostgresClient, "splits", 1, lambda: shop.query(moved), late=True)

    with pytest.raises(LakefeedError, match="lakefeed_shop_db"):
        shop.run(APPEND)

    assert "are lost" in refusal(shop, APPEND)


def test_a_failover_that_lost_wal_is_refused_even_where_snapshots_replace_lost_slots(tmp_path: Path) -> None:
    options = "tables: public.orders, on_slot_loss: snapshot"
    with PostgresServer() as primary:
        primary.execute("CREATE DATABASE shop")
        shop = filled(PostgresShop(primary, "shop", tmp_path))
        shop.execute(PUBLISHED)
        with primary.standby() as standby:
            standby.stop()
            shop.execute("INSERT INTO orders SELECT i, 'lost', 1, 'n' FROM generate_series(6, 3000) i")
            shop.run(UPSERT, options)
            primary.kill()
            standby.start()
            standby.promote()
            after = PostgresShop(standby, "shop", tmp_path)

            told = refusal(after, UPSERT, options)

            assert "had not received everything" in told and "drop the tables" in told
            primary.start()


def test_a_failover_that_lost_wal_is_refused_when_the_new_primary_has_written_more_than_the_old(
    tmp_path: Path,
) -> None:
    """By its timeline: the end of its WAL is beyond the position again, and somebody has made the slot."""
    with PostgresServer() as primary:
        primary.execute("CREATE DATABASE shop")
        shop = filled(PostgresShop(primary, "shop", tmp_path))
        shop.execute(PUBLISHED)
        with primary.standby() as standby:
            standby.stop()
            shop.execute("INSERT INTO orders SELECT i, 'lost', 1, 'n' FROM generate_series(6, 300) i")
            shop.run(UPSERT)
            standby.settings["primary_conninfo"] = ""
            standby.start()
            standby.promote()
            after = PostgresShop(standby, "shop", tmp_path)
            after.execute(
                "SELECT pg_create_logical_replication_slot('lakefeed_shop_db', 'pgoutput')",
                "INSERT INTO orders SELECT i, 'other', 1, 'n' FROM generate_series(6, 3000) i",
            )

            told = refusal(after, UPSERT, "tables: public.orders, on_slot_loss: snapshot")

            assert "read timeline 1 up to" in told and "is on timeline 2, which has up to" in told
            assert "drop the tables" in told


def test_another_database_of_the_same_server_is_refused(
    shop: PostgresShop, postgres: PostgresServer, tmp_path: Path
) -> None:
    filled(shop).run(UPSERT)
    with postgres.database() as name:
        other = filled(PostgresShop(postgres, name, tmp_path))
        slot = f"other_{name}"[:60]
        other.execute(PUBLISHED, f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
        told = refusal(other, UPSERT, f"tables: public.orders, slot: {slot}")
        other.execute(f"SELECT pg_drop_replication_slot('{slot}')")

    assert "another server or database" in told


@pytest.mark.parametrize(
    "done",
    [
        ["DROP TABLE orders", ORDERS],
        ["ALTER TABLE orders RENAME TO old", "CREATE TABLE orders (LIKE old INCLUDING ALL)"],
        [
            "ALTER PUBLICATION lakefeed_shop_db DROP TABLE orders",
            "INSERT INTO orders VALUES (8, 'unseen', 8, 'n')",
            "ALTER PUBLICATION lakefeed_shop_db ADD TABLE orders",
        ],
    ],
    ids=["made anew", "swapped", "published again"],
)
def test_a_table_that_is_another_one_than_before_is_refused(shop: PostgresShop, done: list[str]) -> None:
    filled(shop).run(UPSERT)
    shop.execute(*done, "INSERT INTO orders VALUES (9, 'new', 9, 'n')")

    told = [refusal(shop), refusal(shop)]

    assert all("public.orders is not the table that was read before" in one for one in told)
    assert "drop the Delta table" in told[0]
    (shop.folder / "orders").rename(shop.folder / "gone")
    shop.run(UPSERT)
    shop.agrees()


def test_a_schema_that_is_taken_out_of_the_publication_and_added_again_is_refused(shop: PostgresShop) -> None:
    filled(shop).execute(
        "CREATE PUBLICATION whole FOR TABLES IN SCHEMA public WITH (publish_via_partition_root = true)"
    )
    shop.run(UPSERT, "publication: whole")
    shop.run(UPSERT, "publication: whole")
    shop.execute(
        "ALTER PUBLICATION whole DROP TABLES IN SCHEMA public",
        "INSERT INTO orders VALUES (8, 'unseen', 8, 'n')",
        "ALTER PUBLICATION whole ADD TABLES IN SCHEMA public",
    )

    assert "was not published all the time" in refusal(shop, UPSERT, "publication: whole")


def test_a_publication_of_all_tables_that_is_created_again_is_noticed_and_the_printed_remedies_help(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From version 18 on, the server sends nothing of what is changed between; before, it fails."""
    options = "publication: every"
    filled(shop).execute("CREATE PUBLICATION every FOR ALL TABLES")
    monkeypatch.setattr(relations, "_BY_ALL", "(NULL::oid)")
    shop.run(UPSERT, options)
    monkeypatch.undo()
    # The mark of an earlier version is that of the same table.
    shop.execute("INSERT INTO orders VALUES (7, 'seen', 7, 'n')")
    shop.run(UPSERT, options)
    shop.execute(
        "DROP PUBLICATION every",
        "INSERT INTO orders VALUES (8, 'unseen', 8, 'n')",
        "CREATE PUBLICATION every FOR ALL TABLES",
    )

    assert "was not published all the time" in refusal(shop, UPSERT, options)
    with pytest.raises(SourceError, match=r'"every" does not exist\n.*`on_slot_loss: snapshot`') as failed:
        shop.run(UPSERT, f"{options}, on_recreate: snapshot")
    shop.execute(str(failed.value).partition("after this statement: ")[2])
    shop.run(UPSERT, f"{options}, on_slot_loss: snapshot")
    shop.agrees()


def test_keys_of_the_file_that_are_not_those_of_the_database_are_refused(shop: PostgresShop) -> None:
    shop.execute("CREATE TABLE orders (email text, v int)", "ALTER TABLE orders REPLICA IDENTITY FULL")
    shop.execute("INSERT INTO orders VALUES ('a', 1), ('b', 2)")
    keyed = "  orders: {path: orders, from: db, mode: upsert, keys: [email]}"

    with pytest.raises(LakefeedError, match="neither a primary key"):
        shop.run(keyed)
    shop.execute("ALTER TABLE orders ADD PRIMARY KEY (v)")
    with pytest.raises(LakefeedError, match=r"`keys` is email, but changes of .* name their row by v"):
        shop.run(keyed)
    pipeline = Pipeline.from_file(shop.file)
    (planned,) = plan_run(pipeline).tables
    assert planned.refused and "changes of public.orders name their row by v" in planned.refused
    told = {one.check: one for one in examine(pipeline) if one.state == "fail"}
    assert "changes of public.orders name their row by v" in told["table orders"].text
    assert told["table orders"].remedy == "Remove `keys`."
    # Told before anything was made at the server.
    assert shop.query("SELECT 1 FROM pg_replication_slots WHERE database = current_database()") == []
    shop.run(
        keyed.replace("[email]", "[number], rename: {v: number}, path: renamed").replace("path: orders, ", "")
    )
    shop.run(keyed.replace("email", "v"))
    shop.execute("UPDATE orders SET email = 'c' WHERE email = 'a'")
    shop.run(keyed.replace("email", "v"))

    assert shop.table("orders", "email", "v") == [("b", 2), ("c", 1)]
    shop.run("  firsts: {path: firsts, from: db, mode: deduplicate, keys: [email]}")
    assert shop.table("firsts", "email") == [("b",), ("c",)]


def test_columns_that_an_index_only_includes_are_no_key(shop: PostgresShop) -> None:
    shop.execute(
        "CREATE TABLE orders (id int, customer text, total numeric(10,2), note text, "
        "PRIMARY KEY (id) INCLUDE (customer))",
        "INSERT INTO orders VALUES (1, 'a', 1, 'n'), (2, 'b', 1, 'n')",
    )
    shop.run(UPSERT)
    shop.execute("UPDATE orders SET customer = 'z' WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    shop.run(UPSERT)

    shop.agrees()


def test_partitions_come_under_the_name_of_their_table(shop: PostgresShop) -> None:
    shop.execute(
        "CREATE TABLE ev (id int, at int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)",
        "CREATE TABLE ev1 PARTITION OF ev FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE ev2 PARTITION OF ev FOR VALUES FROM (10) TO (20)",
        "INSERT INTO ev VALUES (1, 1), (2, 12)",
    )
    shop.run(ROUTE, ALL)
    shop.execute("INSERT INTO ev VALUES (3, 1)")
    shop.run(ROUTE, ALL)

    assert shop.table("lake/public.ev", "id", "at") == [(1, 1), (2, 12), (3, 1)]
    assert [one.name for one in (shop.folder / "lake").iterdir()] == ["public.ev"]


def test_a_partition_that_is_meant_by_its_name_is_read_by_itself(shop: PostgresShop) -> None:
    shop.execute(
        "CREATE TABLE ev (id int, at int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)",
        "CREATE TABLE ev1 PARTITION OF ev FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE ev2 PARTITION OF ev FOR VALUES FROM (10) TO (20)",
        "INSERT INTO ev VALUES (1, 1), (2, 12)",
    )
    shop.run(ROUTE, "tables: public.ev1")
    shop.execute("INSERT INTO ev VALUES (3, 1), (4, 12)")
    shop.run(ROUTE, "tables: public.ev1")

    assert shop.table("lake/public.ev1", "id") == [(1,), (3,)]


def test_a_table_that_is_dropped_beside_others_does_not_stop_them(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    filled(shop).execute(ITEMS, "INSERT INTO items VALUES (1, 'x')")
    shop.run(ROUTE, ALL)
    shop.execute("DROP TABLE items")
    for number in (6, 7, 8):
        shop.execute(f"INSERT INTO orders VALUES ({number}, 'a', 1, 'n')")
        shop.run(ROUTE, ALL)

    assert len(shop.table("lake/public.orders", "id")) == 8
    said = "public.items is not there any more: it was dropped, or has another name."
    assert caplog.text.count(said) == 3
    shop.run(ROUTE, f"{ALL}, exclude: public.items")
    assert caplog.text.count(said) == 3
    shop.execute(ITEMS, "INSERT INTO items VALUES (2, 'new')")
    assert "public.items is not the table" in refusal(shop, ROUTE, ALL)


@pytest.mark.parametrize("snapshot", ["initial", "never"])
def test_a_table_that_is_empty_is_made_of_the_catalog_and_does_not_hold_the_slot(
    shop: PostgresShop, snapshot: str
) -> None:
    filled(shop).execute(ITEMS)

    assert not held(shop, TWO, f"{ALL}, snapshot: {snapshot}")

    assert shop.rows("items") == []
    names = DeltaTable(str(shop.folder / "items")).schema().to_arrow().names
    assert names[:2] == ["id", "v"] and "_unchanged" in names
    shop.execute("INSERT INTO items VALUES (1, 'first')")
    shop.run(TWO, f"{ALL}, snapshot: {snapshot}")
    assert shop.table("items", "id", "v") == [(1, "first")]


def test_plan_shows_the_columns_of_an_empty_table(shop: PostgresShop) -> None:
    shop.execute(ORDERS)

    (table,) = plan_run(Pipeline.from_file(shop.write(UPSERT))).tables

    assert "total decimal(10,2)" in table.columns, table


def test_a_table_of_a_route_that_is_empty_does_not_hold_the_slot(shop: PostgresShop) -> None:
    filled(shop).execute(ITEMS)

    assert not held(shop, ROUTE)


def held(shop: PostgresShop, tables: str, options: str = ALL) -> bool:
    """Whether the slot is where it was after two runs with a change each."""
    places = []
    for _ in range(2):
        shop.execute("UPDATE orders SET total = total + 1")
        shop.run(tables, options)
        places += shop.query(
            "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE database = current_database()"
        )
    return bool(places[0] == places[1])


def test_a_deferrable_primary_key_names_no_rows(shop: PostgresShop) -> None:
    shop.execute(ORDERS.replace("PRIMARY KEY", "PRIMARY KEY DEFERRABLE"))
    shop.execute("INSERT INTO orders VALUES (1, 'a', 1, 'n'), (2, 'b', 1, 'n')")

    with pytest.raises(SourceError, match="only a DEFERRABLE primary key"):
        shop.run(UPSERT)
    shop.execute("UPDATE orders SET total = 2", "ALTER TABLE orders REPLICA IDENTITY FULL")
    with pytest.raises(TableError, match=r"the primary key of public\.orders is DEFERRABLE"):
        shop.run(UPSERT)
    whole_rows = UPSERT.replace("upsert", "upsert, keys: all")
    shop.run(whole_rows)
    # While it goes on, two rows have one key, and the copy by that key would lose one of them.
    shop.execute("UPDATE orders SET id = id + 1", "INSERT INTO orders VALUES (1, 'c', 3, 'n')")
    shop.run(whole_rows)

    assert {row["_count"] for row in shop.rows("orders")} == {1}
    shop.agrees()


def test_large_changes_behind_small_ones_are_decoded_some_megabytes_at_a_time(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(shop).run(APPEND)
    shop.execute(
        "INSERT INTO orders SELECT i, 'a', 1, 'n' FROM generate_series(1001, 4000) i",
        "INSERT INTO orders SELECT i, 'a', 1, repeat('x', 30000) FROM generate_series(5001, 6500) i",
    )
    sizes: list[int] = []
    decode = postgres_read.Decoder.decode

    def measured(self: Any, messages: list[bytes]) -> Any:
        sizes.append(sum(map(len, messages)))
        return decode(self, messages)

    monkeypatch.setattr(postgres_read.Decoder, "decode", measured)
    shop.run(APPEND)

    assert max(sizes) <= 16 * 2**20 < sum(sizes)
    assert len(shop.table("orders", "id")) == 4505


@pytest.mark.parametrize(
    "text", ["host=h password=my s3cret", "postgresql://u:s3 cret@h:x/db", "postgresql://u:s3@cret@h/db"]
)
def test_a_connection_that_cannot_be_parsed_is_not_repeated(text: str) -> None:
    source = PostgresSource(connection=text, tables=("a.b",))

    with pytest.raises(SourceError) as caught:
        connect(source)

    assert "cannot be parsed" in str(caught.value)
    assert "cret" not in str(caught.value) and "cret" not in repr(source)
