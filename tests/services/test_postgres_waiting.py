"""A start that waits for a transaction of somebody else says for whose, and what the server lacks, once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.engine.run_events import RunEvent, SourceTrouble
from lakefeed.errors import GaveUp, SourceUnavailable
from lakefeed.reprocess.snapshot import reading_anew
from lakefeed.sources.postgres import client as client_module
from lakefeed.sources.postgres.connection import connect, postgres_errors
from lakefeed.sources.postgres.replication import slot as slot_module
from lakefeed.sources.postgres.source import PostgresSource
from support.postgres import PostgresServer
from support.postgres_shop import ORDERS, UPSERT, PostgresShop
from support.processes import wait_until


@pytest.fixture
def shop(
    postgres: PostgresServer, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> PostgresShop:
    monkeypatch.setattr(slot_module, "_MAKING_SECONDS", 0.3)
    monkeypatch.setattr(client_module, "_LOCK_SECONDS", 1)
    monkeypatch.setattr(client_module, "_WAIT_SECONDS", 0.3)
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(ORDERS, "INSERT INTO orders VALUES (1, 'first', 1, 'n')")
    return shop


@contextmanager
def open_transaction(shop: PostgresShop, statement: str) -> Iterator[psycopg.Connection[Any]]:
    with closing(shop.server.connect(shop.database, autocommit=False, application_name="till")) as connection:
        connection.execute(statement.encode())
        yield connection


def test_start_that_waits_for_an_open_transaction_names_it_and_goes_on_when_it_ends(
    shop: PostgresShop,
) -> None:
    pipeline = Pipeline.from_file(shop.write(UPSERT))
    troubles: list[str] = []
    with open_transaction(shop, "INSERT INTO orders VALUES (2, 'second', 2, 'n')") as connection:
        pid = connection.info.backend_pid

        def watch(event: RunEvent) -> None:
            if isinstance(event, SourceTrouble) and event.text:
                troubles.append(event.text)
                # The remedy that is printed.
                shop.execute(event.text.partition("To end it: ")[2])

        run_inline(pipeline, watch)

    assert (
        troubles[0]
        .splitlines()[0]
        .startswith(
            f"source db: the server is still making the replication slot lakefeed_shop_db: it waits for the "
            f"transaction of process {pid} (postgres, till), idle in transaction for "
        )
    )
    assert troubles[0].splitlines()[0].endswith(": INSERT INTO orders VALUES (2, 'second', 2, 'n')")
    assert troubles[0].splitlines()[1] == f"To end it: SELECT pg_terminate_backend({pid});"
    shop.agrees()


def test_start_gives_up_in_time_and_the_next_one_finds_the_slot_that_the_server_went_on_to_make(
    shop: PostgresShop,
) -> None:
    pipeline = Pipeline.from_file(shop.write(UPSERT), ["give_up_after=500ms"])
    with open_transaction(shop, "INSERT INTO orders VALUES (2, 'second', 2, 'n')") as connection:
        with pytest.raises(GaveUp) as failed:
            run_inline(pipeline)
        (maker,) = shop.query("SELECT active_pid FROM pg_replication_slots WHERE confirmed_flush_lsn IS NULL")
        connection.execute("INSERT INTO orders VALUES (3, 'third', 3, 'n')")
        connection.commit()
        pid = connection.info.backend_pid
    shop.execute("INSERT INTO orders VALUES (4, 'fourth', 4, 'n')")

    shop.run(UPSERT)

    assert f"waits for the transaction of process {pid}" in str(failed.value)
    assert "Gave up after 500ms" in str(failed.value)
    assert maker is not None
    shop.agrees()


def test_prepared_transaction_that_a_start_waits_for_is_named(shop: PostgresShop) -> None:
    pipeline = Pipeline.from_file(shop.write(UPSERT), ["give_up_after=500ms"])
    shop.execute("BEGIN; INSERT INTO orders VALUES (2, 'second', 2, 'n'); PREPARE TRANSACTION 'it''s'")

    with pytest.raises(GaveUp) as failed:
        run_inline(pipeline)
    shop.execute("ROLLBACK PREPARED 'it''s'")

    assert "the transaction that postgres prepared " in str(failed.value)
    assert "COMMIT PREPARED 'it''s'; or ROLLBACK PREPARED 'it''s';" in str(failed.value)


def test_start_that_waits_for_a_lock_of_a_table_names_who_holds_it(shop: PostgresShop) -> None:
    pipeline = Pipeline.from_file(shop.write(UPSERT), ["give_up_after=500ms"])
    with open_transaction(shop, "ALTER TABLE orders ADD city text") as connection:
        with pytest.raises(GaveUp) as failed:
            run_inline(pipeline)
        pid = connection.info.backend_pid

    said = str(failed.value)
    assert (
        "source db: public.orders is locked by another transaction: it is read when that has ended. It waits "
        f"for the transaction of process {pid} (postgres, till), idle in transaction" in said
    )
    assert ": ALTER TABLE orders ADD city text\n" in said


@pytest.mark.parametrize("begins", ["snapshot command", "first start"])
def test_rows_that_wait_for_an_open_transaction_name_it_and_are_read_when_it_ends(
    shop: PostgresShop, begins: str
) -> None:
    """The slot is there already, so the server does not wait for the transaction."""
    options = "tables: public.orders"
    if begins == "first start":
        shop.execute(
            "CREATE PUBLICATION mine FOR TABLE orders",
            "SELECT pg_create_logical_replication_slot('mine', 'pgoutput')",
        )
        options += ", publication: mine, slot: mine"
    else:
        shop.run(UPSERT)
    troubles: list[str] = []
    with open_transaction(shop, "INSERT INTO orders VALUES (2, 'second', 2, 'n')") as connection:
        pid = connection.info.backend_pid

        def pipeline(*overrides: str) -> Pipeline:
            found = Pipeline.from_file(shop.write(UPSERT, options), overrides)
            return found if begins == "first start" else reading_anew(found, "db", ["public.orders"])[0]

        def watch(event: RunEvent) -> None:
            if isinstance(event, SourceTrouble) and event.text:
                troubles.append(event.text)
                shop.execute(event.text.partition("To end it: ")[2])

        with pytest.raises(
            GaveUp, match=f"It waits for the transaction of process {pid} .*\n.*\nGave up after 500ms"
        ):
            run_inline(pipeline("give_up_after=500ms"))
        run_inline(pipeline(), watch)

    first, second = troubles[0].splitlines()
    assert first.startswith(
        "source db: public.orders is read when transactions that were open before it was found have ended. "
        f"It waits for the transaction of process {pid} (postgres, till), idle in transaction for "
    )
    assert first.endswith(": INSERT INTO orders VALUES (2, 'second', 2, 'n')")
    assert second == f"To end it: SELECT pg_terminate_backend({pid});"
    assert len(troubles) == 1
    shop.agrees()


def test_prepared_transaction_that_rows_wait_for_is_named(shop: PostgresShop) -> None:
    shop.run(UPSERT)
    shop.execute("BEGIN; INSERT INTO orders VALUES (2, 'second', 2, 'n'); PREPARE TRANSACTION 'it''s'")
    overrides = ["give_up_after=500ms"]
    again, _ = reading_anew(Pipeline.from_file(shop.file, overrides), "db", ["public.orders"])

    with pytest.raises(GaveUp) as failed:
        run_inline(again)
    shop.execute(str(failed.value).partition("; or ")[2].partition("\n")[0])
    run_inline(again)

    assert "It waits for the transaction that postgres prepared " in str(failed.value)
    shop.agrees()


def test_warnings_about_the_server_are_logged_by_a_run_once(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.execute("CREATE PUBLICATION inserts FOR TABLE orders WITH (publish = 'insert')")

    # The table gets its columns, so the run connects more than once.
    shop.run(UPSERT, "tables: public.orders, publication: inserts")

    warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert [one for one in warnings if "inserts" in one] == [
        "source db: the publication inserts does not publish update, delete and truncate: they never arrive. "
        "ALTER PUBLICATION \"inserts\" SET (publish = 'insert, update, delete, truncate');"
    ]
    assert len([one for one in warnings if "max_slot_wal_keep_size is not set" in one]) == 1


def test_a_slot_that_the_server_is_about_to_give_up_is_told_while_a_run_goes_on(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.run(UPSERT)
    monkeypatch.setattr(client_module, "_LOOK_EVERY", 0.0)
    status = "SELECT wal_status FROM pg_replication_slots WHERE slot_name = 'lakefeed_shop_db'"
    with closing(Pipeline.from_file(shop.file).sources["db"].client("shop", "db")) as client:
        client.begin()
        assert "is lost at the next checkpoint" not in caplog.text
        # The server makes the next checkpoint by itself minutes after this one: it would give the slot up.
        shop.execute("CHECKPOINT")
        shop.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '16MB'", "SELECT pg_reload_conf()")
        try:
            for _ in range(4):
                shop.execute("UPDATE orders SET total = total + 1", "SELECT pg_switch_wal()")
            wait_until(lambda: shop.query(status) == [("unreserved",)], 120, lambda: str(shop.query(status)))
            for _ in range(2):
                client.latest()
        finally:
            shop.execute("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")

    said = (
        "the slot lakefeed_shop_db is behind by more than max_slot_wal_keep_size (16MB), and is lost at the"
    )
    assert caplog.text.count(f"source db: {said} next checkpoint. Let the pipeline run, end") == 1


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT pg_cancel_backend(pg_backend_pid())",
        "SELECT pg_terminate_backend(pg_backend_pid())",
        "DO $$ BEGIN RAISE 'canceling statement due to conflict with recovery' USING ERRCODE='40001'; END $$",
    ],
)
def test_a_statement_that_the_server_ends_is_tried_again(
    postgres: PostgresServer, database: str, statement: str
) -> None:
    source = PostgresSource(type="postgres", connection=postgres.dsn(database), tables=("public.orders",))

    with (
        closing(connect(source)) as connection,
        pytest.raises(SourceUnavailable, match=r"canceling|terminating"),
        postgres_errors(source),
    ):
        connection.execute(statement.encode())
