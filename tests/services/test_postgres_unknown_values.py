"""Postgres into tables, where a change does not carry a value: it is kept, or asked for, and never null."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.reprocess.replay import replay
from support.postgres import PostgresServer
from support.postgres_shop import LARGE, PostgresShop

DOCS = (
    "CREATE TABLE orders (id int PRIMARY KEY, customer text, total int, doc text NOT NULL)",
    "ALTER TABLE orders ALTER doc SET STORAGE EXTERNAL",
    f"INSERT INTO orders SELECT i, 'c' || i, i, {LARGE} || i FROM generate_series(1, 4) i",
)


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(*DOCS)
    return shop


RENAMED = "\n".join(
    f"  {name}: {{path: {name}, from: db, {more}}}"
    for name, more in {
        "copy": "mode: upsert, rename: {doc: document}",
        "merged": "mode: upsert, rename: {doc: document}, updates: merge_on_read",
        "past": "mode: history, rename: {doc: document}",
        "swapped": "mode: upsert, rename: {doc: customer, customer: doc}",
        "other": "mode: upsert, drop: [doc], rename: {customer: doc}",
        "keyed": "mode: upsert, rename: {id: number, total: id, doc: document}",
        "log": "rename: {doc: document}",
    }.items()
)


def test_renamed_and_dropped_columns_keep_values_that_an_update_leaves_alone(shop: PostgresShop) -> None:
    shop.run(RENAMED)
    shop.execute(
        "UPDATE orders SET total = 10 WHERE id = 1",
        "UPDATE orders SET customer = 'other' WHERE id = 2",
        "UPDATE orders SET id = 30, total = 31 WHERE id = 3",
    )

    shop.run(RENAMED)

    rows = shop.query("SELECT id, customer, total, doc FROM orders ORDER BY id")
    for path in ("copy", "merged"):
        assert shop.table(path, "id", "customer", "total", "document") == rows
    present = [row for row in shop.rows("past") if row["valid_to"] is None]
    assert sorted((row["id"], row["customer"], row["total"], row["document"]) for row in present) == rows
    assert None not in [row["document"] for row in shop.rows("past")]
    assert shop.table("swapped", "id", "doc", "total", "customer") == rows
    assert shop.table("other", "id", "doc", "total") == [row[:3] for row in rows]
    assert shop.table("keyed", "number", "customer", "id", "document") == rows
    assert [row["_unchanged"] for row in shop.rows("log") if row["_op"] == "update"] == [["document"]] * 2


def docs(shop: PostgresShop, condition: str = "true") -> list[tuple[object, ...]]:
    return shop.query(f"SELECT id, customer, total, doc FROM orders WHERE {condition} ORDER BY id")


def test_rows_that_were_dead_letters_get_the_values_that_their_update_leaves_out(shop: PostgresShop) -> None:
    shop.execute("CREATE TABLE odd (id int PRIMARY KEY, due date, doc text)")
    shop.execute("ALTER TABLE odd ALTER doc SET STORAGE EXTERNAL")
    shop.execute(f"INSERT INTO odd SELECT i, 'infinity', {LARGE} || i FROM generate_series(1, 3) i")
    shop.execute(f"INSERT INTO odd VALUES (4, '2026-11-18', {LARGE} || 4)")
    tables = (
        "  copy: {path: copy, from: db, mode: upsert}\n"
        "  merged: {path: merged, from: db, mode: upsert, updates: merge_on_read}\n"
        "  past: {path: past, from: db, mode: history}"
    )
    shop.run(tables, "tables: public.odd")
    assert shop.table("copy", "id") == [(4,)]
    # The update that brings another value is a dead letter, and the one that repairs the row leaves it out.
    shop.execute(f"UPDATE odd SET due = 'infinity', doc = {LARGE} || 'new' WHERE id = 4")
    shop.execute("UPDATE odd SET due = '2026-11-19' WHERE id IN (1, 4)")
    shop.execute("UPDATE odd SET due = '2026-11-19' WHERE id = 2", "DELETE FROM odd WHERE id = 2")
    shop.execute("UPDATE odd SET id = 30, due = '2026-11-19' WHERE id = 3")

    shop.run_until_killed("files_written:2")
    shop.run(tables, "tables: public.odd")

    rows = shop.query("SELECT id, due, doc FROM odd ORDER BY id")
    assert shop.table("copy", "id", "due", "doc") == rows
    assert shop.table("merged", "id", "due", "doc") == rows
    past = shop.rows("past")
    assert None not in [row["doc"] for row in past]
    assert sorted((row["id"], row["due"], row["doc"]) for row in past if row["valid_to"] is None) == rows
    letters = shop.table("shop_dead_letters", "table", "code")
    assert [code for table, code in letters if table == "past"] == ["out_of_range"] * 4 + ["unknown_value"]
    assert {code for table, code in letters if table != "past"} == {"out_of_range"}

    again = {one.table: one for one in replay(Pipeline.from_file(shop.file), DeadLetterFilter())}
    failed = {(one.code, one.dead_letters) for one in again["past"].again}
    assert failed == {("bad_date", 4), ("unknown_value", 1)} and not again["past"].rows
    assert shop.table("copy", "id", "due", "doc") == rows


CONDITIONS = "\n".join(
    f"  {name}: {{path: {name}, from: db, {more}}}"
    for name, more in {
        "paid": "mode: upsert, where: \"coalesce(status, '') <> ''\"",
        "merged": "mode: upsert, updates: merge_on_read, where: status is not null and total > 0",
        "past": "mode: history, where: status is not null",
        "large": "mode: upsert, where: length(doc) > 20 and total > 0",
        "named": "mode: upsert, rename: {doc: document}, "
        'select: ["*", "concat(status, \':\', document) AS both", length(document) AS size]',
        "alias": "mode: upsert, select: [id, doc AS document, status]",
        "good": "mode: upsert, expect: {whole: doc IS NOT NULL, both: length(doc) + 5 > total}",
        "log": 'where: "status is not null and length(doc) > 20"',
        "stays": "where: \"_op not in ('delete', 'truncate') and status = 'paid'\"",
    }.items()
)


@pytest.fixture
def paid(shop: PostgresShop) -> PostgresShop:
    shop.execute(
        "ALTER TABLE orders ADD status text",
        "UPDATE orders SET status = CASE WHEN id < 4 THEN 'paid' END",
        f"INSERT INTO orders VALUES (5, 'c5', 5, {LARGE} || 5, NULL), (6, 'c6', 6, 'small', 'paid')",
    )
    return shop


def test_conditions_over_columns_that_a_change_does_not_carry(paid: PostgresShop, spark: object) -> None:
    shop = paid
    shop.run(CONDITIONS)
    shop.execute(
        "UPDATE orders SET total = 10 WHERE id = 1",
        "UPDATE orders SET status = NULL WHERE id = 2",
        "UPDATE orders SET status = 'new', total = 40 WHERE id = 4",
        "DELETE FROM orders WHERE id = 3",
        f"UPDATE orders SET doc = {LARGE} || 6 WHERE id = 6",
        "UPDATE orders SET total = 60 WHERE id = 6",
        f"INSERT INTO orders VALUES (7, 'c7', 7, {LARGE}, 'gone')",
        "BEGIN; UPDATE orders SET total = 70 WHERE id = 7; DELETE FROM orders WHERE id = 7; COMMIT",
    )

    shop.run(CONDITIONS)

    def same(path: str, columns: str, condition: str = "true") -> None:
        wanted = shop.query(f"SELECT {columns} FROM orders WHERE {condition} ORDER BY id")
        names = [one.rpartition(" AS ")[2] for one in columns.split(", ")]
        assert shop.table(path, *names) == wanted, path

    whole = "id, customer, total, doc, status"
    same("paid", whole, "status <> ''")
    same("merged", whole, "status IS NOT NULL")
    same("large", whole, "length(doc) > 20")
    same("named", "id, doc AS document, status || ':' || doc AS both, length(doc) AS size")
    same("alias", "id, doc AS document, status")
    same("good", whole)
    present = [
        tuple(row[name] for name in whole.split(", ")) for row in shop.rows("past") if row["valid_to"] is None
    ]
    assert sorted(present) == shop.query(f"SELECT {whole} FROM orders WHERE status IS NOT NULL ORDER BY id")
    assert None not in [row["doc"] for row in shop.rows("past")]
    changes = [(row["_op"], row["id"]) for row in shop.rows("log") if row["_op"] != "read"]
    assert sorted(changes) == [
        ("delete", 3), ("delete", 7), ("insert", 7), ("update", 1), ("update", 4), ("update", 6),
        ("update", 6), ("update", 7),
    ]  # fmt: skip
    assert {(row["_op"], row["status"]) for row in shop.rows("stays")} == {
        ("read", "paid"),
        ("update", "paid"),
    }
    assert not (shop.folder / "shop_dead_letters").exists()

    shop.execute("TRUNCATE orders")
    shop.run(CONDITIONS)
    for path in ("paid", "merged", "large", "named", "alias", "good"):
        assert shop.rows(path) == []
    assert [row["id"] for row in shop.rows("past") if row["valid_to"] is None] == []
    assert [row["id"] for row in shop.rows("log") if row["_op"] == "truncate"] == [None]


def test_deletions_from_before_another_primary_key(shop: PostgresShop) -> None:
    tables = (
        "  copy: {path: copy, from: db, mode: upsert}\n"
        "  merged: {path: merged, from: db, mode: upsert, updates: merge_on_read, rename: {id: number}}\n"
        "  past: {path: past, from: db, mode: history}"
    )
    shop.execute("ALTER TABLE orders ALTER customer SET NOT NULL")
    shop.run(tables)
    shop.execute(
        "DELETE FROM orders WHERE id = 1",
        "UPDATE orders SET total = 20 WHERE id = 2",
        "UPDATE orders SET customer = 'renamed' WHERE id = 3",
        "INSERT INTO orders VALUES (5, 'c5', 5, 'd'), (6, 'c6', 6, 'd')",
        "UPDATE orders SET customer = 'six' WHERE id = 6",
        "DELETE FROM orders WHERE id = 5",
        "ALTER TABLE orders DROP CONSTRAINT orders_pkey",
        "ALTER TABLE orders ADD PRIMARY KEY (customer)",
        "DELETE FROM orders WHERE customer = 'c4'",
        "UPDATE orders SET total = 21 WHERE customer = 'c2'",
        "UPDATE orders SET customer = 'seven' WHERE customer = 'six'",
        "INSERT INTO orders VALUES (1, 'c1', 10, 'back')",
    )

    shop.run_until_killed("table_committed:1")
    shop.run(tables)

    assert shop.table("copy", "id", "customer", "total", "doc") == docs(shop)
    assert shop.table("merged", "number", "customer", "total", "doc") == docs(shop)
    present = [row for row in shop.rows("past") if row["valid_to"] is None]
    assert sorted((row["id"], row["customer"], row["total"], row["doc"]) for row in present) == docs(shop)
    assert not (shop.folder / "shop_dead_letters").exists()


def test_a_large_value_of_a_change_that_was_dropped_or_rescued_is_not_lost_to_the_next_change(
    shop: PostgresShop,
) -> None:
    shop.execute(
        "CREATE TABLE stays (id int PRIMARY KEY, n int, days timestamptz[])",
        "ALTER TABLE stays ALTER days SET STORAGE EXTERNAL",
        "INSERT INTO stays SELECT 1, 1, array_agg(timestamptz '2026-01-01') || '{infinity}'::timestamptz[] "
        "FROM generate_series(1, 600)",
    )
    rule = "streams: public.orders, expect: {cheap: {that: total < 100, otherwise: drop}}"
    tables = (
        f"  copy: {{path: copy, from: db, mode: upsert, {rule}}}\n"
        f"  past: {{path: past, from: db, mode: history, {rule}}}\n"
        "  stays: {path: stays, from: db, streams: public.stays, mode: upsert, evolve: {type_change: rescue}}"
    )
    options = "tables: [public.orders, public.stays]"
    shop.run(tables, options)
    (rescued,) = shop.table("stays", "n", "days", "_rescued")
    shop.execute(f"UPDATE orders SET total = 500, doc = {LARGE} || 'new' WHERE id = 1")
    shop.run(tables, options)
    shop.execute("UPDATE orders SET total = 5 WHERE id = 1", "UPDATE stays SET n = 2")
    shop.run(tables, options)

    assert shop.table("copy", "id", "customer", "total", "doc") == docs(shop)
    present = [row for row in shop.rows("past") if row["valid_to"] is None]
    assert sorted((row["id"], row["customer"], row["total"], row["doc"]) for row in present) == docs(shop)
    assert rescued[0] == 1 and "infinity" in str(rescued[2])
    assert shop.table("stays", "n", "days", "_rescued") == [(2, *rescued[1:])]


@pytest.mark.parametrize("place", ["path: public.days", "route: '{_stream}'"], ids=["table", "route"])
def test_a_replay_does_not_carry_on_a_value_from_before_an_older_dead_letter(
    shop: PostgresShop, place: str
) -> None:
    shop.execute(
        "CREATE TABLE days (id int PRIMARY KEY, day date, n bigint, doc text)",
        "ALTER TABLE days ALTER doc SET STORAGE EXTERNAL",
        f"INSERT INTO days SELECT i, '2026-01-01', 0, {LARGE} || 'old' FROM generate_series(1, 3) i",
    )
    types = "schema: {id: int, n: int, day: date, _stream: string}"
    table = f"  days: {{{place}, from: db, mode: upsert, {types}}}"
    shop.run(table, "tables: public.days")
    shop.execute(
        f"UPDATE days SET day = 'infinity', doc = {LARGE} || 'new' WHERE id = 1",
        "UPDATE days SET day = '-infinity' WHERE id = 1",
        "UPDATE days SET day = '-infinity' WHERE id = 2",
        f"UPDATE days SET n = 5000000000, doc = {LARGE} || 'new' WHERE id = 3",
        "UPDATE days SET day = '-infinity', n = 3 WHERE id = 3",
    )
    shop.run(table, "tables: public.days")
    letters = sorted(shop.rows("shop_dead_letters"), key=lambda row: row["offset"])
    shop.write(table, "tables: public.days, infinity: max")
    pipeline = Pipeline.from_file(shop.file)

    def ends() -> list[tuple[int, str, str]]:
        return sorted((row["id"], str(row["day"]), row["doc"][-3:]) for row in shop.rows("public.days"))

    before = ends()
    (later,) = replay(pipeline, DeadLetterFilter(offset=letters[1]["offset"]))
    assert (later.rows, later.again[0].code) == (0, "unknown_value")
    assert "an older dead letter of its key may have the others" in later.again[0].example
    assert ends() == before
    (other,) = replay(pipeline, DeadLetterFilter(offset=letters[2]["offset"]))
    assert (other.rows, other.again) == (1, [])
    # The older letter of the row 3 fails again.
    (both,) = replay(pipeline, DeadLetterFilter())
    assert both.rows == 2
    assert sorted((one.code, one.dead_letters) for one in both.again) == [
        ("out_of_range", 1),
        ("unknown_value", 1),
    ]
    assert ends() == [(1, "0001-01-01", "new"), (2, "0001-01-01", "old"), (3, "2026-01-01", "old")]
