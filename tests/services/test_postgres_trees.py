"""Partitions, and tables that inherit: each table that has rows needs an identity of its own."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from lakefeed import Pipeline
from lakefeed.doctor.services import examine
from lakefeed.sources.postgres import client as postgres_client
from support.postgres import PostgresServer
from support.postgres_copies import EVERY, LOG, ORDERS, eventually, running
from support.postgres_shop import PostgresShop
from support.processes import wait_until

DAYS = "CREATE TABLE days (at date, v text) PARTITION BY RANGE (at)"


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(ORDERS, "INSERT INTO orders VALUES (1, 'a')")
    return shop


def partition(year: int, of: str = "days", more: str = "") -> str:
    return (
        f"CREATE TABLE {of}_{year} PARTITION OF {of} FOR VALUES FROM ('{year}-01-01') TO "
        f"('{year + 1}-01-01') {more}"
    )


def statement(remedy: str) -> str:
    return remedy.partition(" -- ")[0]


def skipped(shop: PostgresShop, stream: str) -> list[str]:
    """The remedies that `doctor` prints for a table that is skipped."""
    found = examine(Pipeline.from_file(shop.file))
    return [one.remedy for one in found if one.text.startswith(f"skips {stream}: ")]


@pytest.mark.parametrize("partitions", [2, 9])
def test_a_partitioned_table_without_a_key_is_read_when_each_partition_has_an_identity(
    shop: PostgresShop, partitions: int
) -> None:
    shop.execute(DAYS, *(partition(2020 + at) for at in range(partitions)))
    # A partition may have partitions itself.
    shop.execute(
        partition(2040, more="PARTITION BY RANGE (at)"),
        'CREATE TABLE "Late \'40" PARTITION OF days_2040 DEFAULT',
        "INSERT INTO days VALUES ('2020-02-02', 'x'), ('2040-02-02', 'y')",
        "ALTER TABLE days REPLICA IDENTITY FULL",
    )
    shop.run(LOG, EVERY)
    shop.execute("UPDATE days SET v = v || 'a'")
    (remedy,) = skipped(shop, "public.days")

    # Every statement but the last.
    first, *rest = re.findall(r"ALTER TABLE [^;]+;", remedy) if partitions == 2 else [remedy, remedy]
    if partitions == 2:
        shop.execute(first)
        shop.run(LOG, EVERY)
        shop.execute("UPDATE days SET v = v || 'b'")
        assert [statement(one) for one in skipped(shop, "public.days")] == [" ".join(rest)]
        assert len(rest) == 2
    shop.execute(*(statement(one) for one in rest))
    shop.run(LOG, EVERY)
    shop.execute("UPDATE days SET v = v || 'c'", "DELETE FROM days WHERE at < '2021-01-01'")
    shop.run(LOG, EVERY)

    assert skipped(shop, "public.days") == []
    changed = "ab" if partitions == 2 else "a"
    assert shop.table("log/public.days", "_op", "v") == [
        ("delete", f"x{changed}c"),
        ("read", f"x{changed}"),
        ("read", f"y{changed}"),
        ("update", f"x{changed}c"),
        ("update", f"y{changed}c"),
    ]


def test_a_partition_without_an_identity_that_comes_to_a_published_table_is_told(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(postgres_client, "_LOOK_EVERY", 0.3)
    shop.execute(DAYS, partition(2020), "ALTER TABLE days_2020 REPLICA IDENTITY FULL")
    route = LOG.replace("log/", "lake/")

    def told() -> list[str]:
        texts = [one.getMessage() for one in caplog.records]
        return [one for one in texts if "public.days_2021: once it is published" in one]

    with running(shop, route, EVERY):
        eventually(shop, "orders")
        wait_until(lambda: (shop.folder / "lake/public.days").exists(), 120, lambda: "days is not read")
        shop.execute(partition(2021), "INSERT INTO days VALUES ('2021-02-02', 'x')")
        wait_until(lambda: bool(told()), 120, lambda: str(caplog.messages))
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            shop.execute("UPDATE days SET v = 'y'")
        shop.execute(statement(told()[0].partition("of them. ")[2]), "UPDATE days SET v = 'y'")
        wait_until(
            lambda: shop.table("lake/public.days", "_op", "v") == [("insert", "x"), ("update", "y")],
            120,
            lambda: str(shop.rows("lake/public.days")),
        )

    assert len(told()) == 1


def test_remedies_for_tables_that_inherit_reach_all_of_them_and_fit_each(shop: PostgresShop) -> None:
    shop.execute(
        "CREATE TABLE child (PRIMARY KEY (id)) INHERITS (orders)",
        "CREATE TABLE grand () INHERITS (child)",
        "INSERT INTO child VALUES (2, 'c')",
        "INSERT INTO grand VALUES (3, 'g')",
        "CREATE PUBLICATION mine FOR TABLE orders",
    )
    table = "  log: {route: 'log/{_stream}', from: db}"
    shop.run(table, "tables: public.orders, publication: mine")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        shop.execute("UPDATE grand SET v = 'x'")

    found = examine(Pipeline.from_file(shop.file))
    (remedy,) = [one.remedy for one in found if "is inherited by public.child and public.grand" in one.text]
    assert "To read public.child, add to `tables`: public.child. To read public.grand, add to" in remedy
    identity = re.findall(r"log of changes: (ALTER TABLE [^;]+;)", remedy)
    alone = remedy.partition("To leave them alone: ")[2]

    # The one that has a key may be read as it is, the other one after its statement.
    shop.execute(*identity)
    shop.run(table, "tables: [public.orders, public.child, public.grand], publication: mine")
    shop.execute("UPDATE grand SET v = 'y'")
    shop.run(table, "tables: [public.orders, public.child, public.grand], publication: mine")
    assert shop.table("log/public.child", "id", "v") == [(2, "c")]
    assert shop.table("log/public.grand", "_op", "v") == [("read", "g"), ("update", "y")]

    shop.execute("ALTER TABLE grand REPLICA IDENTITY DEFAULT", alone, "UPDATE grand SET v = 'z'")
    assert shop.query("SELECT tablename::text FROM pg_publication_tables") == [("orders",)]
