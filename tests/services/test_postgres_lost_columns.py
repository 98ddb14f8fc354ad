"""Columns that the pipeline file names and that a table of the database does not have any more."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakefeed import LakefeedError, Pipeline, TableError
from lakefeed.commands import app as line
from lakefeed.commands import snapshot as command
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.engine.run_events import TableStopped
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.snapshot import reading_anew
from support.postgres import PostgresServer
from support.postgres_shop import PostgresShop

Typed = Callable[[str], str]


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute("CREATE TABLE other (id int PRIMARY KEY)")
    return shop


def add(shop: PostgresShop, *names: str) -> None:
    for name in names:
        shop.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, status text, n int)",
            f"INSERT INTO {name} SELECT i, 'open', i FROM generate_series(1, 30) i",
        )


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
            out, err = capsys.readouterr()
            return f"{out}{err}" + (f"code {end.code}" if end.code else "")
        return capsys.readouterr().out

    return call


def stopped(shop: PostgresShop, tables: str, options: str) -> dict[str, str]:
    """What a run says of the tables that it stops."""
    found: dict[str, str] = {}

    def watch(event: object) -> None:
        if isinstance(event, TableStopped):
            found[event.table] = event.text

    with pytest.raises(LakefeedError):
        run_inline(Pipeline.from_file(shop.write(tables, options)), watch)
    return found


def copy(name: str, more: str) -> str:
    return f"  {name}: {{path: {name}, from: db, streams: public.{name}, mode: upsert, {more}}}\n"


OTHER = "  other: {path: other, from: db, streams: public.other, mode: upsert}"
NAMED = {
    "filtered": "where: \"STATUS = 'open'\"",
    "made": 'select: [id, n, "upper(STATUS) AS status_text"]',
    "judged": "expect: {is_open: \"STATUS <> ''\"}",
    "renamed": "rename: {STATUS: label}",
    "parted": "partition_by: [STATUS]",
    "aliased": "where: \"STATUS = 'open'\"",
}


def test_a_renamed_column_that_an_option_names_stops_its_table_until_the_file_has_the_new_name(
    shop: PostgresShop, typed: Typed
) -> None:
    add(shop, *NAMED)
    options = "tables: public.*"
    tables = "".join(copy(name, more.replace("STATUS", "status")) for name, more in NAMED.items()) + OTHER
    shop.run(tables, options)
    for name in NAMED:
        shop.execute(
            f"UPDATE {name} SET n = 100 WHERE id = 1",
            f"ALTER TABLE {name} RENAME status TO state",
            f"UPDATE {name} SET n = 200 WHERE id = 2",
        )
    shop.execute("INSERT INTO other VALUES (1)")

    texts = stopped(shop, tables, options)
    again = stopped(shop, tables, options)

    # What is before the statement is read, and nothing of what follows.
    assert texts == again and set(texts) == set(NAMED)
    assert all("is called state now" in text for text in texts.values())
    assert shop.table("other", "id") == [(1,)]
    for name in NAMED:
        rows = {row["id"]: row["n"] for row in shop.rows(name)}
        assert len(rows) == 30 and (rows[1], rows[2]) == (100, 2), name
    assert not DeltaTable.is_deltatable(str(shop.folder / "shop_dead_letters"))
    printed = re.findall("columns of now: (lakefeed snapshot .*)", texts["filtered"])[0]
    assert "would stop: table filtered: `where` names status" in typed(printed.removesuffix("--yes"))
    assert "code 1" in typed(printed)
    assert len(shop.rows("filtered")) == 30

    corrected = "".join(copy(name, more.replace("STATUS", "state")) for name, more in NAMED.items()) + OTHER
    corrected = corrected.replace(copy("parted", "partition_by: [state]"), "")
    # The table may also keep its column.
    corrected = corrected.replace(
        copy("aliased", "where: \"state = 'open'\""),
        copy("aliased", "rename: {state: status}, where: \"status = 'open'\""),
    )
    shop.write(corrected, options)
    assert {one.refused for one in plan_run(Pipeline.from_file(shop.file)).tables} == {None}
    shop.run(corrected, options)
    assert {row["id"]: row["n"] for row in shop.rows("judged")}[2] == 200
    assert shop.table("aliased", "id", "status", "n")[:3] == [
        (1, "open", 100),
        (2, "open", 200),
        (3, "open", 3),
    ]
    assert "0 of 30 sampled rows would become dead letters" in typed(printed.removesuffix("--yes"))
    assert "code" not in typed(printed)
    assert shop.table("filtered", "id", "state", "n") == shop.query(
        "SELECT id, state, n FROM filtered ORDER BY 1"
    )


def test_a_column_that_was_dropped_or_is_computed_or_not_published_is_not_null(shop: PostgresShop) -> None:
    add(shop, "gone", "hidden")
    shop.execute(
        "CREATE TABLE computed (id int PRIMARY KEY, n int, double int GENERATED ALWAYS AS (n * 2) STORED)",
        "INSERT INTO computed SELECT i, i FROM generate_series(1, 3) i",
        "CREATE PUBLICATION own FOR TABLE gone, computed, other, hidden (id, n)",
    )
    tables = (
        copy("gone", "keys: [id], delete_when: \"status = 'closed'\", sequence_by: [_lsn, _ordinal]")
        + copy("computed", "schema: {double: int}, where: double > 0")
        + copy("hidden", "schema: {status: string}, where: \"status = 'open'\"")
        + OTHER
    )
    texts = stopped(shop, tables, "publication: own")
    shop.execute("ALTER TABLE gone DROP status", "UPDATE gone SET n = 5", "INSERT INTO other VALUES (1)")
    texts |= stopped(shop, tables, "publication: own")

    assert shop.table("other", "id") == [(1,)]
    assert len(shop.rows("gone")) == 30
    planned = {one.name: one.refused for one in plan_run(Pipeline.from_file(shop.file)).tables}
    assert set(texts) == {"gone", "computed", "hidden"} == {one for one in planned if planned[one]}
    said = f"{texts}"
    assert "`delete_when` names status, which public.gone does not have any more: it was dropped" in said
    assert "public.computed computes for itself: the server does not send generated columns" in said
    assert "public.hidden has, but the publication does not publish" in said


def test_one_stream_of_a_table_or_of_a_route_stops_and_the_others_go_on(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.execute("CREATE SCHEMA shops")
    add(shop, "shops.one", "shops.two")
    shop.execute(
        "CREATE TABLE shops.three (id int PRIMARY KEY, kind text)", "INSERT INTO shops.three VALUES (1)"
    )
    # The third never had the column, which is null in its rows.
    where = "schema: {id: int, status: string, _stream: string}, where: \"coalesce(status, 'open') = 'open'\""
    tables = (
        f"  all: {{path: all, from: db, {where}}}\n"
        f"  copies: {{route: 'lake/{{_stream}}', from: db, mode: upsert, {where}}}"
    )
    options = "tables: shops.*"
    shop.run(tables, options)
    shop.execute("ALTER TABLE shops.one RENAME status TO state")
    for name in ("one", "two"):
        shop.execute(f"INSERT INTO shops.{name} (id, n) VALUES (31, 31)")
    shop.execute("INSERT INTO shops.three VALUES (2)")

    texts = stopped(shop, tables, options)
    shop.execute("INSERT INTO shops.two (id, n) VALUES (32, 32)")
    assert stopped(shop, tables, options) == texts

    assert "which shops.one does not have any more: it is called state now" in texts["copies/shops.one"]
    assert set(texts) == {"copies/shops.one"} and "table all: `where` names status" in caplog.text
    assert len(shop.rows("lake/shops.one")) == 30
    assert len(shop.rows("lake/shops.two")) == 32
    assert shop.table("lake/shops.three", "id") == [(1,), (2,)]
    streams = [row["_stream"] for row in shop.rows("all")]
    assert [streams.count(f"shops.{name}") for name in ("one", "two", "three")] == [30, 32, 2]


def test_columns_that_come_and_go_and_that_nothing_names_stop_nothing(shop: PostgresShop) -> None:
    add(shop, "orders")
    table = (
        "  orders: {path: orders, from: db, mode: upsert, where: flag IS NOT false, schema: {flag: boolean}}"
    )
    shop.run(table.replace("where: flag IS NOT false, ", ""))
    # Before the column, rows have no value in it.
    shop.execute("UPDATE orders SET n = 7 WHERE id = 1", "ALTER TABLE orders DROP status, ADD flag boolean")
    shop.execute("UPDATE orders SET flag = false WHERE id = 2", "UPDATE orders SET n = 9 WHERE id = 3")
    shop.run(table)

    there = shop.query("SELECT id, n FROM orders WHERE flag IS NOT false ORDER BY id")
    assert shop.table("orders", "id", "n") == there and len(there) == 29


def test_a_snapshot_that_leaves_out_nearly_all_rows_says_so_and_replaces_nothing(
    shop: PostgresShop, typed: Typed
) -> None:
    add(shop, "orders")
    table = "  orders: {path: orders, from: db, mode: upsert, where: \"status = 'open'\"}"
    shop.run(table)
    shop.execute("ALTER TABLE orders ALTER status TYPE text USING 'OPEN'")
    shop.run(table)
    snapshot = f"lakefeed snapshot {shop.file} --source db --stream public.orders"

    shown = typed(snapshot)
    again, _ = reading_anew(Pipeline.from_file(shop.file), "db", [])
    with pytest.raises(TableError) as raised:
        run_inline(again)

    assert "0 of 30 sampled rows would become dead letters, and 30 would be left out" in shown
    assert "30 of 30 rows of the new snapshot would be left out, and 0 would replace the 30" in str(
        raised.value
    )
    assert len(shop.rows("orders")) == 30
    (drop,) = re.findall("`(lakefeed table drop [^`]*)`", str(raised.value))
    assert "code" not in typed(drop)
    shop.run(table)
    assert shop.rows("orders") == []


def test_a_dead_letter_from_before_a_new_name_is_not_left_out_by_a_condition(shop: PostgresShop) -> None:
    shop.execute(
        "CREATE TABLE days (id int PRIMARY KEY, status text, day date)",
        "INSERT INTO days VALUES (1, 'open', 'infinity'), (2, 'open', '2026-01-01')",
    )
    table = "  days: {path: days, from: db, mode: upsert, where: \"STATUS = 'open'\"}"
    shop.run(table.replace("STATUS", "status"), "tables: public.days")
    shop.execute("ALTER TABLE days RENAME status TO state", "UPDATE days SET day = day WHERE id = 2")
    shop.run(table.replace("STATUS", "state"), "tables: public.days, infinity: max")

    (done,) = replay(Pipeline.from_file(shop.file), DeadLetterFilter())

    assert (done.rows, done.left_out, done.again[0].code) == (0, 0, "unknown_value")
    assert "`where` names state, which the row does not have" in done.again[0].example
    assert len(shop.rows("shop_dead_letters")) == 1
