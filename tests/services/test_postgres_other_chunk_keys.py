"""Postgres into tables, where the key of a table changes while its rows are copied in chunks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.events import PartRead
from lakefeed.sources.postgres.client import PostgresClient
from support.postgres import PostgresServer
from support.postgres_shop import PostgresShop

ROWS, CHUNK = 3000, 1000
OPTIONS = f"tables: public.items, flush: {{rows: {CHUNK}}}"
UPSERT = "  items: {path: items, from: db, mode: upsert}"
APPEND = "  items: {path: items, from: db}"
DROPPED = "ALTER TABLE items DROP CONSTRAINT items_pkey"
TO_NUM = [DROPPED, "ALTER TABLE items ADD PRIMARY KEY (num)"]
TO_INDEX = [
    "CREATE UNIQUE INDEX items_num ON items (num)",
    "ALTER TABLE items REPLICA IDENTITY USING INDEX items_num",
]
TO_ID = [DROPPED, "ALTER TABLE items ADD PRIMARY KEY (id)"]
TO_NEW = ["ALTER TABLE items DROP COLUMN id CASCADE", "ALTER TABLE items ADD id serial PRIMARY KEY"]


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    return PostgresShop(postgres, database, tmp_path)


def filled(shop: PostgresShop, key: str) -> None:
    shop.execute(
        f"CREATE TABLE items (id int NOT NULL, num int NOT NULL, PRIMARY KEY ({key}))",
        f"INSERT INTO items SELECT i, {ROWS + 1} - i FROM generate_series(1, {ROWS}) i",
        "ANALYZE items",
    )


def newest_rows(shop: PostgresShop) -> list[tuple[int, int]]:
    """The rows of a log behind its last truncation."""
    rows = sorted(shop.rows("items"), key=lambda row: (row["_lsn"], row["_ordinal"]))
    begin = max((at for at, row in enumerate(rows) if row["_op"] == "truncate"), default=-1)
    return sorted((row["id"], row["num"]) for row in rows[begin + 1 :])


@pytest.mark.parametrize("tables", [UPSERT, APPEND], ids=["upsert", "append"])
@pytest.mark.parametrize(
    ("key", "statements"),
    [("id", TO_NUM), ("num, id", TO_ID), ("id", TO_INDEX), ("id", TO_NEW)],
    ids=["other column", "fewer columns", "index", "new column"],
)
def test_rows_are_read_again_when_their_key_changes_between_two_chunks(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture, key: str, statements: list[str], tables: str
) -> None:
    filled(shop, key)
    shop.write(tables, OPTIONS)

    shop.run_until_killed("batch_committed:2")
    copied = len(shop.rows("items"))
    shop.execute(*statements)
    shop.run(tables, OPTIONS)

    assert 0 < copied < ROWS
    found = newest_rows(shop) if tables == APPEND else shop.table("items", "id", "num")
    assert found == shop.query("SELECT id, num FROM items ORDER BY id")
    assert "the key of public.items was changed while its rows were copied" in caplog.text
    assert not (shop.folder / "shop_dead_letters").exists()


@pytest.mark.parametrize(
    "statements",
    [
        [*TO_NUM, "UPDATE items SET id = 5000 + id WHERE num % 7 = 0"],
        ["ALTER TABLE items ALTER id TYPE text"],
        [*TO_NEW, "DELETE FROM items WHERE num % 7 = 0"],
    ],
    ids=["other column", "other type", "new column"],
)
def test_rows_are_read_again_when_their_key_changes_while_a_run_reads_them(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch, statements: list[str]
) -> None:
    filled(shop, "id")
    noted, called = 0, PostgresClient.note

    def note(client: PostgresClient, parts: Mapping[str, PartRead]) -> None:
        nonlocal noted
        called(client, parts)
        noted += 1
        if noted == 1:
            # The table is not locked any more by the batch before.
            shop.execute(*statements)

    monkeypatch.setattr(PostgresClient, "note", note)

    run_inline(Pipeline.from_file(shop.write(UPSERT, OPTIONS)))
    shop.run(UPSERT, OPTIONS)

    assert noted > 1
    assert shop.table("items", "id", "num") == sorted(shop.query("SELECT id, num FROM items"))
    assert not (shop.folder / "shop_dead_letters").exists()
