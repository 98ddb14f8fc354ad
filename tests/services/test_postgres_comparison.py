"""`verify --against-source`: copies of Postgres tables are compared with the rows of the server."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.commands import app as line
from lakefeed.engine.inline import run_inline
from lakefeed.reports import against_source, comparison, copied_stream
from lakefeed.reports.verify import VerifiedTable, verify
from lakefeed.reprocess.snapshot import reading_anew
from support.postgres import PostgresServer
from support.postgres_shop import ORDERS, UPSERT, PostgresShop

ODD = """
CREATE TABLE odd (
    id uuid PRIMARY KEY, flag bool, n numeric(38,9), f float8, r real, t timestamptz, l timestamp, d date,
    b bytea, j jsonb, a int[], x text[][], note text, m money, i interval
)
"""
ODD_ROWS = """
INSERT INTO odd SELECT md5(i::text)::uuid, i % 2 = 0, i / 7.0, CASE i WHEN 3 THEN 'NaN' ELSE i / 3.0 END,
    i / 3.0,    '2026-01-01 00:00:00.123456+00'::timestamptz + i * interval '1 day', '2026-01-01', NULL,
    decode(md5(i::text), 'hex'), jsonb_build_object('i', i), ARRAY[i, NULL], ARRAY[['a', 'b']],
    CASE WHEN i % 3 = 0 THEN '' WHEN i % 3 = 1 THEN NULL ELSE E'x\\x1f"' || i END, i, '1 day'
FROM generate_series(1, 40) i
"""


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(ORDERS)
    return shop


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied_stream, "RANGE_ROWS", 10)
    monkeypatch.setattr(comparison, "_MOST_ROWS", 30)


def compared(shop: PostgresShop) -> dict[str, VerifiedTable]:
    report = verify(Pipeline.from_file(shop.file), against_source=True)
    return {one.name: one for one in report.tables}


def differences(table: VerifiedTable) -> list[str]:
    return [one.text for one in table.findings if one.kind == "difference"]


def edit(shop: PostgresShop, path: str, where: str, **values: str) -> None:
    """Change a copy behind Lakefeed's back."""
    table = DeltaTable(str(shop.folder / path))
    if values:
        table.update(updates=values, predicate=where)
    else:
        table.delete(where)


def test_equal_copies_are_equal_whatever_their_keys_and_types(shop: PostgresShop, small_ranges: None) -> None:
    shop.execute(
        "INSERT INTO orders SELECT i, 'c' || i, i, repeat('x', i) FROM generate_series(-20, 55) i",
        ODD,
        ODD_ROWS,
        "CREATE TABLE lines (place text, line int, v text, PRIMARY KEY (place, line))",
        "INSERT INTO lines SELECT 'p' || i % 5, i, 'v' FROM generate_series(1, 45) i",
        "CREATE TABLE pairs (a int, b text, PRIMARY KEY (a, b))",
        "INSERT INTO pairs SELECT i % 2, 'p' || i FROM generate_series(1, 45) i",
        "CREATE TABLE nothing (id int PRIMARY KEY)",
        'CREATE TABLE names ("the id" int PRIMARY KEY, "a,b" text, _op text, d date, '
        "g int GENERATED ALWAYS AS (1) STORED)",
        "INSERT INTO names VALUES (1, 'x', 'y', 'infinity'), (2, NULL, NULL, '-infinity')",
    )
    route = "  copies: {route: 'lake/{_stream}', from: db, mode: upsert, updates: merge_on_read}"
    options = 'tables: "public.*", infinity: max'
    shop.run(route, options)
    shop.execute("UPDATE orders SET note = 'y' WHERE id < 0", "DELETE FROM lines WHERE line = 7")
    shop.run(route, options)
    shop.execute("UPDATE names SET _op = 'z' WHERE d = 'infinity'")

    found = compared(shop)

    counts = {name: (one.compared[0].source_rows, one.compared[0].copy_rows) for name, one in found.items()}
    assert {name.removeprefix("copies/public."): count for name, count in counts.items()} == {
        "orders": (76, 76), "odd": (40, 40), "lines": (44, 44), "pairs": (45, 45), "nothing": (0, 0),
        "names": (2, 2),
    }  # fmt: skip
    assert not any(one.findings or one.unchecked or not one.complete for one in found.values())
    assert found["copies/public.orders"].compared[0].ranges == 8
    assert len(found["copies/public.odd"].compared[0].columns) == 15
    assert found["copies/public.names"].compared[0].waiting == 1


def test_each_difference_is_named_with_its_range_key_and_columns(
    shop: PostgresShop, small_ranges: None
) -> None:
    shop.execute("INSERT INTO orders SELECT i, 'c', i, 'n' FROM generate_series(1, 45) i", ODD, ODD_ROWS)
    tables = UPSERT.replace("mode", "streams: public.orders, mode") + (
        "\n  odd: {path: odd, from: db, streams: public.odd, mode: upsert}"
    )
    shop.run(tables, 'tables: "public.*"')
    edit(shop, "orders", "id in (3, 4)")
    edit(shop, "orders", "id = 25", customer="'other'", total="1.00")
    edit(shop, "orders", "id = 33", id="333")
    edit(shop, "odd", "n = 1", note="'other'")

    found = compared(shop)

    assert [text.removeprefix("public.orders: ") for text in differences(found["orders"])] == [
        "id below 11: 10 rows in the source, 8 in the copy. 2 rows missing in the copy: id=3; id=4",
        "id from 21 to 30: 10 rows in the source, 10 in the copy. 1 row with other values: id=25 "
        "(customer, total)",
        "id from 31 to 40: 10 rows in the source, 9 in the copy. 1 row missing in the copy: id=33",
        "id from 41: 5 rows in the source, 6 in the copy. 1 row only in the copy: id=333",
    ]
    (odd,) = found["odd"].compared[0].different
    assert (odd.values, odd.missing, odd.extra) == (1, 0, 0)
    assert odd.rows[0].columns == ["note"]
    assert "by the hash of the key" in odd.range


def test_changes_that_wait_are_no_differences_and_real_ones_are_found_beside_them(shop: PostgresShop) -> None:
    shop.execute("INSERT INTO orders SELECT i, 'c', i, 'n' FROM generate_series(1, 20) i")
    shop.run(UPSERT)
    edit(shop, "orders", "id = 20")
    shop.execute(
        "INSERT INTO orders VALUES (21, 'new', 1, 'n')",
        "UPDATE orders SET note = 'newer' WHERE id = 1",
        "UPDATE orders SET id = 200 WHERE id = 2",
        "DELETE FROM orders WHERE id = 3",
    )
    # A transaction that is open is seen by nobody.
    with shop.server.connect(shop.database) as other:
        other.execute("BEGIN")
        other.execute("DELETE FROM orders WHERE id = 5")
        table = compared(shop)["orders"]
        other.execute("ROLLBACK")

    (one,) = table.compared
    assert differences(table) == [
        "public.orders: all rows: 20 rows in the source, 19 in the copy. 1 row missing in the copy: id=20"
    ]
    # 21 and 200 are missing, 2 and 3 are extra, 1 has another note.
    assert one.waiting == 5
    assert any("5 rows changed behind the position of the copy" in note for note in table.notes)
    shop.execute("TRUNCATE orders")
    table = compared(shop)["orders"]
    assert not differences(table) and table.compared[0].waiting == 19


def test_run_beside_a_comparison_makes_no_difference(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is pinned, then a run commits and moves the slot on: the comparison takes a new look."""
    shop.execute("INSERT INTO orders SELECT i, 'c', i, 'n' FROM generate_series(1, 20) i")
    shop.run(UPSERT)
    pipeline, runs = Pipeline.from_file(shop.file), []
    pinned = against_source._pinned

    def with_a_run(*given: Any) -> Any:
        found = list(pinned(*given))
        if len(runs) < 2:
            shop.execute(f"UPDATE orders SET note = '{len(runs)}' WHERE id = {len(runs) + 1}")
            run_inline(pipeline)
            runs.append(len(runs))
        return found

    monkeypatch.setattr(against_source, "_pinned", with_a_run)

    report = verify(pipeline, against_source=True)

    assert len(runs) == 2
    assert report.sound, report
    assert report.tables[0].compared[0].waiting == 0


def test_values_that_the_copy_cannot_hold_are_differences(shop: PostgresShop) -> None:
    shop.execute(
        "CREATE TABLE days (id int PRIMARY KEY, d date)",
        "INSERT INTO days VALUES (1, '2026-01-01'), (2, '2026-01-02'), (3, 'infinity')",
    )
    days = "  days: {path: days, from: db, mode: upsert}"
    shop.run(days, "tables: public.days")
    shop.execute("UPDATE days SET d = 'infinity' WHERE id = 2")
    shop.run(days, "tables: public.days")

    assert differences(compared(shop)["days"]) == [
        "public.days: all rows: 3 rows in the source, 2 in the copy. 1 row missing in the copy: id=3. "
        "1 row with other values: id=2 (d)"
    ]


def test_renamed_dropped_selected_and_filtered_columns(shop: PostgresShop) -> None:
    shop.execute(
        "INSERT INTO orders SELECT i, 'c', i, 'n' FROM generate_series(1, 20) i",
        "CREATE TABLE a (id int PRIMARY KEY, v text)",
        "CREATE TABLE b (id int PRIMARY KEY, v text)",
        "INSERT INTO a VALUES (1, 'a')",
        "INSERT INTO b VALUES (2, 'b')",
    )
    tables = """\
  named: {path: named, from: db, streams: public.orders, mode: upsert, rename: {note: remark}, drop: [total]}
  past:
    {path: past, from: db, streams: public.orders, mode: history, schema: {id: long, total: "decimal(12,4)"}}
  both: {path: both, from: db, streams: [public.a, public.b], mode: upsert}
  log: {path: log, from: db, streams: public.orders}"""
    options = 'tables: "public.*"'
    shop.run(tables, options)
    shop.execute("UPDATE orders SET note = 'm', total = 2.50 WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    shop.run(tables, options)
    found = compared(shop)
    assert [text for one in found.values() for text in differences(one)] == []
    assert {name: one.compared[0].columns for name, one in found.items() if one.compared} == {
        "named": ["id", "customer", "remark"],
        "past": ["id", "total", "customer", "note"],
        "both": ["id", "v"],
    }
    assert [one.stream for one in found["both"].compared] == ["public.a", "public.b"]
    assert any("keeps every change" in note for note in found["log"].notes)

    edit(shop, "named", "id = 7", remark="'other'")
    edit(shop, "past", "id = 8", total="0.0001")
    edit(shop, "both", "id = 2")
    found = compared(shop)
    assert differences(found["named"])[0].endswith("1 row with other values: id=7 (remark)")
    assert differences(found["past"])[0].endswith("1 row with other values: id=8 (total)")
    assert differences(found["both"]) == [
        "public.b: all rows: 1 row in the source, 0 in the copy. 1 row missing in the copy: id=2"
    ]


def test_of_a_table_with_sql_keys_and_plain_columns_are_compared(shop: PostgresShop) -> None:
    shop.execute("INSERT INTO orders SELECT i, 'c', i, 'n' FROM generate_series(1, 20) i")
    shop.run(UPSERT)
    edit(shop, "orders", "id in (1, 2)")
    edit(shop, "orders", "id in (3, 4)", customer="'C'", note="'other'")
    select = "select: [_op, _lsn, id, upper(customer) AS customer, note]"

    shop.write(UPSERT.replace("}", ", where: id > 2, " + select + "}"))
    table = compared(shop)["orders"]

    assert differences(table) == [
        "public.orders: all rows: 20 rows in the source, 18 in the copy. "
        "2 rows with other values: id=3 (note); id=4 (note)"
    ]
    assert table.compared[0].columns == ["id", "note"]
    assert table.unchecked == [
        "public.orders: columns customer and total",
        "public.orders: whether rows are missing, as `where`, `python` or `expect` may leave some out",
    ]


def test_tables_without_a_copy_and_columns_that_a_copy_lacks_are_not_checked(
    shop: PostgresShop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.execute(
        "INSERT INTO orders SELECT i, 'c', i, 'n' FROM generate_series(1, 20) i",
        "CREATE TABLE nameless (id int)",
        "CREATE TABLE measured (id float8 PRIMARY KEY)",
        'CREATE TABLE mixed (id int PRIMARY KEY, "Note" text, note text)',
        "CREATE VIEW seen AS SELECT * FROM orders",
    )
    route, options = "  copies: {route: 'lake/{_stream}', from: db, mode: upsert}", "tables: public.*"
    shop.write(route, options)

    def unchecked(out: str) -> list[str]:
        texts = [line.partition("not checked: ")[2] for line in out.splitlines() if "not checked: " in line]
        return [text.replace(" was not compared with its source", "") for text in texts]

    skipped = [
        "public.measured: column id of the key of public.measured: double cannot be part of a key",
        "public.mixed: it has the columns Note and note, and a Delta table can have only one of them",
        "public.nameless: it has no primary key: once it is published, the server refuses every UPDATE and "
        "DELETE of it",
    ]
    code, out = call(shop, capsys, monkeypatch, "--against-source")
    assert (code, unchecked(out)) == (3, [*skipped, "public.orders: no run has copied it yet"])

    shop.run(route, options)
    shop.execute("ALTER TABLE orders ADD city text", "CREATE TABLE later (id int PRIMARY KEY)")
    code, out = call(shop, capsys, monkeypatch, "--against-source")
    city = "public.orders: the column city"
    assert (code, unchecked(out)) == (3, [city, "public.later: no run has copied it yet", *skipped])
    assert out.splitlines()[-1].startswith("shop: no problem found, but some checks were not possible")

    shop.write(route, f"{options}, exclude: [public.later, public.m*, public.nameless]")
    code, out = call(shop, capsys, monkeypatch, "--against-source")
    assert (code, unchecked(out)) == (0, [city])
    assert out.splitlines()[-1].endswith("is equal to the source: see `not checked`")


def test_copy_that_is_not_done_and_tables_that_are_no_copies(
    shop: PostgresShop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.execute("INSERT INTO orders SELECT i, 'c', i, 'n' FROM generate_series(1, 20) i")
    shop.run(UPSERT)
    options = ["--json", "--against-source"]

    code, out = call(shop, capsys, monkeypatch, *options)
    report = json.loads(out)["tables"][0]["compared"][0]
    assert (code, report["source_rows"], report["different"]) == (0, 20, [])
    code, out = call(shop, capsys, monkeypatch, "--against-source")
    assert out.splitlines()[-1] == (
        "shop: sound: nothing lost, nothing twice, and the copies are equal to the source"
    )
    assert "equal in id, customer, total and note" in out

    # What the finding asks for repairs it.
    edit(shop, "orders", "id = 7")
    code, out = call(shop, capsys, monkeypatch, "--against-source")
    assert code == 3 and "id=7" in out
    run_inline(reading_anew(Pipeline.from_file(shop.file), "db", ["public.orders"])[0])
    report = compared(shop)["orders"]
    assert not differences(report)

    shop.write("  orders: {path: log, from: db}")
    code, out = call(shop, capsys, monkeypatch, "--against-source")
    assert (
        code == 2
        and "those with `mode: upsert` or `mode: history` that read a source of type postgres" in out
    )


def call(
    shop: PostgresShop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *more: str
) -> tuple[int, str]:
    return run_line(capsys, monkeypatch, "verify", str(shop.file), *more)


def run_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["lakefeed", *words])
    code = 0
    try:
        line.main()
    except SystemExit as end:
        code = int(end.code or 0)
    captured = capsys.readouterr()
    return code, captured.out or captured.err
