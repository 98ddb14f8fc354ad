"""A long stretch of a slot is read in steps out of a copy of it, and says what one look at the slot says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from lakefeed.sources.postgres.connection import Connection
from lakefeed.sources.postgres.positions import lsn_number
from lakefeed.sources.postgres.replication import ahead, slot_messages
from lakefeed.sources.postgres.replication.slot_messages import messages
from lakefeed.sources.postgres.replication.stream import streamed
from lakefeed.sources.postgres.source import PostgresSource
from support.postgres import PostgresServer
from support.postgres_shop import LARGE, ORDERS, UPSERT, PostgresShop

PEEKED, STEPPED = "pg_logical_slot_peek_binary_changes", "pg_logical_slot_get_binary_changes"
ROWS = "INSERT INTO orders SELECT i, 'c' || i, i, repeat('x', 100) FROM generate_series({}, {}) i"
RELATION = ord("R")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Steps are short; with which function each question was asked."""
    found: list[str] = []
    given = slot_messages._given

    def noted(connection: Connection, function: str, *rest: object) -> Iterator[list[bytes]]:
        found.append(function)
        return given(connection, function, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(slot_messages, "_SHORTEST_STEP", 30_000)
    monkeypatch.setattr(slot_messages, "_given", noted)
    return found


def with_slot(server: PostgresServer, database: str, name: str) -> Connection:
    connection = server.connect(database)
    connection.execute(ORDERS.encode())
    connection.execute("CREATE TABLE other (id int)")
    connection.execute("CREATE PUBLICATION p FOR TABLE orders")
    connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
    return connection


def end_of(connection: Connection) -> int:
    row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    assert row is not None
    return lsn_number(row[0])


def slots(connection: Connection, name: str) -> list[tuple[object, ...]]:
    query = "SELECT slot_name, confirmed_flush_lsn FROM pg_replication_slots WHERE database = %s"
    return connection.execute(query, [name]).fetchall()


def no_stream(start: int) -> Iterator[list[bytes]]:
    raise AssertionError(f"asked for a stream from {start} on")


def test_changes_that_wait_for_a_standby_are_peeked(asked: list[str]) -> None:
    """A copy is no failover slot, so the server would give out of it what a failover may lose."""
    settings = {"synchronized_standby_slots": "standby"}
    with (
        PostgresServer(settings, version="17") as server,
        server.database() as database,
        with_slot(server, database, "plain") as connection,
        server.connect(database) as reading,
    ):
        connection.execute("SELECT pg_create_physical_replication_slot('standby')")
        connection.execute("SELECT pg_create_logical_replication_slot('slot', 'pgoutput', failover => true)")
        connection.execute(ROWS.format(1, 1000).encode())
        reading.execute("SET statement_timeout = '2s'")

        with pytest.raises(psycopg.errors.QueryCanceled):
            list(messages(reading, "slot", "p", end_of(connection), no_stream))
        reading.close()

    assert asked == [PEEKED]


def test_steps_give_what_one_peek_gives(postgres: PostgresServer, database: str, asked: list[str]) -> None:
    name = f"steps_{database}"
    with with_slot(postgres, database, name) as connection, postgres.connect(database) as long:
        long.execute("BEGIN")
        for at in range(0, 2_000, 100):
            long.execute("INSERT INTO orders VALUES (%s, 'long', 1, 'n')", [100_000 + at])
            connection.execute(ROWS.format(at, at + 99).encode())
            connection.execute(f"UPDATE orders SET note = {LARGE} WHERE id = {at}".encode())
            connection.execute("UPDATE orders SET id = -id, total = 0 WHERE id = %s", [at])
        long.execute("SAVEPOINT s")
        long.execute("DELETE FROM orders WHERE id > 0")
        long.execute("ROLLBACK TO s")
        connection.execute("INSERT INTO other SELECT generate_series(1, 3000)")
        long.execute("COMMIT")
        connection.execute("ALTER TABLE orders ADD city text DEFAULT 'Bern'")
        connection.execute("TRUNCATE orders")
        connection.execute(ROWS.format(1, 500).encode())
        end, before = end_of(connection), slots(connection, database)

        stepped = [one for piece in messages(connection, name, "p", end, no_stream) for one in piece]

        given = "(%s, NULL, NULL, 'proto_version', '1', 'publication_names', 'p')"
        with connection.cursor(binary=True) as cursor:
            whole = [row[0] for row in cursor.execute(f"SELECT data FROM {PEEKED}{given}".encode(), [name])]
        assert asked.count(STEPPED) > 5 and PEEKED not in asked
        # A table is described anew in each step.
        assert [one for one in stepped if one[0] != RELATION] == [one for one in whole if one[0] != RELATION]
        assert slots(connection, database) == before


def test_transaction_longer_than_a_step_is_asked_for_with_all_the_rest(
    postgres: PostgresServer, database: str, asked: list[str]
) -> None:
    name = f"steps_{database}"
    with with_slot(postgres, database, name) as connection:
        connection.execute(ROWS.format(1, 20_000).encode())

        found = sum(map(len, messages(connection, name, "p", end_of(connection), no_stream)))

        assert found == 20_000 + 3 and asked == [STEPPED] * 2


def test_short_stretch_is_peeked(postgres: PostgresServer, database: str, asked: list[str]) -> None:
    name = f"steps_{database}"
    with with_slot(postgres, database, name) as connection:
        connection.execute(ROWS.format(1, 10).encode())

        found = sum(map(len, messages(connection, name, "p", end_of(connection), no_stream)))

        assert found == 10 + 3 and asked == [PEEKED]


def test_server_without_a_free_slot_is_peeked(asked: list[str]) -> None:
    with PostgresServer({"max_replication_slots": "1"}) as server:
        with with_slot(server, "postgres", "only") as connection:
            connection.execute(ROWS.format(1, 2_000).encode())

            found = sum(map(len, messages(connection, "only", "p", end_of(connection), no_stream)))

        assert found == 2_000 + 3 and asked == [PEEKED]


def test_nothing_is_left_when_a_reader_leaves_in_the_middle(
    postgres: PostgresServer, database: str, asked: list[str]
) -> None:
    name = f"steps_{database}"
    with with_slot(postgres, database, name) as connection:
        for at in range(0, 5_000, 100):
            connection.execute(ROWS.format(at, at + 99).encode())
        end, before = end_of(connection), slots(connection, database)
        with closing(postgres.connect(database)) as reading:
            read = messages(reading, name, "p", end, no_stream)
            next(read)
            read.close()

        assert not [one for one in threading.enumerate() if one.name == "postgres-ahead"]
        for _ in range(1200):
            if slots(connection, database) == before:
                break
            connection.execute("SELECT pg_sleep(0.05)")
        assert slots(connection, database) == before


def test_reader_whose_server_process_ends_is_told(
    postgres: PostgresServer, database: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "_MOST_BYTES", 1)
    name = f"steps_{database}"
    with with_slot(postgres, database, name) as connection:
        for at in range(0, 5_000, 100):
            connection.execute(ROWS.format(at, at + 99).encode())
        with closing(postgres.connect(database)) as reading:
            read = messages(reading, name, "p", end_of(connection), no_stream)
            next(read)
            connection.execute("SELECT pg_terminate_backend(%s)", [reading.info.backend_pid])

            with pytest.raises(psycopg.Error, match=r"clos|terminat"):
                sum(map(len, read))


def test_table_that_is_read_in_steps_is_that_of_the_database(
    postgres: PostgresServer, database: str, tmp_path: Path, asked: list[str]
) -> None:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(ORDERS, "INSERT INTO orders VALUES (0, 'first', 1, 'n')")
    shop.run(UPSERT)
    shop.execute(*(ROWS.format(at, at + 99) for at in range(1, 3_000, 100)))
    shop.execute("UPDATE orders SET id = id + 10000 WHERE id % 3 = 0", "DELETE FROM orders WHERE id % 7 = 0")

    shop.run(UPSERT)

    assert STEPPED in asked
    shop.agrees()


def commit_lsns(messages: list[bytes]) -> list[int]:
    return [int.from_bytes(one[1:9]) for one in messages if one[:1] == b"B"]


def test_transaction_that_does_not_fit_into_temporary_files_is_streamed(
    postgres: PostgresServer, database: str, asked: list[str]
) -> None:
    name = f"steps_{database}"
    source = PostgresSource(connection=postgres.dsn(database), tables=("public.orders",))
    with with_slot(postgres, database, name) as connection, postgres.connect(database) as reading:
        for at in range(0, 1_000, 100):
            connection.execute(ROWS.format(at, at + 99).encode())
        connection.execute(ROWS.format(1_000, 8_000).encode())
        connection.execute("INSERT INTO other VALUES (1)")
        connection.execute(ROWS.format(8_001, 8_002).encode())
        end, before = end_of(connection), slots(connection, database)
        given = "(%s, NULL, NULL, 'proto_version', '1', 'publication_names', 'p')"
        with connection.cursor(binary=True) as cursor:
            whole = [row[0] for row in cursor.execute(f"SELECT data FROM {PEEKED}{given}".encode(), [name])]
        reading.execute("SET work_mem = '64kB'")
        reading.execute("SET temp_file_limit = '100kB'")
        starts: list[int] = []

        def stream(start: int) -> Iterator[list[bytes]]:
            starts.append(start)
            return streamed(source, name, "p", start, end)

        found = [one for piece in messages(reading, name, "p", end, stream) for one in piece]

        assert [one for one in found if one[0] != RELATION] == [one for one in whole if one[0] != RELATION]
        # Steps before the large transaction were given already, and a stream begins behind them.
        assert STEPPED in asked and starts[0] > commit_lsns(whole)[0]
        # As for a peek, the commit LSN counts, and the end does not belong to it.
        last = commit_lsns(whole)[-1]
        for until, many in ((last, -1), (last + 1, None)):
            part = [one for piece in streamed(source, name, "p", last - 1, until) for one in piece]
            assert commit_lsns(part) == commit_lsns(whole)[-1:][:many]
        assert slots(connection, database) == before


def test_table_whose_transaction_does_not_fit_into_temporary_files_is_that_of_the_database(
    postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(ORDERS, "INSERT INTO orders VALUES (0, 'first', 1, 'n')")
    shop.run(UPSERT)
    shop.execute(
        f"ALTER DATABASE {database} SET temp_file_limit = '100kB'",
        f"ALTER DATABASE {database} SET work_mem = '64kB'",
        ROWS.format(1, 5_000),
        "UPDATE orders SET customer = 'changed' WHERE id % 2 = 0",
        "DELETE FROM orders WHERE id % 3 = 0",
    )

    shop.run_until_killed("files_written")
    shop.run(UPSERT)

    shop.agrees()
