"""Postgres into tables, the cases in which others have lost rows, doubled them, or made them null."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.errors import LakefeedError
from lakefeed.sources.postgres.positions import lsn_number
from support.postgres import PostgresServer
from support.postgres_shop import APPEND, LARGE, ORDERS, UPSERT, PostgresShop
from support.processes import wait_until

BOTH = UPSERT + "\n  log: {path: log, from: db}"


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    return PostgresShop(postgres, database, tmp_path)


def filled(shop: PostgresShop, rows: int = 5) -> PostgresShop:
    shop.execute(ORDERS, f"INSERT INTO orders SELECT i, 'c' || i, i, 'n' FROM generate_series(1, {rows}) i")
    return shop


def slot_of(shop: PostgresShop) -> str:
    return str(
        shop.query("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")[0][0]
    )


def confirmed(shop: PostgresShop) -> str:
    return str(
        shop.query(
            "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE database = current_database()"
        )[0][0]
    )


def needed(shop: PostgresShop) -> str:
    """What the slot keeps of the server: where it needs less, an acknowledgement is durable."""
    query = "SELECT restart_lsn, catalog_xmin FROM pg_replication_slots WHERE database = current_database()"
    return str(shop.query(query))


def refusal(shop: PostgresShop, tables: str = UPSERT, options: str = "tables: public.orders") -> str:
    with pytest.raises(LakefeedError) as caught:
        shop.run(tables, options)
    return str(caught.value)


def test_a_run_that_is_killed_between_commit_and_acknowledgement_repeats_nothing(shop: PostgresShop) -> None:
    filled(shop).run(BOTH)
    shop.execute("INSERT INTO orders VALUES (6, 'six', 6, 'n')", "UPDATE orders SET total = 9 WHERE id = 1")
    before = confirmed(shop)

    shop.run_until_killed("batch_committed:1")
    assert confirmed(shop) == before
    shop.execute("DELETE FROM orders WHERE id = 2")
    shop.run(BOTH)

    shop.agrees()
    changes = [(row["_op"], row["id"]) for row in shop.rows("log") if row["_op"] != "read"]
    assert sorted(changes) == [("delete", 2), ("insert", 6), ("update", 1)]


def test_a_server_that_forgets_an_acknowledgement_in_a_crash_sends_again_what_is_dropped(
    tmp_path: Path,
) -> None:
    with PostgresServer({"checkpoint_timeout": "1h"}) as server, server.database() as database:
        shop = filled(PostgresShop(server, database, tmp_path))
        shop.run(BOTH)
        server.execute("CHECKPOINT")
        # The first one behind a checkpoint is durable, as the slot needs less WAL from then on. So is the
        # first one behind what the server writes into its WAL by itself, every 15 seconds.
        inserted, kept = [], ""
        while not inserted or kept != needed(shop):
            kept = needed(shop)
            inserted.append(55 + len(inserted))
            shop.execute(f"INSERT INTO orders VALUES ({inserted[-1]}, 'more', 6, 'n')")
            shop.run(BOTH)
        acknowledged = confirmed(shop)

        server.kill()
        server.start()
        forgotten = confirmed(shop)
        shop.execute("INSERT INTO orders VALUES (7, 'seven', 7, 'n')")
        shop.run(BOTH)

        shop.agrees()
        assert lsn_number(forgotten) < lsn_number(acknowledged)
        assert [row["id"] for row in in_order(shop) if row["_op"] == "insert"] == [*inserted, 7]


def test_a_slot_that_somebody_moved_on_is_told_with_both_positions(shop: PostgresShop) -> None:
    filled(shop).run(UPSERT)
    held = confirmed(shop)
    shop.execute("INSERT INTO orders VALUES (6, 'lost', 6, 'n')")
    shop.execute(f"SELECT pg_replication_slot_advance('{slot_of(shop)}', pg_current_wal_flush_lsn())")

    told = refusal(shop)

    assert slot_of(shop) in told and confirmed(shop) in told
    assert "are lost" in told
    assert held != confirmed(shop)
    assert shop.table("orders", "id") == [(1,), (2,), (3,), (4,), (5,)]


def test_a_slot_that_was_made_anew_is_told(shop: PostgresShop) -> None:
    filled(shop).run(UPSERT)
    slot = slot_of(shop)
    shop.execute(
        f"SELECT pg_drop_replication_slot('{slot}')", "INSERT INTO orders VALUES (6, 'lost', 6, 'n')"
    )

    gone = refusal(shop)
    shop.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    made_anew = refusal(shop)

    assert f"the replication slot {slot} is gone" in gone
    assert f"{slot} begins at {confirmed(shop)}" in made_anew


def test_a_lost_slot_is_replaced_by_a_snapshot_where_the_file_says_so(shop: PostgresShop) -> None:
    options = "tables: public.orders, on_slot_loss: snapshot"
    filled(shop).run(UPSERT, options)
    shop.execute(f"SELECT pg_drop_replication_slot('{slot_of(shop)}')")
    shop.execute("INSERT INTO orders VALUES (6, 'six', 6, 'n')", "DELETE FROM orders WHERE id = 1")

    shop.run(UPSERT, options)
    shop.execute("UPDATE orders SET total = 60 WHERE id = 6")
    shop.run(UPSERT, options)

    shop.agrees()


def test_unchanged_large_values_are_kept_whatever_happened_to_their_row(shop: PostgresShop) -> None:
    shop.execute(ORDERS, "ALTER TABLE orders ALTER note SET STORAGE EXTERNAL")
    shop.execute(f"INSERT INTO orders SELECT i, 'c', i, {LARGE} FROM generate_series(1, 4) i")
    shop.run(UPSERT)

    shop.execute(
        "UPDATE orders SET total = 10 WHERE id = 1",
        f"BEGIN; INSERT INTO orders VALUES (5, 'new', 5, {LARGE}); "
        "UPDATE orders SET total = 50 WHERE id = 5; COMMIT",
        "UPDATE orders SET id = 20 WHERE id = 2",
        "UPDATE orders SET total = 21 WHERE id = 20",
        "UPDATE orders SET note = 'small' WHERE id = 3",
        "UPDATE orders SET total = 31 WHERE id = 3",
        "BEGIN; UPDATE orders SET total = 41 WHERE id = 4; UPDATE orders SET id = 40 WHERE id = 4; "
        "UPDATE orders SET customer = 'moved' WHERE id = 40; COMMIT",
    )
    shop.run(UPSERT)

    shop.agrees()
    assert len({row["note"] for row in shop.rows("orders")}) == 2


def test_unchanged_large_values_follow_a_row_to_another_key_in_another_batch(shop: PostgresShop) -> None:
    """The old key is in an earlier batch, so the value is in the table, under the old key."""
    shop.execute(ORDERS, "ALTER TABLE orders ALTER note SET STORAGE EXTERNAL")
    shop.execute(f"INSERT INTO orders SELECT i, 'c', i, {LARGE} FROM generate_series(1, 3) i")
    shop.run(UPSERT)

    shop.execute("UPDATE orders SET id = 30, total = 3 WHERE id = 3")
    shop.run(UPSERT)
    shop.execute("UPDATE orders SET id = id + 1, customer = 'all' WHERE id < 3 AND id = 2")
    shop.execute("UPDATE orders SET id = 2 WHERE id = 1", "UPDATE orders SET id = 1 WHERE id = 3")
    shop.run(UPSERT)

    shop.agrees()


def test_keys_that_are_exchanged_in_one_transaction(shop: PostgresShop) -> None:
    filled(shop, 3).run(BOTH)
    shop.execute(
        "BEGIN; UPDATE orders SET id = 0 WHERE id = 1; UPDATE orders SET id = 1 WHERE id = 2; "
        "UPDATE orders SET id = 2 WHERE id = 0; COMMIT",
        "UPDATE orders SET id = 9 WHERE id = 3",
        "INSERT INTO orders VALUES (3, 'again', 3, 'n')",
    )
    shop.run(BOTH)

    shop.agrees()
    assert [(row["_op"], row["id"]) for row in in_order(shop) if row["_op"] != "read"] == [
        ("delete", 1), ("insert", 0), ("delete", 2), ("insert", 1), ("delete", 0), ("insert", 2),
        ("delete", 3), ("insert", 9), ("insert", 3),
    ]  # fmt: skip


def in_order(shop: PostgresShop) -> list[dict[str, object]]:
    return sorted(shop.rows("log"), key=lambda row: (row["_lsn"], row["_ordinal"]))


def test_tables_that_are_truncated_together_and_filled_again_in_the_same_batch(shop: PostgresShop) -> None:
    filled(shop).execute("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1), (2)")
    tables = (
        "  orders: {path: orders, from: db, mode: upsert, streams: [public.orders]}\n"
        "  items: {path: items, from: db, mode: upsert, streams: [public.items]}"
    )
    shop.run(tables, "tables: public.*")

    shop.execute(
        "INSERT INTO items VALUES (3)",
        "BEGIN; INSERT INTO orders VALUES (6, 'before', 6, 'n'); TRUNCATE orders, items; "
        "INSERT INTO orders VALUES (7, 'after', 7, 'n'); INSERT INTO items VALUES (4); COMMIT",
        "INSERT INTO items VALUES (5)",
    )
    shop.run(tables, "tables: public.*")

    shop.agrees()
    assert shop.table("items", "id") == [(4,), (5,)]


def test_a_row_that_leaves_the_filter_of_the_publication_leaves_the_table(shop: PostgresShop) -> None:
    filled(shop).execute("CREATE PUBLICATION large FOR TABLE orders (id, total, customer) WHERE (id > 2)")
    options = "publication: large"
    shop.run(UPSERT, options)
    assert shop.table("orders", "id") == [(3,), (4,), (5,)]

    shop.execute("UPDATE orders SET id = 1000 WHERE id = 1", "UPDATE orders SET id = 0 WHERE id = 3")
    shop.execute("UPDATE orders SET total = 44 WHERE id = 4", "DELETE FROM orders WHERE id = 2")
    shop.run(UPSERT, options)

    assert shop.table("orders", "id", "total") == shop.query(
        "SELECT id, total FROM orders WHERE id > 2 ORDER BY id"
    )
    assert "note" not in shop.rows("orders")[0]


def test_savepoints_and_prepared_transactions_arrive_when_they_are_committed(shop: PostgresShop) -> None:
    filled(shop).run(BOTH)
    shop.execute(
        "BEGIN; INSERT INTO orders VALUES (6, 'kept', 6, 'n'); SAVEPOINT one; "
        "INSERT INTO orders VALUES (7, 'undone', 7, 'n'); UPDATE orders SET total = 0; ROLLBACK TO one; "
        "SAVEPOINT two; UPDATE orders SET total = 66 WHERE id = 6; RELEASE two; COMMIT",
        "BEGIN; DELETE FROM orders; ROLLBACK",
        "BEGIN; INSERT INTO orders VALUES (8, 'prepared', 8, 'n'); PREPARE TRANSACTION 'later'",
        "BEGIN; INSERT INTO orders VALUES (9, 'never', 9, 'n'); PREPARE TRANSACTION 'never'",
    )
    shop.run(BOTH)
    shop.agrees()

    shop.execute("INSERT INTO orders VALUES (10, 'ten', 10, 'n')")
    shop.run(BOTH)
    shop.execute("COMMIT PREPARED 'later'", "ROLLBACK PREPARED 'never'")
    shop.run(BOTH)

    shop.agrees()
    assert [(row["_op"], row["id"]) for row in in_order(shop) if row["_op"] != "read"] == [
        ("insert", 6), ("update", 6), ("insert", 10), ("insert", 8),
    ]  # fmt: skip


def test_a_table_without_a_key_is_a_log_and_no_upsert_table(shop: PostgresShop) -> None:
    shop.execute("CREATE TABLE orders (line text)", "INSERT INTO orders VALUES ('one')")

    before = refusal(shop, APPEND)
    shop.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    shop.run(APPEND)
    shop.execute("INSERT INTO orders VALUES ('two')", "UPDATE orders SET line = 'three' WHERE line = 'one'")
    shop.run(APPEND)
    told = refusal(shop, "  keyed: {path: keyed, from: db, mode: upsert}")

    assert "REPLICA IDENTITY FULL" in before
    assert shop.table("orders", "_op", "line") == [("insert", "two"), ("read", "one"), ("update", "three")]
    assert "public.orders" in told and "ALTER TABLE" in told and "PRIMARY KEY" in told


def test_columns_that_come_and_go_while_it_runs(shop: PostgresShop) -> None:
    filled(shop, 2).run(BOTH)
    shop.execute(
        "ALTER TABLE orders ADD COLUMN state text NOT NULL DEFAULT 'open'",
        "INSERT INTO orders VALUES (3, 'three', 3, 'n', 'paid')",
        "UPDATE orders SET total = 22 WHERE id = 2",
        "ALTER TABLE orders DROP COLUMN note",
        "INSERT INTO orders VALUES (4, 'four', 4, 'new')",
        "ALTER TABLE orders ALTER total TYPE numeric(12,2)",
    )
    shop.run(BOTH)

    found = {row["id"]: (row["note"], row["state"]) for row in shop.rows("orders")}
    assert found == {1: ("n", "open"), 2: ("n", "open"), 3: ("n", "paid"), 4: (None, "new")}


def test_a_label_that_an_enum_gets_just_appears(shop: PostgresShop) -> None:
    shop.execute("CREATE TYPE mood AS ENUM ('sad')", "CREATE TABLE orders (id int PRIMARY KEY, mood mood)")
    shop.execute("INSERT INTO orders VALUES (1, 'sad')")
    shop.run(UPSERT)
    shop.execute("ALTER TYPE mood ADD VALUE 'happy'", "INSERT INTO orders VALUES (2, 'happy')")
    shop.run(UPSERT)

    shop.agrees("id, mood")


def test_a_connection_that_fails_over_to_a_server_without_the_slot_is_refused(tmp_path: Path) -> None:
    with PostgresServer() as primary, primary.database() as database:
        shop = filled(PostgresShop(primary, database, tmp_path))
        with primary.standby() as standby:
            shop.connection = (
                f"host=127.0.0.1,127.0.0.1 port={primary.port},{standby.port} dbname={database} "
                "user=postgres target_session_attrs=read-write"
            )
            shop.run(UPSERT)
            primary.stop()
            standby.promote()
            shop.server = standby
            shop.execute("INSERT INTO orders VALUES (6, 'six', 6, 'n')")

            told = refusal(shop)

            assert "the replication slot" in told and "is gone" in told
            assert shop.table("orders", "id") == [(1,), (2,), (3,), (4,), (5,)]
            primary.start()


def test_a_table_that_nothing_takes_does_not_hold_the_log_back(shop: PostgresShop) -> None:
    filled(shop).execute("CREATE TABLE noise (id int PRIMARY KEY)")
    tables = "  orders: {path: orders, from: db, mode: upsert, streams: [public.orders]}"
    shop.run(tables, "tables: public.*")
    before = confirmed(shop)
    shop.execute("INSERT INTO noise SELECT generate_series(1, 1000)", "UPDATE orders SET total = 5")

    shop.run(tables, "tables: public.*")

    assert lsn_number(confirmed(shop)) > lsn_number(before)
    shop.agrees()


def test_a_quiet_database_beside_a_busy_one_is_acknowledged(shop: PostgresShop) -> None:
    filled(shop).run(UPSERT)
    before = confirmed(shop)
    shop.execute("CREATE TABLE elsewhere AS SELECT generate_series(1, 10000)")

    shop.run(UPSERT)

    assert lsn_number(confirmed(shop)) > lsn_number(before)


def test_a_role_that_is_no_superuser_reads_what_it_owns(shop: PostgresShop) -> None:
    role = f"owner_{shop.database}"
    shop.server.execute(f"CREATE ROLE {role} LOGIN REPLICATION")
    shop.server.execute(f"ALTER DATABASE {shop.database} OWNER TO {role}")
    filled(shop).execute(f"ALTER TABLE orders OWNER TO {role}")
    shop.connection = shop.server.dsn(shop.database, role)

    shop.run(UPSERT)
    shop.execute("DELETE FROM orders WHERE id = 1")
    shop.run(UPSERT)

    shop.agrees()


def test_values_that_no_column_holds_become_dead_letters_with_their_text(shop: PostgresShop) -> None:
    shop.execute("CREATE TABLE orders (id int PRIMARY KEY, due date, total numeric(6,2))")
    shop.execute("INSERT INTO orders VALUES (1, '2026-11-17', 1), (2, 'infinity', 2)")
    shop.run(APPEND)
    shop.execute("INSERT INTO orders VALUES (3, NULL, 'NaN'), (4, '2026-11-18', 4)")
    shop.run(APPEND)

    assert shop.table("orders", "id") == [(1,), (4,)]
    letters = shop.table("shop_dead_letters", "error", "payload")
    assert [error for error, _ in letters] == [
        'due: expected date, got "infinity", which it cannot hold',
        'total: expected decimal(6,2), got "NaN", which it cannot hold',
    ]
    assert b'"due":"infinity"' in letters[0][1] and b'"total":"NaN"' in letters[1][1]


def test_every_word_of_a_role_that_writes_values_otherwise_is_overruled(shop: PostgresShop) -> None:
    shop.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, at timestamptz, f float8, b bytea, i interval, d date)",
        f"ALTER DATABASE {shop.database} SET datestyle = 'SQL, DMY'",
        f"ALTER DATABASE {shop.database} SET timezone = 'Asia/Kolkata'",
        f"ALTER DATABASE {shop.database} SET extra_float_digits = 0",
        f"ALTER DATABASE {shop.database} SET bytea_output = 'escape'",
        f"ALTER DATABASE {shop.database} SET intervalstyle = 'sql_standard'",
    )
    row = "'2026-11-17 10:00+00', 0.1::float8 + 0.2::float8, '\\x00ff', '1 day', '2026-11-17'"
    shop.execute(f"INSERT INTO orders VALUES (1, {row})")
    shop.run(UPSERT)
    shop.execute(f"INSERT INTO orders VALUES (2, {row})")
    shop.run(UPSERT)

    one, two = (tuple(row[name] for name in ("at", "f", "b", "i", "d")) for row in shop.rows("orders"))
    assert one == two
    assert one[0].isoformat() == "2026-11-17T10:00:00+00:00"
    assert one[1:] == (0.1 + 0.2, b"\x00\xff", "P1D", one[4]) and str(one[4]) == "2026-11-17"


def test_large_values_of_a_row_that_moves_into_a_part_that_was_copied_are_kept(shop: PostgresShop) -> None:
    shop.execute(ORDERS, "ALTER TABLE orders ALTER note SET STORAGE EXTERNAL")
    shop.execute(f"INSERT INTO orders SELECT i, 'c', i, {LARGE} || i FROM generate_series(1, 100) i")
    shop.execute("ANALYZE orders")
    shop.write(UPSERT, more="flush: {rows: 40}")
    commits = 0

    def move(event: object) -> None:
        nonlocal commits
        commits += type(event).__name__ == "Committed"
        if commits == 1 and type(event).__name__ == "Committed":
            shop.execute("UPDATE orders SET id = -id WHERE id IN (90, 91)")
            shop.execute("DELETE FROM orders WHERE id = -91")

    run_inline(Pipeline.from_file(shop.file), move)
    shop.run(UPSERT, more="flush: {rows: 40}")

    assert commits > 2
    shop.agrees()


def test_a_commit_that_waits_for_a_standby_while_its_chunk_is_read_is_not_lost(tmp_path: Path) -> None:
    """Its change lies before the chunk, and the snapshot of the chunk does not see it yet."""
    settings = {"synchronous_standby_names": "nobody", "synchronous_commit": "local"}
    with PostgresServer(settings) as server, server.database() as database:
        shop = filled(PostgresShop(server, database, tmp_path), 100)
        shop.execute("ANALYZE orders")
        waiting: list[threading.Thread] = []
        told: list[str] = []

        def wait_in_a_commit(event: object) -> None:
            told.append(type(event).__name__)
            if told[-1] == "BatchDone" and "Committed" in told and not waiting:
                waiting.append(threading.Thread(target=_commit_and_wait, args=(server, database)))
                waiting[0].start()
                wait_until(
                    lambda: bool(server.execute(_IN_SYNC_REP)), 120, lambda: "nobody waits for a standby"
                )

        shop.write(BOTH, more="flush: {rows: 40}")
        run_inline(Pipeline.from_file(shop.file), wait_in_a_commit)
        server.execute(_IN_SYNC_REP.replace("SELECT pid", "SELECT pg_cancel_backend(pid)"))
        waiting[0].join(120)
        shop.run(BOTH, more="flush: {rows: 40}")

        shop.agrees()
        assert [row["_op"] for row in shop.rows("log") if row["id"] == 1000] == ["insert"]


_IN_SYNC_REP = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


def _commit_and_wait(server: PostgresServer, database: str) -> None:
    with server.connect(database, options="-c synchronous_commit=on") as connection:
        connection.execute("INSERT INTO orders VALUES (1000, 'waits', 1, 'n')")


def test_the_last_change_of_a_transaction_wins_where_a_column_of_the_table_orders_it(
    shop: PostgresShop,
) -> None:
    shop.execute(
        "CREATE TABLE stock (id int PRIMARY KEY, at int, v text)", "INSERT INTO stock VALUES (0, 0, '')"
    )
    tables = "\n".join(
        f"  {mode}: {{path: {mode}, from: db, mode: {mode}, keys: id, {more}}}"
        for mode, more in {
            "upsert": "sequence_by: at",
            "history": "sequence_by: at",
            "deduplicate": "where: _op <> 'delete'",
        }.items()
    )
    shop.run(tables, "tables: public.stock")
    updates = [f"UPDATE stock SET v = 'change {number}' WHERE id = 1" for number in range(1, 12)]
    with shop.server.connect(shop.database) as connection, connection.transaction():
        for one in ["INSERT INTO stock VALUES (1, 7, 'change 0')", *updates]:
            connection.execute(one.encode())
    shop.execute("UPDATE stock SET v = 'of the next transaction' WHERE id = 1")

    shop.run(tables, "tables: public.stock")

    assert shop.table("upsert", "id", "v") == [(0, ""), (1, "of the next transaction")]
    present = [row["v"] for row in shop.rows("history") if row["id"] == 1 and row["valid_to"] is None]
    assert present == ["of the next transaction"]
    assert shop.table("deduplicate", "id", "v") == [(0, ""), (1, "change 0")]
