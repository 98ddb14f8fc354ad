"""Postgres into tables: the rows that are there, and every change behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakefeed import DataLoss, Pipeline, SourceError, TableError
from lakefeed.engine.inline import run_inline
from lakefeed.reports.verify import verify
from lakefeed.reprocess.snapshot import reading_anew
from lakefeed.sources import source_of
from lakefeed.tables.table import commit_info_of
from support.postgres import PostgresServer
from support.postgres_programs import postgres_version

ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, customer text, total numeric(10,2), note text)"


class Shop:
    """A database, and a pipeline that reads it."""

    def __init__(self, server: PostgresServer, database: str, folder: Path) -> None:
        self.server, self.database, self.folder = server, database, folder

    def execute(self, *statements: str) -> None:
        for one in statements:
            self.server.execute(one, database=self.database)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.server.execute(query, database=self.database)

    def pipeline(self, tables: str, options: str = "tables: public.orders") -> Pipeline:
        file = self.folder / "shop.yaml"
        file.write_text(
            f"""\
name: shop
give_up_after: 5s
sources: {{db: {{type: postgres, connection: "{self.server.dsn(self.database)}", {options}}}}}
tables:
{tables}
"""
        )
        return Pipeline.from_file(file)

    def run(self, tables: str, options: str = "tables: public.orders") -> Pipeline:
        pipeline = self.pipeline(tables, options)
        run_inline(pipeline)
        return pipeline

    def table(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        rows = DeltaTable(str(self.folder / name)).to_pyarrow_table().to_pylist()
        return sorted(tuple(row[one] for one in columns) for row in rows)


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> Shop:
    return Shop(postgres, database, tmp_path)


APPEND = "  orders: {path: orders, from: db}"
UPSERT = "  orders: {path: orders, from: db, mode: upsert}"


def test_rows_and_then_changes_land_once_in_an_append_table(shop: Shop) -> None:
    shop.execute(ORDERS, "INSERT INTO orders SELECT i, 'c' || i, i, 'n' FROM generate_series(1, 5) i")

    shop.run(APPEND)
    shop.execute(
        "INSERT INTO orders VALUES (6, 'six', 6.5, null)", "UPDATE orders SET total = 9 WHERE id = 1"
    )
    shop.execute("DELETE FROM orders WHERE id = 2")
    shop.run(APPEND)
    pipeline = shop.run(APPEND)

    read = [(number, "read") for number in range(1, 6)]
    assert shop.table("orders", "id", "_op") == sorted([*read, (1, "update"), (2, "delete"), (6, "insert")])
    assert verify(pipeline).sound


def test_upsert_table_is_the_table(shop: Shop) -> None:
    shop.execute(ORDERS, "INSERT INTO orders SELECT i, 'c' || i, i, 'n' FROM generate_series(1, 5) i")

    shop.run(UPSERT)
    shop.execute(
        "INSERT INTO orders VALUES (6, 'six', 6.5, null)",
        "UPDATE orders SET id = 10, total = 3 WHERE id = 3",
        "BEGIN; DELETE FROM orders WHERE id = 2; INSERT INTO orders VALUES (2, 'again', 1, 'x'); "
        "UPDATE orders SET note = 'y' WHERE id = 2; COMMIT",
        "DELETE FROM orders WHERE id = 4",
    )
    pipeline = shop.run(UPSERT)

    wanted = shop.rows("SELECT id, customer, total, note FROM orders ORDER BY id")
    assert shop.table("orders", "id", "customer", "total", "note") == wanted
    assert verify(pipeline).sound


def test_large_values_that_an_update_leaves_alone_are_kept(shop: Shop) -> None:
    """In the batch of the insert, and of an old row; a log of changes names what it does not know."""
    large = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 400) i)"
    shop.execute(ORDERS, f"INSERT INTO orders SELECT i, {large}, i, {large} FROM generate_series(1, 3) i")
    shop.execute("ALTER TABLE orders ALTER note SET STORAGE EXTERNAL, ALTER customer SET STORAGE EXTERNAL")
    tables = "  orders: {path: orders, from: db, mode: upsert}\n  log: {path: log, from: db}"

    shop.run(tables)
    shop.execute(
        "UPDATE orders SET total = 100 WHERE id = 1",
        f"BEGIN; INSERT INTO orders VALUES (4, {large}, 1, {large}); "
        "UPDATE orders SET total = 7 WHERE id = 4; COMMIT",
        "UPDATE orders SET note = 'short' WHERE id = 2",
        "UPDATE orders SET id = 30 WHERE id = 3",
    )
    shop.run(tables)

    wanted = shop.rows("SELECT id, customer, total, note FROM orders ORDER BY id")
    assert shop.table("orders", "id", "customer", "total", "note") == wanted
    silent = DeltaTable(str(shop.folder / "log")).to_pyarrow_table().to_pylist()
    told = {row["id"]: (row["_unchanged"], row["customer"]) for row in silent if row["_op"] == "update"}
    assert told == {
        1: (["customer", "note"], None),
        4: (["customer", "note"], None),
        2: (["customer"], None),
    }


def test_truncation_of_two_tables_empties_both_at_that_point(shop: Shop) -> None:
    shop.execute(ORDERS, "CREATE TABLE items (id int PRIMARY KEY, order_id int REFERENCES orders)")
    shop.execute("INSERT INTO orders VALUES (1, 'a', 1, null)", "INSERT INTO items VALUES (1, 1), (2, 1)")
    tables = """\
  orders: {path: orders, from: db, mode: upsert, streams: [public.orders]}
  items: {path: items, from: db, mode: upsert, streams: [public.items]}"""
    options = "tables: public.*"

    shop.run(tables, options)
    shop.execute("TRUNCATE orders CASCADE", "INSERT INTO orders VALUES (7, 'after', 1, null)")
    pipeline = shop.run(tables, options)

    assert shop.table("orders", "id", "customer") == [(7, "after")]
    assert shop.table("items", "id") == []
    assert verify(pipeline).sound


def test_route_makes_a_table_for_each_table_of_the_database(shop: Shop) -> None:
    shop.execute(ORDERS, "CREATE TABLE items (id int PRIMARY KEY, name text)")
    shop.execute("INSERT INTO orders VALUES (1, 'a', 1, null)", "INSERT INTO items VALUES (1, 'x'), (2, 'y')")
    tables = "  all: {route: 'lake/{_stream}', from: db, mode: upsert}"

    shop.run(tables, "tables: public.*")
    shop.execute("UPDATE items SET name = 'z' WHERE id = 2", "DELETE FROM orders")
    shop.run(tables, "tables: public.*")

    assert shop.table("lake/public.items", "id", "name") == [(1, "x"), (2, "z")]
    assert shop.table("lake/public.orders", "id") == []


def test_history_has_every_state(shop: Shop) -> None:
    shop.execute(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1, null)")
    tables = "  orders: {path: orders, from: db, mode: history}"

    shop.run(tables)
    shop.execute("UPDATE orders SET customer = 'b'", "UPDATE orders SET customer = 'c'", "DELETE FROM orders")
    shop.run(tables)

    rows = DeltaTable(str(shop.folder / "orders")).to_pyarrow_table().to_pylist()
    rows.sort(key=lambda row: (row["valid_from"]["_lsn"], row["valid_from"]["_ordinal"]))
    assert [row["customer"] for row in rows] == ["a", "b", "c"]
    assert [row["valid_to"] is None for row in rows] == [False, False, False]


def test_snapshot_in_chunks_takes_changes_that_come_meanwhile_once(shop: Shop) -> None:
    """Each batch reads 40 keys, and between batches rows before, in and behind the next chunk change."""
    shop.execute(
        ORDERS, "INSERT INTO orders SELECT i, 'c', 0, 'n' FROM generate_series(1, 200) i", "ANALYZE orders"
    )
    tables = (
        "  orders: {path: orders, from: db, mode: upsert}\n  log: {path: log, from: db}\nflush: {rows: 40}"
    )
    batches = 0

    def meddle(event: object) -> None:
        nonlocal batches
        if type(event).__name__ == "BatchDone":
            batches += 1
            shop.execute(
                "UPDATE orders SET total = total + 1 WHERE id % 7 = 0",
                f"UPDATE orders SET id = -id WHERE id = {batches * 41 % 200 + 1}",
                f"DELETE FROM orders WHERE id = {batches * 37 % 200}",
                f"INSERT INTO orders VALUES ({1000 + batches}, 'new', 0, null)",
            )

    run_inline(shop.pipeline(tables), meddle)
    pipeline = shop.run(tables)

    wanted = shop.rows("SELECT id, customer, total, note FROM orders ORDER BY id")
    assert batches > 5
    assert shop.table("orders", "id", "customer", "total", "note") == wanted
    assert replayed(shop.folder / "log") == {row[0]: row[2] for row in wanted}
    assert verify(pipeline).sound


def replayed(path: Path) -> dict[int, Any]:
    """What the changes of an append table make of nothing; each must fit the state before it."""
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    state: dict[int, Any] = {}
    for row in sorted(rows, key=lambda row: (row["_lsn"], row["_ordinal"])):
        if row["_op"] == "truncate":
            state.clear()
        elif row["_op"] == "delete":
            state.pop(row["id"])
        elif row["_op"] == "update":
            assert row["id"] in state, row
            assert row["total"] != state[row["id"]] or row["_unchanged"] is None
            state[row["id"]] = row["total"]
        else:
            assert row["id"] not in state, row
            state[row["id"]] = row["total"]
    return state


def test_slot_that_was_moved_on_by_hand_stops_with_both_numbers(shop: Shop) -> None:
    shop.execute(ORDERS, "INSERT INTO orders VALUES (0, 'there', 1, null)")
    shop.run(APPEND)
    shop.execute("INSERT INTO orders VALUES (1, 'lost', 1, null)")
    shop.execute("SELECT pg_replication_slot_advance('lakefeed_shop_db', pg_current_wal_lsn())")

    with pytest.raises(
        DataLoss,
        match=r"has read public.orders up to \w+/\w+, but the replication slot lakefeed_shop_db begins at",
    ):
        shop.run(APPEND)


def test_slot_that_is_gone_stops_or_reads_the_rows_anew(shop: Shop) -> None:
    shop.execute(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1, null), (2, 'b', 1, null)")
    shop.run(UPSERT)
    shop.execute("SELECT pg_drop_replication_slot('lakefeed_shop_db')", "DELETE FROM orders WHERE id = 1")
    shop.execute("INSERT INTO orders VALUES (3, 'c', 1, null)")

    with pytest.raises(DataLoss, match="slot lakefeed_shop_db is gone"):
        shop.run(UPSERT)
    pipeline = shop.run(UPSERT, "tables: public.orders, on_slot_loss: snapshot")
    shop.execute("INSERT INTO orders VALUES (4, 'd', 1, null)")
    shop.run(UPSERT, "tables: public.orders, on_slot_loss: snapshot")

    assert shop.table("orders", "id") == [(2,), (3,), (4,)]
    assert verify(pipeline).sound


def test_table_that_comes_later_is_read_whole_while_others_go_on(shop: Shop) -> None:
    shop.execute(ORDERS, "CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    tables = "  all: {route: 'lake/{_stream}', from: db}"
    shop.run(tables, "tables: [public.items]")
    shop.execute("INSERT INTO orders VALUES (1, 'a', 1, null)", "INSERT INTO items VALUES (2)")

    shop.run(tables, "tables: [public.items, public.orders]")
    shop.execute("INSERT INTO orders VALUES (2, 'a', 1, null)")
    shop.run(tables, "tables: [public.items, public.orders]")

    assert shop.table("lake/public.items", "id", "_op") == [(1, "read"), (2, "insert")]
    assert shop.table("lake/public.orders", "id", "_op") == [(1, "read"), (2, "insert")]


def test_table_without_a_key_is_appended_and_not_upserted(shop: Shop) -> None:
    shop.execute("CREATE TABLE orders (id int)", "INSERT INTO orders VALUES (1), (1)")
    with pytest.raises(SourceError, match=r"ALTER TABLE public\.orders REPLICA IDENTITY FULL"):
        shop.run(APPEND)
    shop.execute("ALTER TABLE orders REPLICA IDENTITY FULL")

    shop.run(APPEND)
    shop.execute("INSERT INTO orders VALUES (1)")
    shop.run(APPEND)
    with pytest.raises(TableError, match=r"ALTER TABLE public\.orders"):
        shop.run(UPSERT.replace("path: orders", "path: other"))

    assert shop.table("orders", "id", "_op") == [(1, "insert"), (1, "read"), (1, "read")]


@pytest.mark.skipif(int(postgres_version()) < 15, reason="publications have row filters since PostgreSQL 15")
def test_new_column_and_row_filter(shop: Shop) -> None:
    shop.execute(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1, null), (2, 'b', 1, null)")
    shop.execute("CREATE PUBLICATION own FOR TABLE orders WHERE (id < 100)")
    shop.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    shop.run(UPSERT, "publication: own")
    shop.execute(
        "ALTER TABLE orders ADD size int DEFAULT 5", "INSERT INTO orders VALUES (3, 'c', 1, null, 7)"
    )
    shop.execute(
        "INSERT INTO orders VALUES (200, 'd', 1, null, 7)", "UPDATE orders SET id = 300 WHERE id = 2"
    )
    shop.run(UPSERT, "publication: own")

    assert shop.table("orders", "id", "customer") == [(1, "a"), (3, "c")]


def test_many_changes_between_two_near_commits_are_proven(shop: Shop) -> None:
    """A long transaction commits right behind a short one: more events than bytes lie between the two."""
    shop.execute(ORDERS, "INSERT INTO orders VALUES (0, 'a', 1, null)")
    shop.run(APPEND)
    with shop.server.connect(shop.database, autocommit=False) as slow:
        slow.execute("INSERT INTO orders SELECT i, 'c', 0, 'n' FROM generate_series(1, 2000) i")
        shop.execute("INSERT INTO orders VALUES (9999, 'short', 1, null)")
        shop.run(APPEND)
        slow.commit()
    pipeline = shop.run(APPEND)

    assert len(shop.table("orders", "id")) == 2002
    assert verify(pipeline, deep=True).sound


def changes_of(shop: Shop) -> int:
    """How many commits have more than a position, which the server's own WAL moves at any time."""
    history = DeltaTable(str(shop.folder / "orders")).history()
    return sum(commit_info_of(one).get("kind") != "position" for one in history)


def test_snapshot_command_replaces_the_rows_in_one_commit(shop: Shop) -> None:
    shop.execute(ORDERS, "INSERT INTO orders SELECT i, 'c', 0, 'n' FROM generate_series(1, 3) i")
    pipeline = shop.run(UPSERT)
    # What nobody tells of: a change without an event.
    shop.execute(
        "SET session_replication_role = replica; ALTER TABLE orders ALTER total TYPE int USING total + 1"
    )
    before = changes_of(shop)

    again, streams = reading_anew(pipeline, "db", [])
    run_inline(again)

    assert streams == ["public.orders"]
    assert shop.table("orders", "id", "total") == [(1, 1), (2, 1), (3, 1)]
    assert changes_of(shop) == before + 1
    proof = verify(pipeline)
    assert proof.sound and any(
        "the next expected offset was all rows, reading continued at the beginning" in note
        for note in proof.tables[0].notes
    )
    shop.execute("DELETE FROM orders WHERE id = 2")
    shop.run(UPSERT)
    assert shop.table("orders", "id") == [(1,), (3,)]


def test_snapshot_command_reads_once_where_nothing_was_written_since_the_last_run(shop: Shop) -> None:
    shop.execute(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1, null)")
    pipeline = shop.run(APPEND)

    again, _ = reading_anew(pipeline, "db", [])
    run_inline(again)
    run_inline(again)

    assert shop.table("orders", "_op") == [("read",), ("read",), ("truncate",)]
    assert verify(pipeline).sound


def test_client_tells_how_much_wal_waits_and_is_kept(shop: Shop) -> None:
    shop.execute(ORDERS, "INSERT INTO orders VALUES (1, 'a', 1, null)")
    pipeline = shop.run(APPEND)
    client = source_of(pipeline, "db").client(pipeline.name, "db")
    position = client.latest()
    shop.execute("INSERT INTO orders SELECT i, 'c', 0, 'n' FROM generate_series(2, 2000) i")

    ends = client.latest()
    told = client.outstanding(position, ends)
    client.close()

    assert told is not None and told.retained is not None
    assert told.retained >= told.bytes > 2000 * 50
    assert told.headroom is None
