"""New types that old values do not fit: a snapshot that replaces all rows brings them, and types settle."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline, SourceError, TableError
from lakefeed.engine.inline import run_inline
from lakefeed.reports.snapshot_sample import refused_lines
from lakefeed.reports.verify import verify
from lakefeed.reprocess.snapshot import reading_anew
from support.postgres import PostgresServer
from support.postgres_shop import UPSERT, PostgresShop

MODES = {
    "copy_on_write": UPSERT,
    "merge_on_read": UPSERT.replace("upsert", "upsert, updates: merge_on_read"),
}
HISTORY = UPSERT.replace("upsert", "history")
COLUMNS = "id, n, t, s, a"
ALTERED = """ALTER TABLE orders ALTER n TYPE date USING date '2026-01-01' + n, ALTER t TYPE date,
    ALTER s TYPE int USING id, ALTER a TYPE int[] USING array[a], ALTER id TYPE text USING 'no ' || id"""


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute("CREATE TABLE orders (id int PRIMARY KEY, n int, t timestamptz, s text, a int)")
    shop.execute(
        "INSERT INTO orders SELECT i, i, '2026-01-01 10:30Z', 'no ' || i, i FROM generate_series(1, 30) i"
    )
    return shop


def types(shop: PostgresShop, path: str = "orders") -> dict[str, str]:
    """The types of the columns of the database."""
    fields = DeltaTable(str(shop.folder / path)).schema().fields
    return {one.name: one.type.type for one in fields if not one.name.startswith("_")}


def counts(shop: PostgresShop) -> set[int]:
    """How many rows the versions of the table had from its first rows on."""
    path = str(shop.folder / "orders")
    every = [DeltaTable(path, version=at) for at in range(DeltaTable(path).version() + 1)]
    found = [pa.RecordBatchReader.from_stream(one.scan()).read_all().num_rows for one in every]
    return {*found[next(at for at, rows in enumerate(found) if rows) :]}


def snapshot(shop: PostgresShop) -> list[str]:
    """Read all rows again; what the dry run has said."""
    again, streams = reading_anew(Pipeline.from_file(shop.file), "db", [])
    lines = [*refused_lines(again, "db", streams)]
    run_inline(again)
    return lines


def letters(shop: PostgresShop) -> list[dict[str, Any]]:
    path = shop.folder / "shop_dead_letters"
    return shop.rows("shop_dead_letters") if DeltaTable.is_deltatable(str(path)) else []


@pytest.mark.parametrize("mode", MODES)
def test_a_snapshot_brings_types_that_old_values_do_not_fit(shop: PostgresShop, mode: str) -> None:
    tables = MODES[mode].replace("upsert", "upsert, properties: {delta.enableChangeDataFeed: 'true'}")
    shop.run(tables)
    shop.execute("DELETE FROM orders WHERE id = 5", "UPDATE orders SET a = 7 WHERE id = 6")
    shop.run(tables)
    shop.execute("ALTER TABLE orders ALTER n TYPE date USING date '2026-01-01' + n")
    shop.execute("UPDATE orders SET n = '2026-02-02' WHERE id = 7")
    shop.run(tables)
    assert types(shop)["n"] == "integer"
    assert [one["code"] for one in letters(shop)] == ["wrong_type"]
    shop.execute(ALTERED.replace("USING date '2026-01-01' + n", ""))

    said = snapshot(shop)
    shop.execute("INSERT INTO orders VALUES ('x', '2026-03-03', '2026-03-03', 8, '{8,9}')")
    shop.run(tables)

    assert said == ["  orders: 0 of 29 sampled rows would become dead letters"]
    shop.agrees(COLUMNS)
    assert types(shop) == {"id": "string", "n": "date", "t": "date", "s": "integer", "a": "array"}
    assert counts(shop) == {29, 30}
    assert len(letters(shop)) == 1


def test_a_killed_snapshot_leaves_the_old_types_with_the_old_rows(shop: PostgresShop) -> None:
    options = "tables: public.orders, on_recreate: snapshot"
    shop.run(UPSERT, options)
    before = shop.table("orders", "id", "n")
    shop.execute(
        "DROP TABLE orders",
        "CREATE TABLE orders (id text PRIMARY KEY, n date, t date, s int, a int[])",
        "INSERT INTO orders SELECT 'no ' || i, '2026-01-01', '2026-01-02', i, array[i] "
        "FROM generate_series(1, 30) i",
    )

    shop.run_until_killed("files_written:2")
    assert (types(shop)["n"], shop.table("orders", "id", "n")) == ("integer", before)
    shop.run(UPSERT, options)
    shop.agrees(COLUMNS)
    changes = shop.changes()
    shop.execute("UPDATE orders SET s = 70 WHERE id = 'no 7'")
    shop.run(UPSERT, options)

    shop.agrees(COLUMNS)
    assert shop.changes() == changes + 1
    assert counts(shop) == {30}


def test_a_snapshot_of_a_route_gives_only_its_own_table_other_types(shop: PostgresShop) -> None:
    route = '  copies: {route: "{_stream}", from: db, mode: upsert}'
    shop.execute("CREATE TABLE items (id int PRIMARY KEY, n int)", "INSERT INTO items VALUES (1, 1)")
    shop.run(route, "tables: public.*")
    shop.execute(ALTERED)
    snapshot(shop)
    shop.execute("ALTER TABLE orders ALTER a TYPE boolean USING a[1] > 3")
    assert "  copies/public.orders: 0 of 30 sampled rows would become dead letters" in snapshot(shop)

    found = shop.table("public.orders", *COLUMNS.split(", "))
    assert found == shop.query(f"SELECT {COLUMNS} FROM orders ORDER BY id")
    assert types(shop, "public.orders")["n"] == "date"
    assert types(shop, "public.items") == {"id": "integer", "n": "integer"}
    assert verify(Pipeline.from_file(shop.file)).sound


def test_readers_of_changes_do_not_take_numbers_for_dates(shop: PostgresShop) -> None:
    tables = UPSERT.replace("upsert", "upsert, properties: {delta.enableChangeDataFeed: 'true'}")
    tables += "\n  gold: {path: gold, from: orders, mode: upsert, keys: [id]}"
    shop.run(tables)
    shop.execute("ALTER TABLE orders ALTER n TYPE date USING date '2026-01-01' + n")
    with pytest.raises(SourceError, match=r"column n was int32 and is date32.*\n.*lakefeed table drop PATH"):
        snapshot(shop)
    assert shop.table("gold", "n")[-1] == (30,)

    shutil.rmtree(shop.folder / "gold")
    shop.run(tables)
    assert shop.table("gold", *COLUMNS.split(", ")) == shop.query(f"SELECT {COLUMNS} FROM orders ORDER BY id")


def test_types_stay_where_old_rows_stay(shop: PostgresShop) -> None:
    """A history keeps its old rows, and in a table of two streams so does the other one's."""
    both = "  both: {path: both, from: db, mode: upsert}"
    tables = f"{HISTORY.replace('from: db', 'from: db, streams: public.orders')}\n{both}"
    shop.execute("CREATE TABLE items (id int PRIMARY KEY, n int)", "INSERT INTO items VALUES (77, 77)")
    shop.run(tables, "tables: public.*")
    shop.execute("ALTER TABLE orders ALTER a TYPE date USING date '2026-01-01' + a")
    again, streams = reading_anew(Pipeline.from_file(shop.file), "db", ["public.orders"])
    said = [*refused_lines(again, "db", streams)]
    with pytest.raises(TableError, match="30 of 30 rows of the new snapshot would become dead letters"):
        run_inline(again)

    assert "  orders: 30 of 30 sampled rows would become dead letters (wrong_type)" in said
    assert (types(shop)["a"], types(shop, "both")["a"]) == ("integer", "integer")
    assert (len(shop.rows("orders")), len(shop.rows("both"))) == (30, 31)


def test_types_of_a_history_follow_the_database_for_all_its_rows(shop: PostgresShop) -> None:
    shop.run(HISTORY)
    shop.execute(
        "UPDATE orders SET n = 100 WHERE id = 1",
        "ALTER TABLE orders ALTER n TYPE numeric(20,2), ALTER t TYPE text USING 'then', ALTER id TYPE bigint",
        "UPDATE orders SET n = 12345678901.25 WHERE id = 1",
    )
    shop.run(HISTORY)

    states = sorted(row["n"] for row in shop.rows("orders") if row["id"] == 1)
    assert [float(n) for n in states] == [1, 100, 12345678901.25]
    assert types(shop) | {"id": "long", "n": "decimal(20,2)", "t": "string"} == types(shop)
    assert len(shop.rows("orders")) == 32
    assert letters(shop) == []


def test_types_that_change_there_and_back_in_one_batch_settle(shop: PostgresShop) -> None:
    shop.run(UPSERT)
    shop.execute(
        "UPDATE orders SET t = '2026-02-01 11:00Z', n = 5, s = 'one' WHERE id = 1",
        "ALTER TABLE orders ALTER t TYPE date, ALTER n TYPE date USING date '2026-01-01' + n",
        "UPDATE orders SET t = '2026-02-02', n = '2026-02-02', s = 'two' WHERE id = 2",
        "ALTER TABLE orders ALTER t TYPE timestamptz, ALTER n TYPE int USING id",
        "UPDATE orders SET t = '2026-02-03 11:00Z', n = 9, s = 'three' WHERE id = 3",
    )
    shop.run(UPSERT)
    changes = shop.changes()
    shop.run(UPSERT)

    assert types(shop) | {"n": "integer", "t": "timestamp"} == types(shop)
    assert shop.table("orders", "id", "n", "s")[:3] == [(1, 5, "one"), (2, 2, "no 2"), (3, 9, "three")]
    assert [one["code"] for one in letters(shop)] == ["wrong_type"]
    assert shop.changes() == changes
    snapshot(shop)
    shop.agrees(COLUMNS)


def test_types_that_change_there_and_back_without_values_settle(shop: PostgresShop) -> None:
    shop.execute("UPDATE orders SET t = NULL, n = NULL")
    shop.run(UPSERT)
    shop.execute(
        "UPDATE orders SET t = '2026-02-01 11:00Z' WHERE id = 1",
        "ALTER TABLE orders ALTER t TYPE date, ALTER n TYPE date USING NULL",
        "UPDATE orders SET t = '2026-02-02', n = '2026-02-02' WHERE id IN (1, 2)",
    )
    shop.run(UPSERT)
    assert types(shop) | {"n": "date", "t": "date"} == types(shop)
    shop.agrees(COLUMNS)
