"""Routes over a database that shape rows, killed while they copy them."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from lakefeed import LakefeedError, Pipeline
from lakefeed.engine.batch.plan import spans
from lakefeed.reports.verify import verify
from lakefeed.sources import Allowance
from lakefeed.sources.postgres.client import PostgresClient
from lakefeed.sources.postgres.positions import ALL_ROWS
from lakefeed.sources.postgres.source import PostgresSource
from support.postgres import PostgresServer
from support.postgres_shop import PostgresShop

TABLES, EVERY = ("a", "b", "c"), 'tables: "public.*"'
SHAPED = "  copies: {{route: 'lake/{{_stream}}', from: db, mode: upsert, {}}}"
UPSERT = "  copy: {path: copy, from: db, mode: upsert}"
BY_KIND = "  copies: {route: 'lake/{kind}', from: db}"


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    shop = PostgresShop(postgres, database, tmp_path)
    for name in TABLES:
        shop.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, v int, kind text)",
            f"INSERT INTO {name} SELECT i, i, 'k' || i % 3 FROM generate_series(1, 5) i",
        )
    return shop


@pytest.mark.parametrize("sql", ["where: v >= 0", "select: ['*', 'v + 1 AS w']"])
@pytest.mark.parametrize("point", ["table_committed:1", "table_committed:2", "table_committed:3"])
def test_tables_of_streams_go_on_each_from_its_own_position(shop: PostgresShop, sql: str, point: str) -> None:
    route = SHAPED.format(sql)
    shop.write(route, EVERY)
    shop.run_until_killed(point)
    shop.execute(
        "INSERT INTO a VALUES (6, 6)", "DELETE FROM b WHERE id = 1", "UPDATE c SET v = 9 WHERE id = 2"
    )
    shop.run(route, EVERY)

    for name in TABLES:
        rows = shop.query(f"SELECT id, v FROM {name} ORDER BY id")
        assert shop.table(f"lake/public.{name}", "id", "v") == rows
    assert verify(Pipeline.from_file(shop.file)).sound


def test_rows_that_only_some_tables_of_a_route_have_stop_it_with_what_to_do(shop: PostgresShop) -> None:
    # More tables than are committed at once: some have not been when the first one is.
    shop.execute("INSERT INTO b SELECT i, i, 'k' || i FROM generate_series(10, 39) i")
    shop.write(BY_KIND, EVERY)
    shop.run_until_killed("table_committed:1")
    shop.execute("INSERT INTO a VALUES (6, 6, 'k0')")

    with pytest.raises(LakefeedError, match=r"some of them have the rows, others not\.\nDrop the tables of"):
        shop.run(BY_KIND, EVERY)

    for path in (shop.folder / "lake").glob("k*"):
        shutil.rmtree(path)
    shop.run(BY_KIND, EVERY)
    assert sum(len(shop.rows(f"lake/{path.name}")) for path in (shop.folder / "lake").glob("k*")) == 46
    assert verify(Pipeline.from_file(shop.file)).sound


def test_rows_of_one_table_do_not_end_where_another_has_found_another_key(shop: PostgresShop) -> None:
    pipeline = Pipeline.from_file(shop.write(UPSERT, "tables: public.a"))
    source = pipeline.sources["db"]
    assert isinstance(source, PostgresSource)
    with closing(PostgresClient(source, "shop", "db")) as client:
        client.begin()
        start, allowed = client.start(), Allowance(2, 1_000_000)
        shop.execute("UPDATE a SET v = 0")
        client.end_earlier({"public.a": start["public.a"] + 1})

        first = client.next_end(start, client.latest(), allowed)
        assert client.splits(spans(start, first), 1)
        assert first["public.a"] > start["public.a"] + 1 and first["public.a:rows"] > 0
        shop.execute("UPDATE a SET v = 1")
        client.end_earlier({"public.a": first["public.a"] + 1})
        second = client.next_end(first, client.latest(), allowed)
        assert client.splits(spans(first, second), 1)
        assert second == first | {"public.a": first["public.a"] + 1}
        third = client.next_end(second, client.latest(), allowed)
        assert third["public.a:rows"] > second["public.a:rows"]


def test_a_table_that_has_the_rows_of_one_stream_is_not_read_with_one_that_lacks_them(
    shop: PostgresShop,
) -> None:
    source = Pipeline.from_file(shop.write(UPSERT, "tables: public.a")).sources["db"]
    assert isinstance(source, PostgresSource)
    client = PostgresClient(source, "shop", "db")
    lacks, other = {"public.a": 5, "public.a:rows": 0}, {"public.b": 5, "public.b:rows": 0}

    assert client.strand(lacks) == client.strand(other)
    assert client.strand(other | {"public.a": 9, "public.a:rows": ALL_ROWS}) != client.strand(lacks)
