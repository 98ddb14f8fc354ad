"""`lakefeed snapshot` shows what it would read anew, and changes nothing, until it is told to."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.commands import app as line
from lakefeed.engine.inline import run_inline
from lakefeed.errors import DataLoss
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.status import status
from lakefeed.reprocess.snapshot import reading_anew
from support.postgres import PostgresServer
from support.postgres_copies import EVERY, ROUTE
from support.postgres_shop import PostgresShop


def test_nothing_changes_without_yes_or_with_dry_run(
    postgres: PostgresServer,
    database: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute("CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    shop.run("  orders: {path: orders, from: db, mode: upsert}")
    before = DeltaTable(tmp_path / "orders").version()

    def call(*more: str) -> list[str]:
        words = ["lakefeed", "snapshot", str(shop.file), "--source", "db", *more]
        monkeypatch.setattr(sys, "argv", words)
        try:
            line.main()
        except SystemExit as end:
            assert not end.code, capsys.readouterr().err
        return capsys.readouterr().out.splitlines()

    assert call() == [
        "public.orders: would be read anew into orders",
        "  orders: 0 of 1 sampled rows would become dead letters",
        "Nothing was changed. To do it: --yes",
    ]
    assert call("--yes", "--dry-run")[-1] == "Nothing was changed (--dry-run)."
    assert DeltaTable(tmp_path / "orders").version() == before


@pytest.mark.parametrize("what", ["clash", "key", "right", "recreated"])
def test_a_table_that_was_not_read_for_a_while_is_read_by_the_command_that_is_printed(
    postgres: PostgresServer, database: str, tmp_path: Path, what: str
) -> None:
    """The slot has passed what the table has read, and the other tables go on."""
    shop = PostgresShop(postgres, database, tmp_path)
    role = f"reader_{database}"
    shop.execute(
        *(f"CREATE TABLE {one} (id int PRIMARY KEY, v text)" for one in ("orders", "items")),
        "INSERT INTO items VALUES (1, 'x')",
        f"CREATE ROLE {role} LOGIN REPLICATION",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}",
        "CREATE PUBLICATION every FOR ALL TABLES WITH (publish_via_partition_root = true)",
    )
    shop.connection = postgres.dsn(database, role)
    route, every = ROUTE, f"{EVERY}, publication: every"
    away, back = {
        "clash": ('ALTER TABLE items ADD "a b" int, ADD a_b int', 'ALTER TABLE items RENAME "a b" TO other'),
        "key": ("ALTER TABLE items DROP CONSTRAINT items_pkey", "ALTER TABLE items ADD PRIMARY KEY (id)"),
        "right": (f"REVOKE SELECT ON items FROM {role}", f"GRANT SELECT ON items TO {role}"),
        "recreated": (
            "DROP TABLE items; CREATE TABLE items (id int PRIMARY KEY, v text); "
            f"GRANT SELECT ON items TO {role}",
            "INSERT INTO items VALUES (5, 'new')",
        ),
    }[what]
    try:
        shop.run(route, every)
        shop.execute(away, "INSERT INTO orders VALUES (1, 'a')")
        ((end,),) = shop.query("SELECT pg_current_wal_flush_lsn()::text")
        slot = "SELECT 1 FROM pg_replication_slots WHERE slot_name = 'lakefeed_shop_db'"
        for at in range(2, 60):
            shop.execute(f"INSERT INTO orders VALUES ({at}, 'a')")
            with suppress(DataLoss):
                shop.run(route, every)
            # It is moved on by a thread of its own.
            if shop.query(f"{slot} AND confirmed_flush_lsn > '{end}'"):
                break
        shop.execute(back, "INSERT INTO items VALUES (2, 'y')")
        with pytest.raises(DataLoss) as lost:
            shop.run(route, every)
        (words,) = re.findall(
            r"lakefeed snapshot \S+ (--source db --stream public.items --yes)", str(lost.value)
        )
        assert "slot lakefeed_shop_db begins at" in str(lost.value) or what == "recreated"
        typed = f"lakefeed snapshot {shop.file} {words}"
        assert typed in "".join(one.error or "" for one in status(Pipeline.from_file(shop.file)).tables)
        assert typed in "".join(one.refused or "" for one in plan_run(Pipeline.from_file(shop.file)).tables)

        again, _ = reading_anew(Pipeline.from_file(shop.file), words.split()[1], [words.split()[3]])
        run_inline(again)
        shop.execute("UPDATE items SET v = 'z' WHERE id = 2", "DELETE FROM items WHERE id = 1")
        shop.run(route, every)

        for one in ("orders", "items"):
            assert shop.table(f"lake/public.{one}", "id", "v") == shop.query(
                f"SELECT id, v FROM {one} ORDER BY 1"
            )
    finally:
        shop.execute(f"DROP OWNED BY {role}")
        postgres.execute(f"DROP ROLE {role}")
