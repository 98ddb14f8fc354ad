"""Several tables of a database in one Delta table: the rows of each stay apart, whatever keys they have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakefeed import LakefeedError, Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.snapshot import reading_anew
from support.postgres import PostgresServer
from support.postgres_shop import PostgresShop

OPTIONS = "tables: [public.east, public.west]"
COPIES = """\
  both: {path: both, from: db, mode: upsert}
  merged: {path: merged, from: db, mode: upsert, keys: id, updates: merge_on_read, rename: {_stream: shop}}
  chosen: {path: chosen, from: db, mode: upsert, select: [id, name]}
  past: {path: past, from: db, mode: history}"""


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(
        "CREATE TABLE east (id int PRIMARY KEY, name text)",
        "CREATE TABLE west (id int PRIMARY KEY, name text)",
        "INSERT INTO east VALUES (1, 'e'), (2, 'e')",
        "INSERT INTO west VALUES (1, 'w'), (12, 'w')",
    )
    return shop


def agree(shop: PostgresShop) -> None:
    there = sorted(
        (f"public.{name}", *row)
        for name in ("east", "west")
        for row in shop.query(f"SELECT id, name FROM {name}")
    )
    for path, column in (("both", "_stream"), ("merged", "shop"), ("chosen", "_stream")):
        assert shop.table(path, column, "id", "name") == there, path
    present: list[Any] = [row for row in shop.rows("past") if row["valid_to"] is None]
    assert sorted((row["_stream"], row["id"], row["name"]) for row in present) == there


def test_equal_keys_truncations_and_snapshots_of_one_leave_the_other_alone(shop: PostgresShop) -> None:
    shop.run(COPIES, OPTIONS)
    agree(shop)
    shop.execute(
        "TRUNCATE east", "INSERT INTO east VALUES (3, 'e')", "UPDATE west SET name = 'v' WHERE id = 12"
    )
    shop.run(COPIES, OPTIONS)
    agree(shop)
    # A row that is in both for a while, as when it moves from one to the other.
    shop.execute("INSERT INTO west SELECT * FROM east", "DELETE FROM east", "DELETE FROM west WHERE id = 1")
    shop.run_until_killed("table_committed:2")
    shop.run(COPIES, OPTIONS)
    agree(shop)
    shop.execute(
        "INSERT INTO east VALUES (5, 'e')", "TRUNCATE east, west", "INSERT INTO west VALUES (5, 'w')"
    )
    shop.run(COPIES, OPTIONS)
    agree(shop)
    shop.execute("INSERT INTO east VALUES (5, 'e')")
    shop.run(COPIES, OPTIONS)

    run_inline(reading_anew(Pipeline.from_file(shop.file), "db", ["public.east"])[0])

    agree(shop)
    report = verify(Pipeline.from_file(shop.file), deep=True, against_source=True)
    assert not [finding for table in report.tables for finding in table.findings]
    shop.execute("UPDATE west SET id = 6")
    shop.run(COPIES, OPTIONS)
    agree(shop)


def test_a_dead_letter_from_before_a_truncation_brings_no_row_back(shop: PostgresShop) -> None:
    tables = "  both: {path: both, from: db, mode: upsert, expect: {short: length(name) < 5}}"
    shop.run(tables, OPTIONS)
    shop.execute("INSERT INTO east VALUES (7, 'too long')", "INSERT INTO west VALUES (7, 'too long')")
    shop.run(tables, OPTIONS)
    shop.execute("TRUNCATE east")
    shop.run(tables, OPTIONS)
    shop.write(tables.replace("< 5", "< 50"), OPTIONS)

    (report,) = replay(Pipeline.from_file(shop.file), DeadLetterFilter())

    assert (report.rows, [(again.code, again.dead_letters) for again in report.again]) == (
        0,
        [("former_key", 2)],
    )
    assert "lakefeed snapshot" in report.again[0].example
    run_inline(reading_anew(Pipeline.from_file(shop.file), "db", ["public.west"])[0])
    there = [("public.west", 1, "w"), ("public.west", 7, "too long"), ("public.west", 12, "w")]
    assert shop.table("both", "_stream", "id", "name") == there


def test_rows_that_do_not_say_of_which_table_they_are_stop_their_table_when_another_one_comes(
    shop: PostgresShop,
) -> None:
    tables = "  chosen: {path: chosen, from: db, mode: upsert, select: [id, name]}"
    shop.run(tables, "tables: public.east")

    with pytest.raises(LakefeedError, match="lakefeed table drop"):
        shop.run(tables, OPTIONS)

    assert shop.table("chosen", "id", "name") == [(1, "e"), (2, "e")]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("drop: [_stream]", "`drop` names _stream, which tells the rows of several streams apart"),
        ("keys: all", "with `keys: all` a table takes one stream"),
    ],
)
def test_a_table_of_several_that_cannot_tell_their_rows_apart_is_refused(
    shop: PostgresShop, more: str, told: str
) -> None:
    with pytest.raises(LakefeedError, match=told):
        shop.run(f"  both: {{path: both, from: db, mode: upsert, {more}}}", OPTIONS)


def test_a_route_by_a_value_that_may_change_is_told_by_plan_and_start(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    told = "`route` names name: where that changes in a row, the row stays in the table of its old value"
    tables = (
        "  copies: {route: 'lake/{name}', from: db, mode: upsert}\n"
        "  plain: {route: 'plain/{_stream}', from: db, mode: upsert}"
    )
    planned = plan_run(Pipeline.from_file(shop.write(tables, OPTIONS)))
    shop.run(tables, OPTIONS)

    assert [told in text for one in planned.tables for text in one.warnings if "`route`" in text] == [True]
    assert caplog.text.count(told) == 1


def test_a_copy_of_two_databases_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "name: shop\nsources:\n"
        "  east: {type: postgres, host: east, tables: public.orders}\n"
        "  west: {type: postgres, host: west, tables: public.orders}\n"
        "tables:\n  orders: {path: orders, from: [east, west], mode: upsert}\n"
    )
    with pytest.raises(LakefeedError, match="'east' and 'west' are two Postgres sources"):
        Pipeline.from_file(file)


def test_a_function_has_to_keep_the_column_that_says_of_which_table_a_row_is(shop: PostgresShop) -> None:
    (shop.folder / "shop_code.py").write_text(
        "def few(batch):\n    return batch.drop_columns([n for n in batch.schema.names if n == '_stream'])\n"
    )
    tables = "  both: {path: both, from: db, mode: upsert, python: 'shop_code:few'}"
    with pytest.raises(LakefeedError, match="needs the column _stream, which tells their rows apart"):
        shop.run(tables, OPTIONS)
