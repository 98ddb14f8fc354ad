"""A copy follows the types and the names of its table in the database, or says that it does not."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline, TableError
from lakefeed.commands import app as line
from lakefeed.commands import snapshot as command
from lakefeed.engine.inline import run_inline
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reprocess.snapshot import reading_anew
from lakefeed.watch.health import remarks
from lakefeed.watch.state import RunState
from support.postgres import PostgresServer
from support.postgres_shop import UPSERT, PostgresShop

MODES = {
    "copy_on_write": UPSERT,
    "merge_on_read": UPSERT.replace("upsert", "upsert, updates: merge_on_read"),
}
ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, n int, price numeric(8,2), r real, t int, ok bool, s text)"
COLUMNS = "id, n, price, r, t, ok, s"
ALTERED = """ALTER TABLE orders ALTER id TYPE bigint, ALTER n TYPE bigint, ALTER price TYPE numeric(14,4),
    ALTER r TYPE float8, ALTER t TYPE text, ALTER ok TYPE text, ALTER s TYPE int USING s::int"""


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(ORDERS)
    shop.execute("INSERT INTO orders SELECT i, i, i, i, i, true, i::text FROM generate_series(1, 30) i")
    return shop


Typed = Callable[[str], str]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Types a command, which runs without Spark; what it printed."""

    def run(pipeline: Pipeline, **_: Any) -> None:
        run_inline(pipeline)

    monkeypatch.setattr(command, "run_pipeline", run)

    def call(text: str) -> str:
        monkeypatch.setattr(sys, "argv", shlex.split(text))
        try:
            line.main()
        except SystemExit as end:
            assert not end.code, capsys.readouterr().err
        return capsys.readouterr().out

    return call


def printed(caplog: pytest.LogCaptureFixture) -> str:
    """The one command that warnings have printed."""
    (found,) = {one for text in caplog.messages for one in re.findall("type: (lakefeed snapshot .*)", text)}
    return str(found)


def types(shop: PostgresShop) -> dict[str, str]:
    return {one.name: one.type.type for one in DeltaTable(shop.folder / "orders").schema().fields}


@pytest.mark.parametrize("mode", MODES)
def test_columns_get_the_types_of_the_database_and_no_row_is_refused(shop: PostgresShop, mode: str) -> None:
    shop.run(MODES[mode])
    shop.execute("DELETE FROM orders WHERE id = 5", "UPDATE orders SET n = 7 WHERE id = 6")
    shop.run(MODES[mode])
    shop.execute(
        "UPDATE orders SET n = 8 WHERE id = 7",
        ALTERED,
        "INSERT INTO orders VALUES (5000000000, 6000000000, 12345678.1234, 1e100, 'abc', 'yes', 9)",
        "UPDATE orders SET n = 5000000000 WHERE id = 2",
    )
    shop.run_until_killed("files_written:2")
    shop.run(MODES[mode])

    shop.agrees(COLUMNS)
    assert not DeltaTable.is_deltatable(str(shop.folder / "shop_dead_letters"))
    assert (types(shop)["id"], types(shop)["t"], types(shop)["s"]) == ("long", "string", "integer")


def test_the_printed_command_reads_values_that_a_statement_has_rewritten(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture, typed: Typed
) -> None:
    shop.run(UPSERT)
    shop.execute("ALTER TABLE orders ALTER n TYPE text USING 'no ' || n, ALTER r TYPE numeric(6,1)")
    shop.run(UPSERT)
    shop.run(UPSERT)
    typed_before = printed(caplog)

    shown = typed(typed_before.removesuffix("--yes"))
    typed(typed_before)
    caplog.clear()
    shop.run(UPSERT)

    assert "orders: 0 of 30 sampled rows would become dead letters" in shown
    shop.agrees(COLUMNS)
    assert not DeltaTable.is_deltatable(str(shop.folder / "shop_dead_letters"))
    assert "type: lakefeed" not in caplog.text


def test_a_snapshot_that_would_refuse_most_rows_replaces_nothing(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture, typed: Typed
) -> None:
    declared = UPSERT.replace("upsert", "upsert, schema: {id: int, n: int}")
    shop.run(declared)
    shop.execute("ALTER TABLE orders ALTER n TYPE text USING 'no ' || n")
    shop.run(declared)
    before = shop.table("orders", "id", "n")

    shown = typed(printed(caplog).removesuffix("--yes"))
    again, _ = reading_anew(Pipeline.from_file(shop.file), "db", [])
    with pytest.raises(TableError, match="30 of 30 rows of the new snapshot would become dead") as refused:
        run_inline(again)

    assert "orders: 30 of 30 sampled rows would become dead letters (wrong_type)" in shown
    assert shop.table("orders", "id", "n") == before
    assert len(before) == 30
    assert not DeltaTable.is_deltatable(str(shop.folder / "shop_dead_letters"))

    (drop,) = re.findall("`(lakefeed table drop [^`]*)`", str(refused.value))
    typed(drop)
    shop.run(UPSERT)
    shop.agrees(COLUMNS)


def test_a_renamed_column_is_told_until_the_printed_command_has_read_it(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture, typed: Typed
) -> None:
    shop.run(UPSERT)
    shop.execute("ALTER TABLE orders ADD extra int", "ALTER TABLE orders DROP ok")
    shop.run(UPSERT)
    assert "type: lakefeed" not in caplog.text
    shop.execute("ALTER TABLE orders RENAME t TO title", "UPDATE orders SET n = 9 WHERE id = 3")
    shop.run(UPSERT)
    pipeline = Pipeline.from_file(shop.file)
    state = RunState(pipeline)
    run_inline(pipeline, state.watch)
    (planned,) = plan_run(pipeline).tables

    said = "column title of public.orders had another name before"
    assert said in caplog.text
    assert any(said in text for text in remarks(state.view()))
    assert any(said in text for text in planned.warnings)
    assert said in typed(f"lakefeed status {shop.file}")

    typed(printed(caplog))
    caplog.clear()
    state = RunState(pipeline)
    run_inline(pipeline, state.watch)

    shop.agrees("id, n, title, extra")
    assert said not in caplog.text
    assert remarks(state.view()) == []
    assert not any(said in text for text in plan_run(pipeline).tables[0].warnings)


def test_what_a_statement_takes_back_is_told_until_the_printed_command_has_read_it(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture, typed: Typed
) -> None:
    """Rows that have changed meanwhile have their values in another column, or the old ones."""
    route, tables = "  copies: {route: 'lake/{_stream}', from: db, mode: upsert}", "tables: 'public.*'"
    for name in ("added", "renamed", "retyped"):
        shop.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, n numeric(8,2), t text)",
            f"INSERT INTO {name} SELECT i, i + 0.55, 't' FROM generate_series(1, 3) i",
        )
    shop.run(route, tables)
    shop.execute(
        "ALTER TABLE added DROP t",
        "ALTER TABLE renamed RENAME t TO title",
        "UPDATE renamed SET title = 'x' WHERE id = 1",
        "ALTER TABLE retyped ALTER n TYPE numeric(8,0)",
    )
    shop.run(route, tables)
    caplog.clear()
    shop.execute(
        "ALTER TABLE added ADD t text",
        "ALTER TABLE renamed RENAME title TO t",
        "ALTER TABLE retyped ALTER n TYPE numeric(8,2)",
        *(f"INSERT INTO {name} VALUES (4, 4, 'y')" for name in ("added", "renamed", "retyped")),
    )
    shop.run(route, tables)
    shop.run(route, tables)

    told = [one for one in caplog.messages if "type: lakefeed" in one]
    assert len(told) == 6
    for text in {*told}:
        typed(text.partition("type: ")[2])
    caplog.clear()
    shop.run(route, tables)

    assert "type: lakefeed" not in caplog.text
    for name in ("added", "renamed", "retyped"):
        copied = shop.table(f"lake/public.{name}", "id", "n", "t")
        assert copied == shop.query(f"SELECT id, n, t FROM {name} ORDER BY id"), name
