"""Tables whose key is no integer are read in chunks, and changes and kills between them lose nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.sources.postgres.connection import connect
from lakefeed.sources.postgres.positions import ALL_ROWS
from lakefeed.sources.postgres.snapshot.chunk_key import HASHES, ChunkKey
from lakefeed.sources.postgres.source import PostgresSource
from support.postgres import PostgresServer
from support.postgres_shop import PostgresShop

VALUES = {
    # Its order is that of no byte: lower and upper case are mixed.
    "words": "(ARRAY['Zebra','apfel','Äpfel','zebra'])[i % 4 + 1] || i",
    "uuids": "md5(i::text)::uuid",
    "pairs": "'2026-01-01 00:00:00.5+00'::timestamptz - i * '1 day'::interval, i",
}
KEYS = {
    "words": 'word text COLLATE "und-x-icu" PRIMARY KEY',
    "uuids": "uid uuid PRIMARY KEY",
    "pairs": "at timestamptz, number numeric, PRIMARY KEY (at, number)",
}
TABLES = "\n".join(
    f"  {name}: {{path: {name}, from: db, streams: public.{name}, mode: upsert}}" for name in KEYS
)
OPTIONS = 'tables: "public.*"'


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    shop = PostgresShop(postgres, database, tmp_path)
    for name, key in KEYS.items():
        shop.execute(f"CREATE TABLE {name} (v int, {key})")
        shop.execute(f"INSERT INTO {name} SELECT i, {VALUES[name]} FROM generate_series(1, 120) i")
    shop.execute("ANALYZE")
    return shop


def meddle(shop: PostgresShop, batch: int) -> None:
    """Rows change, move to another key, come and go, whether they were copied or not."""
    statements = []
    for name, columns in {"words": "word", "uuids": "uid", "pairs": "(at, number)"}.items():
        moved = f"(SELECT {VALUES[name]} FROM (SELECT {5000 + batch} AS i) x)"
        statements += [
            f"UPDATE {name} SET v = v + 100000 WHERE v % 7 = {batch % 7}",
            f"UPDATE {name} SET {columns} = {moved} WHERE v = {batch * 13 % 120}",
            f"DELETE FROM {name} WHERE v = {batch * 17 % 120}",
            f"INSERT INTO {name} SELECT {900000 + batch}, {VALUES[name]} FROM (SELECT 9000 + {batch} AS i) x",
        ]
    shop.execute(*statements)


def test_changes_between_chunks_and_a_kill_in_the_middle_lose_nothing_and_double_nothing(
    shop: PostgresShop,
) -> None:
    batches = 0

    def watch(event: object) -> None:
        nonlocal batches
        if type(event).__name__ == "BatchDone":
            batches += 1
            meddle(shop, batches)
            if batches == 4:
                raise KeyboardInterrupt

    pipeline = Pipeline.from_file(shop.write(TABLES, OPTIONS, "flush: {rows: 50}"))
    with pytest.raises(KeyboardInterrupt):
        run_inline(pipeline, watch)
    before = positions(shop)
    run_inline(pipeline, watch)
    shop.run(TABLES, OPTIONS)

    assert any(0 < at < ALL_ROWS for at in before.values()), "the kill was in the middle of a table"
    assert batches >= 9
    for name in KEYS:
        assert shop.table(name, "v") == shop.query(f"SELECT v FROM {name} ORDER BY v"), name


def test_partitioned_table_that_nobody_has_analyzed_is_read_in_chunks(
    postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(
        "CREATE TABLE ev (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)",
        "CREATE TABLE ev1 PARTITION OF ev FOR VALUES FROM (0) TO (1000)",
        "CREATE TABLE ev2 PARTITION OF ev FOR VALUES FROM (1000) TO (3000)",
        "INSERT INTO ev SELECT i, i FROM generate_series(1, 2000) i",
    )
    read: list[object] = []
    tables = "  ev: {path: ev, from: db, mode: upsert}"
    pipeline = Pipeline.from_file(shop.write(tables, "tables: public.ev", "flush: {rows: 300}"))

    run_inline(pipeline, lambda event: read.append(event) if type(event).__name__ == "BatchDone" else None)

    assert len(read) >= 2000 // 300
    assert shop.table("ev", "id") == shop.query("SELECT id FROM ev ORDER BY id")


def positions(shop: PostgresShop) -> dict[str, int]:
    """How far the rows of each table were read, by its log."""
    found = {}
    for name in (name for name in KEYS if (shop.folder / name).exists()):
        at = DeltaTable(str(shop.folder / name)).transaction_version(f"shop/db/public.{name}:rows")
        found[name] = -1 if at is None else at
    return found


def test_server_and_worker_give_a_key_the_same_number(postgres: PostgresServer, database: str) -> None:
    values: dict[str, list[Any]] = {
        "text": ["", "é\u0001", "Zebra's", "\U0001f600"],
        "uuid": ["00000000-0000-4000-8000-000000000000"],
        "timestamptz": ["2026-01-01 00:00:00.5+05", "infinity", "0044-03-15 BC"],
        "numeric": ["1.10", "-0.0001", "NaN"],
        "bool": ["t", "f"],
        "inet": ["10.0.0.1", "::1/64"],
        "char(6)": ["ab"],
        "bytea": ["\\x00ff"],
    }
    key = ChunkKey(("a", "b"), is_hashed=True)
    source = PostgresSource(connection=postgres.dsn(database), tables=("public.t",))
    with connect(source) as connection:
        for kind, several in values.items():
            connection.execute(f"DROP TABLE IF EXISTS t; CREATE TABLE t (a {kind}, b int)".encode())
            for value in several:
                connection.execute("INSERT INTO t VALUES (%s, 7)", [value])
            given = connection.execute(f"SELECT {key.expression()} FROM t ORDER BY ctid".encode()).fetchall()
            with connection.cursor().copy("COPY t (a) TO STDOUT (FORMAT csv, FORCE_QUOTE *)") as copy:
                lines = b"".join(copy).decode().split("\n")[:-1]
            texts = [line[1:-1] for line in lines]

            found = key.numbers([pa.array(texts), pa.array(["7"] * len(texts))]).tolist()

            assert found == [number for (number,) in given], kind
            assert all(0 <= number < HASHES for number in found)
