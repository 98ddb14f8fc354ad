"""A history of a Postgres table knows when each state held, by the clock of the server."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefeed import LakefeedError, Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.reprocess.snapshot import reading_anew
from support.postgres import PostgresServer
from support.postgres_shop import ORDERS, PostgresShop

ROOT = Path(__file__).parents[2]
HISTORY = "  orders: {path: orders, from: db, mode: history, time_by: _commit_time}"
MOMENT = "TIMESTAMP '2026-11-17 12:00:00+00:00'"


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(ORDERS, "INSERT INTO orders SELECT i, 'c', i, 'n' FROM generate_series(1, 4) i")
    return shop


def as_of(shop: PostgresShop, moment: dt.datetime) -> list[tuple[Any, ...]]:
    """The table at a moment, by the query of docs/history.md."""
    page = (ROOT / "docs" / "history.md").read_text()
    found = re.search(r"```sql\n(SELECT \* FROM orders.*?)```", page, re.DOTALL)
    assert found is not None and found[1].count(MOMENT) == 2
    orders = pa.RecordBatchReader.from_stream(DeltaTable(str(shop.folder / "orders")).scan()).read_all()
    with duckdb.connect() as connection:
        connection.register("orders", orders)
        query = found[1].replace(MOMENT, f"TIMESTAMPTZ '{moment.isoformat()}'")
        return connection.sql(f"SELECT id, customer, total, note FROM ({query}) ORDER BY id").fetchall()


def now(shop: PostgresShop) -> tuple[dt.datetime, list[tuple[Any, ...]]]:
    """A moment of the server, and its rows then."""
    ((moment,),) = shop.query("SELECT clock_timestamp()")
    return moment, shop.query("SELECT id, customer, total, note FROM orders ORDER BY id")


@pytest.mark.parametrize("updates", ["copy_on_write", "merge_on_read"])
def test_the_documented_query_gives_the_table_as_of_a_moment(shop: PostgresShop, updates: str) -> None:
    history = HISTORY.replace("}", f", updates: {updates}}}")
    before, _ = now(shop)
    shop.run(history)
    moments = [now(shop)]
    for statements in (
        ["UPDATE orders SET note = 'm' WHERE id = 1", "INSERT INTO orders VALUES (5, 'd', 5, 'n')"],
        # Of one transaction: only the last state lasts.
        ["UPDATE orders SET note = 'x' WHERE id = 2; UPDATE orders SET note = 'y' WHERE id = 2"],
        ["UPDATE orders SET id = 30 WHERE id = 3", "DELETE FROM orders WHERE id = 4"],
        ["INSERT INTO orders VALUES (4, 'back', 1, 'n')"],
        ["TRUNCATE orders"],
        ["INSERT INTO orders VALUES (1, 'last', 1, 'n')"],
    ):
        shop.execute(*statements)
        moments.append(now(shop))
        if len(moments) % 2 == 0:
            shop.run(history)
    if updates == "copy_on_write":
        shop.run_until_killed("files_written")
    shop.run(history)
    run_inline(reading_anew(Pipeline.from_file(shop.file), "db", ["public.orders"])[0])
    moments.append(now(shop))

    assert as_of(shop, before) == []
    for moment, rows in moments:
        assert as_of(shop, moment) == rows
    rows = shop.rows("orders")
    assert all((one["valid_to"] is None) == (one["valid_to_time"] is None) for one in rows)
    assert all(one["valid_from_time"] is not None for one in rows)
    (between,) = [one for one in rows if one["note"] == "x"]
    assert between["valid_from_time"] == between["valid_to_time"]


def test_history_that_was_made_without_times_is_refused(shop: PostgresShop) -> None:
    shop.run(HISTORY.replace(", time_by: _commit_time", ""))

    with pytest.raises(LakefeedError, match="needs the column valid_from_time of type timestamp"):
        shop.run(HISTORY)
