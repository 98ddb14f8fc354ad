"""Postgres of other major versions than the one that all other tests run against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakefeed import Pipeline
from lakefeed.doctor.services import examine
from lakefeed.sources.postgres.replication.publication import published_of
from support.postgres import PostgresServer
from support.postgres_programs import VERSIONS
from support.postgres_shop import LARGE, ORDERS, UPSERT, PostgresShop
from support.processes import tail, wait_until

ALL = UPSERT + "\n  log: {path: log, from: db}\n  past: {path: past, from: db, mode: history}"


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_and_changes_of_each_version_arrive(version: str, tmp_path: Path) -> None:
    with PostgresServer(version=version) as server, server.database() as database:
        shop = PostgresShop(server, database, tmp_path)
        shop.execute(ORDERS, "ALTER TABLE orders ALTER note SET STORAGE EXTERNAL")
        shop.execute(f"INSERT INTO orders SELECT i, 'c', i, {LARGE} FROM generate_series(1, 50) i")
        shop.run(ALL)
        shop.execute(
            "UPDATE orders SET total = 5 WHERE id < 5",
            "UPDATE orders SET id = -id WHERE id = 7",
            "DELETE FROM orders WHERE id = 8",
            "BEGIN; INSERT INTO orders VALUES (60, 'd', 1, 'n'); SAVEPOINT one; DELETE FROM orders; "
            "ROLLBACK TO one; COMMIT",
            "ALTER TABLE orders ADD size int DEFAULT 5",
            "INSERT INTO orders VALUES (61, 'e', 1, 'n', 6)",
        )
        shop.run(ALL)

        shop.agrees("id, customer, total, note, size")
        assert len(shop.rows("log")) == 50 + 4 + 2 + 1 + 1 + 1
        assert [one for one in examine(Pipeline.from_file(shop.file)) if one.state == "fail"] == []
        shop.execute("TRUNCATE orders")
        shop.run(ALL)
        shop.agrees("id, customer, total, note, size")


@pytest.mark.parametrize("version", [None, *VERSIONS])
def test_what_a_publication_has_is_read_without_the_view_that_waits_for_locks(version: str | None) -> None:
    with PostgresServer(version=version) as server, server.database() as database:
        number = int(server.version)
        generated = ("", ", publish_generated_columns = stored") if number >= 18 else ("",)
        with server.connect(database) as connection:
            for statement in _TREES:
                connection.execute(statement.encode())
            oids = [oid for (oid,) in connection.execute("SELECT oid FROM pg_class")]
            columns = "attnames::text[], rowfilter" if number >= 15 else "NULL::text[], NULL"
            newer = _NEWER if number >= 15 else ()
            wanted = [
                (what, root, more) for what in (*_ANY, *newer) for root in ("on", "off") for more in generated
            ]
            for what, root, more in wanted:
                connection.execute(
                    f"CREATE PUBLICATION one {what} WITH (publish_via_partition_root = {root}{more})".encode()
                )
                view: Any = connection.execute(
                    f"SELECT schemaname || '.' || tablename, {columns} FROM pg_publication_tables".encode()
                )
                # The server lists generated columns before it publishes any.
                listed = {
                    stream: (
                        names and tuple(name for name in names if number >= 18 or name != "g"),
                        condition,
                    )
                    for stream, names, condition in view
                }
                found = published_of(connection, "one", oids)
                assert {name: (one.columns, one.filter) for name, one in found.items()} == listed, (
                    what,
                    root,
                )
                assert published_of(connection, "one").keys() == listed.keys()
                connection.execute("DROP PUBLICATION one")


_TREES = (
    "CREATE SCHEMA other",
    "CREATE TABLE plain (id int PRIMARY KEY, v text, g int GENERATED ALWAYS AS (id) STORED)",
    "ALTER TABLE plain ADD w int, DROP v",
    "CREATE TABLE other.days (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE TABLE day PARTITION OF other.days FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)",
    "CREATE TABLE other.hour PARTITION OF day FOR VALUES FROM (0) TO (5)",
    "CREATE TABLE parent (id int PRIMARY KEY)",
    "CREATE TABLE child () INHERITS (parent)",
    "CREATE UNLOGGED TABLE fleeting (id int)",
    "CREATE VIEW seen AS SELECT 1 AS x",
    "CREATE TABLE other.keyless (id int)",
)
_ANY = (
    "FOR ALL TABLES",
    "FOR TABLE plain, other.days, parent",
    "FOR TABLE ONLY parent, day",
    "FOR TABLE other.hour",
    "FOR TABLE other.days, day, other.hour",
    "",
)
_NEWER = (
    "FOR TABLES IN SCHEMA other",
    "FOR TABLES IN SCHEMA public",
    "FOR TABLE plain, TABLES IN SCHEMA other",
    "FOR TABLE plain (id) WHERE (id > 3)",
)


def test_a_synchronised_failover_slot_carries_on_at_the_standby(tmp_path: Path) -> None:
    """From PostgreSQL 17 on: no row is lost, doubled or read anew, whichever server is the primary."""
    settings = {"hot_standby_feedback": "on", "sync_replication_slots": "on", "primary_slot_name": "standby"}
    with PostgresServer(version="17") as primary:
        primary.execute("CREATE DATABASE shop")
        shop = PostgresShop(primary, "shop", tmp_path)
        shop.execute(ORDERS, "INSERT INTO orders SELECT i, 'c', i, 'n' FROM generate_series(1, 5) i")
        primary.execute("SELECT pg_create_physical_replication_slot('standby')")
        with primary.standby(settings) as standby:
            shop.connection = (
                f"host=127.0.0.1,127.0.0.1 port={primary.port},{standby.port} dbname=shop user=postgres "
                "target_session_attrs=read-write"
            )
            tables = UPSERT + "\n  log: {path: log, from: db}"
            shop.run(tables)

            def synchronised() -> bool:
                """The standby keeps the slot once that of the primary has come to where it can serve it."""
                shop.execute("UPDATE orders SET total = total + 1 WHERE id = 1")
                primary.execute("SELECT pg_log_standby_snapshot()")
                shop.run(tables)
                return standby.execute(_SYNCED) == [(True, False)]

            wait_until(synchronised, 120, lambda: f"the slot does not come:\n{tail(standby.log)}")
            shop.execute("INSERT INTO orders VALUES (6, 'six', 6, 'n')")
            end = primary.execute("SELECT pg_current_wal_flush_lsn()")[0][0]
            wait_until(
                lambda: standby.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", end)[0][0],
                120,
                lambda: "the standby does not follow",
            )

            primary.kill()
            standby.promote()
            shop.server = standby
            wait_until(
                lambda: not standby.execute("SELECT pg_is_in_recovery()")[0][0], 120, lambda: "not promoted"
            )
            shop.execute("DELETE FROM orders WHERE id = 2")
            shop.run(tables)

            shop.agrees()
            log = [row for row in shop.rows("log") if row["_op"] != "read"]
            updates = [row["total"] for row in log if row["_op"] == "update"]
            assert sorted(updates) == list(range(2, 2 + len(updates)))
            assert sorted((row["_op"], row["id"]) for row in log if row["id"] != 1) == [
                ("delete", 2),
                ("insert", 6),
            ]


_SYNCED = """
SELECT synced, temporary FROM pg_replication_slots WHERE slot_name = 'lakefeed_shop_db'
"""
