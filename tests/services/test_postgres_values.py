"""Values of Postgres that no column of Delta holds: as text, as a last day, and never in silence."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lakefeed import Pipeline
from lakefeed.commands.app import app
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.errors import SqlError
from lakefeed.handles.tables import Tables
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.sql import check_sql
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.snapshot import reading_anew
from lakefeed.upkeep.file_counts import count_unapplied
from lakefeed.watch.health import remarks
from lakefeed.watch.state import RunState
from support.postgres import PostgresServer
from support.postgres_shop import UPSERT, PostgresShop

TYPES = """
CREATE TYPE pair AS (a int, until date);
CREATE TABLE orders (
    id int PRIMARY KEY, day date, at timestamptz, plain timestamp, price numeric(10,2), flag boolean,
    count bigint, share float8, content bytea, days date[], two pair, clock time
)
"""
ODD = (
    "'infinity', '-infinity', '0044-03-15 10:00:00 BC', 'NaN', true, 7, 'Infinity', '\\xff', "
    "'{infinity,2026-01-02}', ROW(1, '-infinity'), '24:00'"
)
GOOD = (
    "'2026-01-02', '2026-01-02 03:04:05+00', '2026-01-02 03:04:05', 1.5, false, 8, 0.5, '\\x00', "
    "'{2026-01-02}', ROW(2, '2026-01-02'), '03:04'"
)
COLUMNS = ("day", "at", "plain", "price", "flag", "count", "share", "content", "days", "two", "clock")
DECLARED = ", ".join(f"{name}: string" for name in COLUMNS)
AS_TEXT = f"  orders: {{path: orders, from: db, mode: upsert, schema: {{{DECLARED}}}}}"


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    return PostgresShop(postgres, database, tmp_path)


def test_every_type_can_be_declared_as_the_text_that_the_server_prints(shop: PostgresShop) -> None:
    shop.execute(*TYPES.split(";"), f"INSERT INTO orders VALUES (1, {ODD}), (2, {GOOD})")
    shop.run(AS_TEXT)
    shop.execute(f"INSERT INTO orders VALUES (3, {ODD}), (4, {GOOD})", "UPDATE orders SET count = 9")
    shop.run(AS_TEXT)

    odd = (
        "infinity",
        "-infinity",
        "0044-03-15 10:00:00 BC",
        "NaN",
        "t",
        "9",
        "Infinity",
        "\\xff",
        "{infinity,2026-01-02}",
        "(1,-infinity)",
        "24:00:00",
    )
    good = (
        "2026-01-02",
        "2026-01-02 03:04:05+00",
        "2026-01-02 03:04:05",
        "1.50",
        "f",
        "9",
        "0.5",
        "\\x00",
        "{2026-01-02}",
        "(2,2026-01-02)",
        "03:04:00",
    )
    assert shop.table("orders", "id", *COLUMNS) == [(1, *odd), (2, *good), (3, *odd), (4, *good)]
    assert not (shop.folder / "shop_dead_letters").exists()


def test_infinite_days_are_the_first_and_the_last_where_the_source_says_so(shop: PostgresShop) -> None:
    table = "  orders: {path: orders, from: db, mode: upsert, schema: {plain: string, price: string}}"
    options = "tables: public.orders, infinity: max"
    shop.execute(*TYPES.split(";"), f"INSERT INTO orders VALUES (1, {ODD})")
    shop.run(table, options)
    shop.execute(f"INSERT INTO orders VALUES (2, {ODD})", "UPDATE orders SET plain = 'infinity' WHERE id = 2")
    shop.run(table, options)

    first, second = sorted(shop.rows("orders"), key=lambda row: row["id"])
    for row in (first, second):
        assert row["day"] == date(9999, 12, 31)
        assert row["at"] == datetime(1, 1, 1, tzinfo=UTC)
        assert row["days"] == [date(9999, 12, 31), date(2026, 1, 2)]
        assert row["two"] == {"a": 1, "until": date(1, 1, 1)}
    # A column that is declared as text has its text, whatever the source says.
    assert (first["plain"], second["plain"]) == ("0044-03-15 10:00:00 BC", "infinity")


def test_the_columns_that_plan_advises_take_every_value(shop: PostgresShop) -> None:
    shop.execute(*TYPES.split(";"), f"INSERT INTO orders VALUES (1, {ODD}), (2, {GOOD})")
    (planned,) = plan_run(Pipeline.from_file(shop.write(UPSERT))).tables
    (advice,) = [text for text in planned.warnings if "dead letters" in text]

    declared = re.search(r"`(schema: \{.*?\})`", advice)
    assert declared and declared[1].startswith("schema: {day: string, ")
    shop.run(UPSERT.replace("}", f", {declared[1]}}}"))

    assert len(shop.rows("orders")) == 2
    assert not (shop.folder / "shop_dead_letters").exists()


def test_a_copy_whose_newest_change_is_a_dead_letter_says_so_until_it_is_replayed(shop: PostgresShop) -> None:
    shop.execute("CREATE TABLE orders (id int PRIMARY KEY, day date, price numeric(10,2), note text)")
    shop.execute("INSERT INTO orders VALUES (1, '2026-01-01', 1, 'a'), (2, '2026-01-01', 2, 'b')")
    shop.run(UPSERT)
    assert status(Pipeline.from_file(shop.file)).tables[0].unapplied == 0
    shop.execute("UPDATE orders SET day = 'infinity' WHERE id = 1")
    shop.run(UPSERT)

    stale = "1 change is a dead letter: the rows of its key may be older than those of the database"
    pipeline = Pipeline.from_file(shop.file)
    assert status(pipeline).tables[0].unapplied == 1
    printed = CliRunner().invoke(app, ["status", str(shop.file)]).output
    assert f"  orders: {stale}" in printed.splitlines()
    run = RunState(pipeline)
    count_unapplied(Tables(pipeline), run.watch)
    assert remarks(run.view()) == [f"table orders: {stale}"]
    report = verify(pipeline)
    assert report.sound and stale in report.tables[0].notes

    # The way out: the columns as text, and the dead letter sent again with all its values.
    columns = ["--column", "day string", "--column", "price string", "--yes"]
    done = CliRunner().invoke(app, ["table", "replace", str(shop.folder / "orders"), *columns])
    assert done.exit_code == 0, done.output
    shop.write(UPSERT.replace("}", ", schema: {day: string, price: string}}"))
    pipeline = Pipeline.from_file(shop.file)
    (resent,) = replay(pipeline, DeadLetterFilter())
    assert (resent.rows, resent.again) == (1, [])
    assert shop.table("orders", "id", "day", "price") == [(1, "infinity", "1.00"), (2, "2026-01-01", "2.00")]
    assert status(pipeline).tables[0].unapplied == 0
    assert stale not in verify(pipeline).tables[0].notes


def test_a_dead_letter_of_an_infinite_day_is_a_row_once_the_source_gives_it_a_last_day(
    shop: PostgresShop,
) -> None:
    shop.execute("CREATE TABLE orders (id int PRIMARY KEY, day date, at timestamptz, price numeric(30,10))")
    shop.execute("INSERT INTO orders VALUES (1, 'infinity', '-infinity', 12345678901234567890.0123456789)")
    shop.run(UPSERT)
    assert shop.rows("shop_dead_letters")

    shop.write(UPSERT, "tables: public.orders, infinity: max")
    (resent,) = replay(Pipeline.from_file(shop.file), DeadLetterFilter())

    assert (resent.rows, resent.again) == (1, [])
    price = Decimal("12345678901234567890.0123456789")
    assert shop.table("orders", "id", "day", "at", "price") == [
        (1, date(9999, 12, 31), datetime(1, 1, 1, tzinfo=UTC), price)
    ]


def test_infinite_days_are_finite_in_the_columns_that_the_source_names_and_never_in_a_key(
    shop: PostgresShop,
) -> None:
    shop.execute(
        'CREATE TABLE days (id int PRIMARY KEY, "due day" date, ends timestamptz)',
        "CREATE TABLE keyed (day date PRIMARY KEY, n int, until date)",
        "INSERT INTO days VALUES (1, 'infinity', '2026-01-01 00:00+00'), (2, '2026-01-01', '-infinity')",
        "INSERT INTO keyed VALUES ('infinity', 1, 'infinity'), ('9999-12-31', 2, 'infinity')",
    )
    tables = "\n".join(
        f"  {name}: {{path: {name}, from: db, streams: public.{name}, mode: upsert}}"
        for name in ("days", "keyed")
    )
    days = ", infinity: {max: ['public.days.due day', public.keyed.*]}"
    shop.run(tables, "tables: [public.days, public.keyed]" + days)

    last = date(9999, 12, 31)
    assert shop.table("days", "id", "due_day") == [(1, last)]
    assert shop.table("keyed", "day", "n", "until") == [(last, 2, last)]
    refused = [(row["table"], row["error"], row["key"]) for row in shop.rows("shop_dead_letters")]
    assert [(table, error.partition(":")[0], key) for table, error, key in sorted(refused)] == [
        ("days", "ends", b'{"id":2}'),
        ("keyed", "day", b'{"day":"infinity"}'),
    ]

    shop.write(tables, "tables: [public.days, public.keyed], infinity: max")
    done = {one.table: one for one in replay(Pipeline.from_file(shop.file), DeadLetterFilter())}
    assert (done["days"].rows, done["keyed"].rows, done["keyed"].again[0].code) == (1, 0, "bad_date")
    assert shop.table("keyed", "day", "n") == [(last, 2)]


def test_a_deletion_needs_no_value_but_its_key(shop: PostgresShop) -> None:
    shop.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, n bigint, day date)",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "INSERT INTO orders SELECT i, i, '2026-01-01' FROM generate_series(1, 4) i",
    )
    tables = (
        "  orders: {path: orders, from: db, mode: upsert, schema: {id: int not null, n: int}}\n"
        "  past: {path: past, from: db, mode: history, schema: {id: int not null, n: int}}\n"
        "  log: {path: log, from: db}"
    )
    shop.run(tables)
    shop.execute(
        "UPDATE orders SET day = 'infinity' WHERE id = 1",
        "UPDATE orders SET n = 5000000000 WHERE id = 2",
        "UPDATE orders SET day = 'infinity' WHERE id = 3",
        "UPDATE orders SET id = 33, day = '2026-01-03' WHERE id = 3",
        "DELETE FROM orders WHERE id < 3",
    )
    shop.run(tables)

    assert shop.table("orders", "id", "day") == [(4, date(2026, 1, 1)), (33, date(2026, 1, 3))]
    assert sorted(row["id"] for row in shop.rows("past") if row["valid_to"] is None) == [4, 33]
    letters = [(row["table"], json.loads(row["payload"])["_op"]) for row in shop.rows("shop_dead_letters")]
    # A log has the whole row that was deleted, or a dead letter.
    assert {one for one in letters if one[1] == "delete"} == {("log", "delete")}
    assert len([one for one in letters if one == ("log", "delete")]) == 2


def test_dead_letters_that_are_sent_again_have_the_texts_of_the_server_as_other_rows(
    shop: PostgresShop,
) -> None:
    """Rows from before the column was text have the text of the older type, until a new snapshot."""
    columns = "at timestamptz, flag bool, b bytea, a int[], m money, f float8, n numeric(8,2), two pair"
    names = [one.split()[0] for one in columns.split(", ")]
    good = "'2026-01-02 03:04:05+00', true, '\\x00ff', '{1,2}', '1234.5', 1e+20, 1.50, '(1,2026-01-02)'"
    shop.execute(
        "CREATE TYPE pair AS (a int, until date)",
        f"CREATE TABLE orders (id int PRIMARY KEY, day date, {columns})",
        f"INSERT INTO orders SELECT i, '2026-01-01', {good} FROM generate_series(1, 3) i",
    )
    shop.run(UPSERT)
    shop.execute("UPDATE orders SET day = 'infinity' WHERE id = 1")
    shop.run(UPSERT)
    assert shop.rows("shop_dead_letters")[0]["headers"] is not None
    declared = [f"{name} string" for name in ("day", *names)]
    words = [word for one in declared for word in ("--column", one)]
    done = CliRunner().invoke(app, ["table", "replace", str(shop.folder / "orders"), *words, "--yes"])
    assert done.exit_code == 0, done.output
    texts = UPSERT.replace("}", f", schema: {{{', '.join(one.replace(' ', ': ') for one in declared)}}}}}")
    shop.write(texts)
    (resent,) = replay(Pipeline.from_file(shop.file), DeadLetterFilter())
    shop.execute(f"INSERT INTO orders VALUES (4, 'infinity', {good})")
    shop.run(texts)

    rows = {row["id"]: tuple(row[name] for name in ("day", *names)) for row in shop.rows("orders")}
    listed = ", ".join(f"{name}::text" if name != "flag" else "'t'" for name in ("day", *names))
    (there,) = shop.query(f"SELECT {listed} FROM orders WHERE id = 4")
    assert (resent.rows, resent.again) == (1, [])
    assert rows[1] == rows[4] == there
    assert rows[2] != rows[4] and rows[2][1] == "2026-01-02T03:04:05.000000Z"
    again, _ = reading_anew(Pipeline.from_file(shop.file), "db", [])
    run_inline(again)
    rows = {row["id"]: tuple(row[name] for name in names) for row in shop.rows("orders")}
    assert set(rows.values()) == {there[1:]}


def test_sql_reads_columns_of_the_database_beside_those_that_schema_declares(shop: PostgresShop) -> None:
    for name in ("days", "more"):
        shop.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, n int, day date)",
            f"INSERT INTO {name} VALUES (1, 1, '2026-01-01'), (2, 2, 'infinity')",
        )
    envelope = "_op, _lsn, _ordinal, _unchanged"
    more = {
        "copy": "path: copy, streams: public.days, mode: upsert, schema: {day: string}, where: n > 1",
        "made": "path: made, streams: public.days, mode: upsert, schema: {day: string}, "
        f"select: [id, day, n + 1 AS n, {envelope}]",
        "judged": "path: judged, streams: public.days, schema: {day: string}, expect: {some: n > 1}",
        "both": "path: both, schema: {day: string}, where: n > 1",
        "apart": "route: 'apart/{_stream}', mode: upsert, schema: {day: string, _stream: string}, "
        "where: n > 1",
        "selected": "route: 'selected/{_stream}', mode: upsert, schema: {day: string, _stream: string}, "
        f"select: [id, day, n + 1 AS n, _stream, {envelope}]",
    }
    tables = "\n".join(f"  {name}: {{from: db, {one}}}" for name, one in more.items())
    options = "tables: [public.days, public.more]"
    pipeline = Pipeline.from_file(shop.write(tables, options))
    assert check_sql(pipeline) == []
    assert {one.refused for one in plan_run(pipeline).tables} == {None}

    shop.run(tables, options)
    shop.execute("UPDATE days SET n = 3 WHERE id = 1", "INSERT INTO more VALUES (3, 3, '0044-03-15 BC')")
    shop.run(tables, options)

    rows = [(1, 3, "2026-01-01"), (2, 2, "infinity")]
    assert shop.table("copy", "id", "n", "day") == shop.table("apart/public.days", "id", "n", "day") == rows
    assert shop.table("judged", "id", "n", "day") == rows
    made = [(at, n + 1, day) for at, n, day in rows]
    for path in ("made", "selected/public.days"):
        assert shop.table(path, "id", "n", "day") == made
    others = [(2, 2, "infinity"), (3, 3, "0044-03-15 BC")]
    assert shop.table("apart/public.more", "id", "n", "day") == others
    assert shop.table("both", "id", "n", "day") == sorted([*rows, *others])
    with pytest.raises(SqlError, match="`nn` cannot be resolved"):
        shop.run(tables.replace("n > 1}", "nn > 1}", 1).replace("path: copy", "path: other"), options)
