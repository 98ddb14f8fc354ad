"""Postgres into tables while the key of a table changes: by which key each change names its row."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from lakefeed import LakefeedError, Pipeline
from lakefeed.dead_letters.discard import discard
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.snapshot import reading_anew
from support.postgres import PostgresServer
from support.postgres_shop import LARGE, PostgresShop

COPIES = (
    "  copy: {path: copy, from: db, mode: upsert}\n"
    "  merged: {path: merged, from: db, mode: upsert, updates: merge_on_read}\n"
    "  past: {path: past, from: db, mode: history}"
)
OPTIONS = "tables: public.items"


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    return PostgresShop(postgres, database, tmp_path)


def key(*columns: str, table: str = "items") -> list[str]:
    """Statements that make these columns the primary key in place of the one that the table has."""
    return [
        f"ALTER TABLE {table} DROP CONSTRAINT {table}_pkey",
        f"ALTER TABLE {table} ADD PRIMARY KEY ({', '.join(columns)})",
    ]


def copies_agree(shop: PostgresShop, columns: str) -> None:
    """Each copy is the table of the database, without a dead letter."""
    rows = shop.query(f"SELECT {columns} FROM items ORDER BY {columns}")
    names = columns.split(", ")
    for path in ("copy", "merged", "past"):
        present = [row for row in shop.rows(path) if row.get("valid_to") is None]
        assert sorted(tuple(row[name] for name in names) for row in present) == rows, path
    assert not (shop.folder / "shop_dead_letters").exists()


def test_a_key_of_all_columns_is_no_replica_identity_full(shop: PostgresShop) -> None:
    shop.execute(
        "CREATE TABLE items (a int, b int, PRIMARY KEY (a, b))",
        "INSERT INTO items SELECT i, i FROM generate_series(1, 4) i",
    )
    shop.run(COPIES, OPTIONS)
    shop.execute(
        "DELETE FROM items WHERE a = 1",
        "UPDATE items SET b = 20 WHERE a = 2",
        "ALTER TABLE items ADD c int",
        "UPDATE items SET c = a + 10",
        *key("c"),
        "DELETE FROM items WHERE c = 13",
    )

    shop.run(COPIES, OPTIONS)

    copies_agree(shop, "a, b, c")


def test_an_index_becomes_the_replica_identity_behind_changes_that_wait(shop: PostgresShop) -> None:
    tables = f"{COPIES}\n  others: {{path: others, from: db, mode: upsert, streams: public.others}}"
    tables = tables.replace("from: db, mode", "from: db, streams: public.items, mode", 3)
    shop.execute(
        "CREATE TABLE items (id int PRIMARY KEY, k int NOT NULL, n int)",
        "INSERT INTO items SELECT i, i * 10, i FROM generate_series(1, 5) i",
        "CREATE TABLE others (id int PRIMARY KEY)",
    )
    shop.run(tables, "tables: [public.items, public.others]")
    shop.execute(
        "DELETE FROM items WHERE id = 1",
        "UPDATE items SET n = 22 WHERE id = 2",
        "CREATE UNIQUE INDEX items_k ON items (k)",
        "ALTER TABLE items REPLICA IDENTITY USING INDEX items_k",
        "DELETE FROM items WHERE id = 3",
        "UPDATE items SET k = 44 WHERE id = 4",
        "INSERT INTO others VALUES (1)",
    )

    shop.run(tables, "tables: [public.items, public.others]")

    copies_agree(shop, "id, k, n")
    assert shop.table("others", "id") == [(1,)]


def test_a_key_that_comes_back_leaves_no_row_of_the_key_between(shop: PostgresShop) -> None:
    shop.execute(
        "CREATE TABLE items (id int PRIMARY KEY, k int NOT NULL, n int)",
        "INSERT INTO items SELECT i, i * 10, i FROM generate_series(1, 5) i",
    )
    shop.run(COPIES, OPTIONS)
    shop.execute(
        "INSERT INTO items VALUES (6, 60, 6), (7, 70, 7)",
        "DELETE FROM items WHERE id = 1",
        *key("k"),
        "DELETE FROM items WHERE k = 60",
        "UPDATE items SET n = 70 WHERE k = 70",
        "DELETE FROM items WHERE k = 20",
        "UPDATE items SET k = 33 WHERE k = 30",
        "INSERT INTO items VALUES (8, 80, 8), (2, 21, 9)",
        *key("id"),
        "UPDATE items SET n = 44 WHERE id = 4",
        "DELETE FROM items WHERE id = 8",
    )
    shop.write(COPIES, OPTIONS)

    shop.run_until_killed("batch_committed:1")
    shop.run_until_killed("table_committed:2")
    shop.run(COPIES, OPTIONS)

    copies_agree(shop, "id, k, n")


def test_a_table_that_spark_shapes_applies_changes_by_the_former_key(shop: PostgresShop) -> None:
    table = "  copy: {path: copy, from: db, mode: upsert, where: \"name rlike '^n(?=[0-9])'\"}"
    shop.execute(
        "CREATE TABLE items (id int PRIMARY KEY, num int NOT NULL, name text)",
        "INSERT INTO items SELECT i, i, 'n' || i FROM generate_series(1, 4) i",
    )
    shop.run(table, OPTIONS)
    shop.execute(
        "UPDATE items SET num = 10 WHERE id = 1",
        "DELETE FROM items WHERE id = 2",
        *key("num"),
        "UPDATE items SET name = 'n30' WHERE num = 3",
        "UPDATE items SET num = 40 WHERE num = 4",
    )

    shop.run(table, OPTIONS)

    assert shop.table("copy", "id", "num", "name") == shop.query("SELECT * FROM items ORDER BY id")
    assert not (shop.folder / "shop_dead_letters").exists()


def test_another_key_under_replica_identity_full_is_told_until_a_snapshot(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    """The row 1 goes with the row 2 here: by the key of now, both had one key before."""
    text = "public.items has got another key, and its changes name their row by all columns"
    shop.execute(
        "CREATE TABLE items (id int PRIMARY KEY, k int NOT NULL, n int)",
        "ALTER TABLE items REPLICA IDENTITY FULL",
        "INSERT INTO items VALUES (1, 5, 1), (2, 5, 2), (3, 7, 3)",
    )
    shop.run(COPIES, OPTIONS)
    shop.execute("UPDATE items SET k = 6 WHERE id = 2", *key("k"), "UPDATE items SET n = 9 WHERE k = 7")
    shop.run(COPIES, OPTIONS)
    assert text in caplog.text
    caplog.clear()
    shop.run(COPIES, OPTIONS)
    assert text in caplog.text and "type: lakefeed snapshot" in caplog.text

    run_inline(reading_anew(Pipeline.from_file(shop.file), "db", [])[0])
    caplog.clear()
    shop.run(COPIES, OPTIONS)

    assert text not in caplog.text
    copies_agree(shop, "id, k, n")


def test_a_key_gets_a_new_column_that_has_a_default(shop: PostgresShop) -> None:
    shop.execute(
        "CREATE TABLE items (id int PRIMARY KEY, n int)",
        "INSERT INTO items SELECT i, i FROM generate_series(1, 4) i",
    )
    shop.run(COPIES, OPTIONS)
    shop.execute(
        "UPDATE items SET n = 40 WHERE id = 4",
        "ALTER TABLE items ADD b int DEFAULT 7",
        *key("id", "b"),
        "UPDATE items SET n = 10 WHERE id = 1",
        "DELETE FROM items WHERE id = 2",
    )
    shop.write(COPIES, OPTIONS)
    shop.run_until_killed("batch_committed:1")
    shop.run(COPIES, OPTIONS)

    copies_agree(shop, "id, b, n")
    past = sorted((row["id"], row["n"], row["b"]) for row in shop.rows("past") if row["valid_to"])
    assert [row for row in past if row[0] in (1, 2)] == [(1, 1, 7), (2, 2, 7)]
    shop.execute("TRUNCATE items", "INSERT INTO items VALUES (5, 5, 5)")
    shop.run(COPIES, OPTIONS)
    copies_agree(shop, "id, b, n")


def test_a_table_that_is_created_again_with_another_key_ends_every_row_of_the_former(
    shop: PostgresShop,
) -> None:
    options = f"{OPTIONS}, on_recreate: snapshot"
    shop.execute(
        "CREATE TABLE items (id int PRIMARY KEY, n int)",
        "INSERT INTO items SELECT i, i FROM generate_series(1, 3) i",
    )
    shop.run(COPIES, options)
    shop.execute(
        "DROP TABLE items",
        "CREATE TABLE items (id int, b int, n int, PRIMARY KEY (id, b))",
        "INSERT INTO items VALUES (1, 2, 3)",
    )
    shop.run(COPIES, options)
    copies_agree(shop, "id, b, n")
    shop.execute(
        "DROP TABLE items",
        "CREATE TABLE items (c text, d int, n int, PRIMARY KEY (c, d))",
        "INSERT INTO items VALUES ('x', 2, 3)",
    )

    shop.run(COPIES, options)

    copies_agree(shop, "c, d, n")
    ended = [(row["id"], row["b"]) for row in shop.rows("past") if row["valid_to"]]
    assert sorted(ended, key=repr) == [(1, 2), (1, None), (2, None), (3, None)]


def test_a_snapshot_ends_rows_that_do_not_have_the_key_of_now(shop: PostgresShop) -> None:
    shop.execute(
        "CREATE TABLE items (id int PRIMARY KEY, n int)",
        "INSERT INTO items SELECT i, i FROM generate_series(1, 3) i",
    )
    shop.run(COPIES, OPTIONS)
    # Postgres sends no change for the numbers that the rows get.
    shop.execute("ALTER TABLE items ADD b serial", *key("b"), "UPDATE items SET n = 10 WHERE id = 1")
    with pytest.raises(LakefeedError, match="b of the key of public"):
        shop.run(COPIES, OPTIONS)

    run_inline(reading_anew(Pipeline.from_file(shop.file), "db", [])[0])
    shop.execute("DELETE FROM items WHERE b = 2")
    shop.run(COPIES, OPTIONS)

    copies_agree(shop, "id, b, n")


def test_dead_letters_of_a_former_key_stay_and_a_snapshot_brings_their_rows(shop: PostgresShop) -> None:
    """By the former key alone, a replay would bring row 3 back, which was deleted by the key of now."""
    options = f"{OPTIONS}, before: true"
    shop.execute(
        "CREATE TABLE items (id int PRIMARY KEY, k int NOT NULL, day date)",
        "INSERT INTO items VALUES (1, 10, '2026-01-01'), (2, 20, '2026-01-02')",
    )
    shop.run(COPIES, options)
    shop.execute(
        "INSERT INTO items VALUES (3, 30, 'infinity')",
        "UPDATE items SET day = 'infinity' WHERE id = 2",
        *key("k"),
        "DELETE FROM items WHERE k = 30",
        "INSERT INTO items VALUES (4, 40, 'infinity')",
    )
    shop.run(COPIES, options)

    pipeline = Pipeline.from_file(shop.write(COPIES, f"{options}, infinity: max"))
    foreseen, reports = (replay(pipeline, DeadLetterFilter(), dry_run=dry_run) for dry_run in (True, False))

    assert foreseen != reports
    for report in (*foreseen, *reports):
        assert report.rows == 1
        ((code, count, text),) = [(one.code, one.dead_letters, one.example) for one in report.again]
        assert (code, count) == ("former_key", 2)
    assert text.startswith("the change names its row by id, and the key of the table is k by now")
    assert f"lakefeed snapshot {shop.file} --source db --stream public.items --yes" in text
    for path in ("copy", "merged", "past"):
        assert shop.table(path, "id", "k") == [(1, 10), (2, 20), (4, 40)]

    run_inline(reading_anew(pipeline, "db", ["public.items"])[0])

    rows = [(1, dt.date(2026, 1, 1)), (2, dt.date(9999, 12, 31)), (4, dt.date(9999, 12, 31))]
    assert shop.table("copy", "id", "day") == shop.table("merged", "id", "day") == rows
    done = discard(pipeline, DeadLetterFilter(topic="public.items"), who="test", reason="read again")
    assert done.dead_letters == 6 and not shop.rows("shop_dead_letters")


def test_a_change_waits_for_an_older_dead_letter_of_a_former_key(shop: PostgresShop) -> None:
    """The older one has the large value that the change leaves out: the row has the value before that."""
    shop.execute(
        "CREATE TABLE items (id int PRIMARY KEY, k int NOT NULL, day date, doc text)",
        "ALTER TABLE items ALTER doc SET STORAGE EXTERNAL",
        f"INSERT INTO items VALUES (1, 10, '2026-01-01', {LARGE})",
    )
    shop.run(COPIES, OPTIONS)
    shop.execute(
        f"UPDATE items SET day = 'infinity', doc = 'b' || {LARGE} WHERE id = 1",
        *key("k"),
        "UPDATE items SET day = '-infinity' WHERE k = 10",
    )
    shop.run(COPIES, OPTIONS)

    pipeline = Pipeline.from_file(shop.write(COPIES, f"{OPTIONS}, infinity: max"))
    reports = replay(pipeline, DeadLetterFilter())

    for report in reports:
        assert report.rows == 0
        assert sorted(one.code for one in report.again) == ["former_key", "unknown_value"]
    for path in ("copy", "merged", "past"):
        assert shop.table(path, "day") == [(dt.date(2026, 1, 1),)]


@pytest.mark.parametrize(
    "changed",
    [
        ["ALTER TABLE items RENAME id TO number"],
        ["ALTER TABLE items ADD number serial", *key("number"), "ALTER TABLE items DROP id"],
    ],
    ids=["renamed", "numbered"],
)
def test_a_key_that_no_row_of_a_copy_has_stops_its_table_until_a_snapshot(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture, changed: list[str]
) -> None:
    shop.execute(
        "CREATE TABLE items (id int PRIMARY KEY, n int)",
        "CREATE TABLE others (id int PRIMARY KEY)",
        "INSERT INTO items SELECT i, i FROM generate_series(1, 4) i",
    )
    tables = "  copies: {route: 'lake/{_stream}', from: db, mode: upsert}\n  log: {path: log, from: db}"
    shop.run(tables, "tables: public.*")
    shop.execute(*changed, "UPDATE items SET n = 40 WHERE number = 4", "DELETE FROM items WHERE number = 2")
    shop.execute("INSERT INTO others VALUES (1)")
    before = shop.rows("lake/public.items")

    for said in ("number of the key of public.items got another name", "read its rows again|replace them"):
        with pytest.raises(LakefeedError, match=said):
            run_inline(Pipeline.from_file(shop.file))

    assert shop.rows("lake/public.items") == before
    assert shop.table("lake/public.others", "id") == [(1,)]
    assert [row for row in shop.rows("log") if row["_op"] == "delete" and row["_stream"] == "public.items"]
    run_inline(reading_anew(Pipeline.from_file(shop.file), "db", ["public.items"])[0])
    shop.execute("UPDATE items SET n = 10 WHERE number = 1")
    shop.run(tables, "tables: public.*")
    assert shop.table("lake/public.items", "number", "n") == [(1, 10), (3, 3), (4, 40)]
