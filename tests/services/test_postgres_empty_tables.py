"""Postgres into tables, of tables that have never had a row: emptied, created again, read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.reprocess.snapshot import reading_anew
from support.postgres import PostgresServer
from support.postgres_shop import PostgresShop

TABLES = ("emptied", "created", "anew", "orders")
OPTIONS = "tables: 'public.*', on_recreate: snapshot"
ROUTES = (
    "  copies: {route: 'copy/{_stream}', from: db, mode: upsert}\n"
    "  pasts: {route: 'past/{_stream}', from: db, mode: history}"
)
SINGLE = "\n".join(
    f"  {name}: {{path: copy/public.{name}, from: db, mode: upsert, streams: public.{name}}}\n"
    f"  {name}_past: {{path: past/public.{name}, from: db, mode: history, streams: public.{name}}}"
    for name in TABLES
)


@pytest.mark.parametrize("tables", [ROUTES, SINGLE], ids=["route", "paths"])
def test_a_table_without_rows_may_be_emptied_and_read_again(
    postgres: PostgresServer, database: str, tmp_path: Path, tables: str
) -> None:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(*(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)" for name in TABLES))
    shop.run(tables, OPTIONS)
    shop.execute(
        "TRUNCATE emptied",
        "DROP TABLE created",
        "CREATE TABLE created (id int PRIMARY KEY, v text)",
        "INSERT INTO orders VALUES (1, 'a')",
    )

    shop.run(tables, OPTIONS)
    run_inline(reading_anew(Pipeline.from_file(shop.file), "db", ["public.anew"])[0])
    for name in TABLES[:3]:
        assert shop.rows(f"copy/public.{name}") == []
    shop.execute(*(f"INSERT INTO {name} VALUES (2, 'b')" for name in TABLES), "TRUNCATE anew")
    shop.run(tables, OPTIONS)

    for name in TABLES:
        rows = shop.query(f"SELECT id, v FROM {name} ORDER BY id")
        assert shop.table(f"copy/public.{name}", "id", "v") == rows
        present = [row for row in shop.rows(f"past/public.{name}") if row["valid_to"] is None]
        assert sorted((row["id"], row["v"]) for row in present) == rows
