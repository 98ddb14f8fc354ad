"""`lakefeed snapshot` shows what it would read anew, and changes nothing, until it is told to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed.commands import app as line
from support.postgres import PostgresServer
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
        "Nothing was changed. To do it: --yes",
    ]
    assert call("--yes", "--dry-run")[-1] == "Nothing was changed (--dry-run)."
    assert DeltaTable(tmp_path / "orders").version() == before
