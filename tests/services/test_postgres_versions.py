"""Postgres of other major versions than the one that all other tests run against."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.doctor.services import examine
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

            wait_until(synchronised, 90, lambda: f"the slot does not come:\n{tail(standby.log)}")
            shop.execute("INSERT INTO orders VALUES (6, 'six', 6, 'n')")
            end = primary.execute("SELECT pg_current_wal_flush_lsn()")[0][0]
            wait_until(
                lambda: standby.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", end)[0][0],
                60,
                lambda: "the standby does not follow",
            )

            primary.kill()
            standby.promote()
            shop.server = standby
            wait_until(
                lambda: not standby.execute("SELECT pg_is_in_recovery()")[0][0], 60, lambda: "not promoted"
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
