"""Columns of a Postgres table that come, go and change, and what its Delta table makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.engine import new_columns
from lakefeed.engine.inline import run_inline
from lakefeed.engine.run_events import RunEvent, TableChanged
from lakefeed.reprocess.snapshot import reading_anew
from support.postgres import PostgresServer
from support.postgres_shop import APPEND, ORDERS, UPSERT, PostgresShop


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(ORDERS, "INSERT INTO orders SELECT i, 'c', i, 'n' FROM generate_series(1, 5) i")
    return shop


SIZE = "ALTER TABLE orders ADD size int DEFAULT 5"
ADDED = f"""{SIZE}, ADD label text DEFAULT 'it''s', ADD price numeric(8,2) DEFAULT 1.5,
    ADD at timestamptz DEFAULT '2026-11-17 10:00+00', ADD day date DEFAULT '2026-01-01',
    ADD ok bool DEFAULT true, ADD fee numeric(20,8) DEFAULT 0, ADD raw bytea DEFAULT '\\x00ff',
    ADD tags text[] DEFAULT ARRAY['a,"b', NULL, ''], ADD none int[] DEFAULT '{{}}'
"""
ALL = "id, customer, total, note, size, label, price, at, day, ok, fee, raw, tags, none"
MERGED = UPSERT.replace("upsert", "upsert, updates: merge_on_read")


@pytest.mark.parametrize("tables", [UPSERT, MERGED], ids=["copy_on_write", "merge_on_read"])
def test_rows_from_before_a_column_have_its_default_in_an_upsert_table(
    shop: PostgresShop, tables: str
) -> None:
    """Also those that change, come or go before the statement and in one batch with it."""
    shop.run(tables)
    # In files whose deletion vectors leave rows out, where there are such.
    shop.execute("UPDATE orders SET total = 11 WHERE id = 1", "INSERT INTO orders VALUES (9, 'nine', 9, 'n')")
    shop.run(tables)
    shop.execute(
        "UPDATE orders SET total = 20 WHERE id = 2",
        "INSERT INTO orders VALUES (6, 'six', 6, 'n')",
        "DELETE FROM orders WHERE id = 5",
        ADDED,
        "INSERT INTO orders VALUES (7, 'seven', 7, 'n', NULL, NULL)",
        "UPDATE orders SET size = NULL WHERE id = 3",
    )
    shop.run(tables)
    shop.agrees(ALL)
    shop.execute("UPDATE orders SET size = NULL WHERE id = 1", "UPDATE orders SET total = 40 WHERE id = 4")
    shop.run(tables)

    shop.agrees(ALL)


def test_rows_of_partitions_have_the_default_of_a_column_that_came_after_them(shop: PostgresShop) -> None:
    """It is the partitions that know it, also of a change from before the statement."""
    shop.execute(
        "CREATE TABLE days (id int PRIMARY KEY, note text) PARTITION BY RANGE (id)",
        "CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE days_2 PARTITION OF days FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id)",
        "CREATE TABLE days_3 PARTITION OF days_2 FOR VALUES FROM (10) TO (20)",
        "INSERT INTO days VALUES (1, 'a'), (11, 'b')",
    )
    tables = "  days: {path: days, from: db, mode: upsert}"
    shop.run(tables, "tables: public.days")
    shop.execute(
        "INSERT INTO days VALUES (2, 'c')",
        "ALTER TABLE days ADD COLUMN size int DEFAULT 7",
        "CREATE TABLE days_4 PARTITION OF days FOR VALUES FROM (20) TO (30)",
        "INSERT INTO days VALUES (21, 'd', NULL)",
        "UPDATE days SET note = 'e' WHERE id = 11",
    )
    shop.run(tables, "tables: public.days")

    assert shop.table("days", "id", "note", "size") == [
        (1, "a", 7),
        (2, "c", 7),
        (11, "e", 7),
        (21, "d", None),
    ]


def test_rows_from_before_a_column_have_its_default_behind_a_star_of_select(shop: PostgresShop) -> None:
    """A function may have made something else of it, and that is said."""
    (shop.folder / "same.py").write_text("def same(batch):\n    return batch\n")
    tables = UPSERT.replace("upsert", "upsert, select: ['*', id + 1 AS more]")
    tables += "\n  made: {path: made, from: db, mode: upsert, python: 'same:same'}"
    shop.run(tables)
    shop.execute(SIZE, "INSERT INTO orders VALUES (6, 'six', 6, 'n', 1)")
    events: list[RunEvent] = []
    run_inline(Pipeline.from_file(shop.file), events.append)

    shop.agrees("id, size")
    told = [(one.table, one.text) for one in events if isinstance(one, TableChanged)]
    assert (
        "made",
        "the default of the new column size is not filled into rows that were there before",
    ) in told


@pytest.mark.parametrize("tables", [UPSERT, MERGED], ids=["copy_on_write", "merge_on_read"])
def test_a_kill_between_the_new_column_and_its_values_is_made_good(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch, tables: str
) -> None:
    shop.run(tables)
    shop.execute(SIZE, "INSERT INTO orders VALUES (6, 'six', 6, 'n', 1)")

    def killed(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(new_columns, "fill", killed)
        shop.run(tables)
    assert shop.table("orders", "id", "size") == [(number, None) for number in range(1, 6)]

    shop.run(tables)
    shop.agrees("id, size")


def test_a_default_that_the_publication_does_not_have_is_not_filled_in(shop: PostgresShop) -> None:
    shop.execute("CREATE PUBLICATION own FOR TABLE orders (id, customer)")
    shop.run(UPSERT, "publication: own")
    shop.execute(SIZE, "UPDATE orders SET customer = 'x' WHERE id = 1")
    shop.run(UPSERT, "publication: own")

    assert "size" not in shop.rows("orders")[0]


def test_an_append_table_has_no_default_in_rows_that_it_has_already(shop: PostgresShop) -> None:
    shop.run(APPEND)
    shop.execute(SIZE, "INSERT INTO orders VALUES (6, 'six', 6, 'n', 1)")
    shop.run(APPEND)

    assert shop.table("orders", "id", "_op")[-1] == (6, "insert")
    assert [row["size"] for row in shop.rows("orders") if row["_op"] == "read"] == [None] * 5


def test_a_column_that_is_dropped_stays_and_a_renamed_one_is_new(shop: PostgresShop) -> None:
    shop.run(UPSERT)
    shop.execute(
        "ALTER TABLE orders DROP note",
        "ALTER TABLE orders RENAME customer TO client",
        "INSERT INTO orders (id, client, total) VALUES (6, 'six', 6)",
    )
    shop.run(UPSERT)

    assert shop.table("orders", "id", "customer", "client", "note")[-2:] == [
        (5, "c", None, "n"),
        (6, None, "six", None),
    ]


@pytest.mark.parametrize("runs", [True, False], ids=["while it runs", "while it does not run"])
@pytest.mark.parametrize(
    "statements",
    [
        ["TYPE int USING total + 1"],
        ["TYPE numeric(10,2) USING total + 1"],
        ["TYPE text USING total + 1", "TYPE numeric(10,2) USING length(total)"],
    ],
    ids=["another type", "the same type", "there and back"],
)
def test_a_type_change_that_rewrites_values_is_told_by_every_start_with_the_command_that_reads_them(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture, statements: list[str], runs: bool
) -> None:
    shop.run(UPSERT)
    shop.execute("VACUUM FULL orders", "INSERT INTO orders VALUES (6, 'six', 6, 'n')")
    shop.run(UPSERT)
    shop.execute("ALTER TABLE orders ALTER customer SET STATISTICS 200", "UPDATE orders SET note = 'x'")
    shop.run(UPSERT)
    assert "written again" not in caplog.text
    shop.execute(*(f"ALTER TABLE orders ALTER total {statement}" for statement in statements))
    if runs:
        shop.execute("INSERT INTO orders VALUES (7, 'seven', 7, 'n')")
    shop.run(UPSERT)
    shop.run(UPSERT)

    told = [one.getMessage() for one in caplog.records if "written again" in one.getMessage()]
    assert len(told) == 2
    assert f"lakefeed snapshot {shop.file} --source db --stream public.orders --yes" in told[0]


def test_a_label_or_field_with_another_name_is_told_until_a_snapshot(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    text = "labels of an enum, or fields of a composite type, of public.moods had other names before"
    tables = "\n".join(
        f"  {name}: {{path: {name}, from: db, mode: {mode}}}"
        for name, mode in {"moods": "upsert", "past": "history", "log": "append"}.items()
    )
    options = "tables: [public.moods]"
    shop.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'odd')",
        "CREATE TYPE pair AS (a int, b int)",
        "CREATE TABLE moods (id int PRIMARY KEY, mood mood, moods mood[], pair pair)",
        "INSERT INTO moods VALUES (1, 'sad', '{odd}', '(1,2)'), (2, 'odd', '{}', '(3,4)')",
    )
    shop.run(tables, options)
    shop.execute("ALTER TYPE mood ADD VALUE 'new' BEFORE 'odd'", "UPDATE moods SET mood = 'new' WHERE id = 2")
    shop.run(tables, options)
    assert text not in caplog.text

    for statements in (
        # Among more than four labels, and with one that comes in the same moment.
        ["mood ADD VALUE 'v4'", "mood ADD VALUE 'v5'", "mood ADD VALUE 'v6'"],
        ["mood RENAME VALUE 'sad' TO 'blue'"],
        ["mood RENAME VALUE 'v5' TO 'w5'", "mood ADD VALUE 'v7'"],
        ["pair RENAME ATTRIBUTE b TO c", "pair ADD ATTRIBUTE d int"],
    ):
        shop.execute(
            *(f"ALTER TYPE {one}" for one in statements), "UPDATE moods SET mood = 'odd' WHERE id = 2"
        )
        shop.run(tables, options)
        shop.run(tables, options)
        told = [one.getMessage() for one in caplog.records if text in one.getMessage()]
        if "RENAME" not in statements[0]:
            assert not told
            continue
        # A log is told once: it has what the labels were.
        assert [one.split()[1] for one in told] == ["moods:", "past:", "log:", "moods:", "past:"]
        assert f"lakefeed snapshot {shop.file} --source db --stream public.moods --yes" in told[0]
        caplog.clear()
        run_inline(reading_anew(Pipeline.from_file(shop.file), "db", [])[0])
        shop.run(tables, options)
        assert text not in caplog.text

    wanted = [(1, "blue", ["odd"]), (2, "odd", [])]
    assert shop.table("moods", "id", "mood", "moods") == wanted
    assert sorted((row["pair"]["a"], row["pair"]["c"]) for row in shop.rows("moods")) == [(1, 2), (3, 4)]


def test_a_dead_letter_from_before_its_key_was_renamed_has_the_key_of_then(shop: PostgresShop) -> None:
    table = "  days: {path: days, from: db}"
    shop.execute(
        "CREATE TABLE days (id int PRIMARY KEY, day date)", "INSERT INTO days VALUES (1, '2026-01-01')"
    )
    shop.run(table, "tables: [public.days]")
    shop.execute(
        "INSERT INTO days VALUES (2, 'infinity')",
        "ALTER TABLE days RENAME id TO number",
        "INSERT INTO days VALUES (3, 'infinity'), (4, '2026-01-04')",
    )
    shop.run(table, "tables: [public.days]")

    assert sorted(row["id"] or row["number"] for row in shop.rows("days")) == [1, 4]
    assert sorted((row["key"] or b"").decode() for row in shop.rows("shop_dead_letters")) == [
        '{"id":2}',
        '{"number":3}',
    ]


@pytest.mark.parametrize(("drop", "letters"), [("", 0), ("ALTER TYPE pair DROP ATTRIBUTE b", 2)])
def test_changes_from_before_a_composite_type_got_an_attribute_have_null_there(
    shop: PostgresShop, drop: str, letters: int
) -> None:
    """Where an attribute was dropped as well, nothing says which of them a value from before has."""
    tables = "  pairs: {path: pairs, from: db, mode: upsert}"
    shop.execute(
        "CREATE TYPE pair AS (a int, b int)",
        "CREATE TABLE pairs (id int PRIMARY KEY, pair pair, pairs pair[])",
        "INSERT INTO pairs SELECT i, (i, i)::pair, ARRAY[(i, i)::pair] FROM generate_series(1, 3) i",
    )
    shop.run(tables, "tables: public.pairs")
    shop.execute(
        "UPDATE pairs SET pair = (9, NULL)::pair, pairs = ARRAY[(8, 8)::pair, NULL] WHERE id < 3",
        *([drop] if drop else []),
        "ALTER TYPE pair ADD ATTRIBUTE c text, ADD ATTRIBUTE d int",
        "UPDATE pairs SET pair.c = 'x' WHERE id = 3",
    )
    shop.run(tables, "tables: public.pairs", "dead_letters: {path: letters, stop_above: 100%}")

    if letters:
        assert len(shop.rows("letters")) == letters
        return
    assert shop.table("pairs", "id") == [(1,), (2,), (3,)]
    found = {row["id"]: (row["pair"], row["pairs"]) for row in shop.rows("pairs")}
    changed = {"a": 9, "b": None, "c": None, "d": None}, [{"a": 8, "b": 8, "c": None, "d": None}, None]
    assert found[1] == found[2] == changed
    assert found[3][0] == {"a": 3, "b": 3, "c": "x", "d": None}
    assert not (shop.folder / "letters").exists() or shop.rows("letters") == []
