"""Many tables of one database: what is the same for all of them is said once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lakefeed import Pipeline
from lakefeed.commands.app import app
from lakefeed.engine.inline import run_inline
from lakefeed.engine.run_events import all_of
from lakefeed.watch.log_lines import LogLines
from lakefeed.watch.state import RunState
from support.postgres import PostgresServer
from support.postgres_shop import PostgresShop

ROUTE = '  all: {route: "lake/{_stream}", from: db, mode: upsert}'
NAMES = [f"t{number}" for number in range(7)]


def run(file: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines that a run writes to its log."""
    pipeline = Pipeline.from_file(file)
    state = RunState(pipeline)
    caplog.clear()
    with caplog.at_level(logging.INFO, "lakefeed"), LogLines(state, waits=False) as lines:
        run_inline(pipeline, all_of(state.watch, lines.watch))
    return [one.getMessage() for one in caplog.records]


def printed(*words: str) -> list[str]:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def test_what_is_the_same_for_many_tables_is_one_line(
    postgres: PostgresServer, database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(*(f"CREATE TABLE {name} (id int PRIMARY KEY, {name}_note text)" for name in NAMES))
    shop.execute("INSERT INTO t3 VALUES (1, 'one')")
    file = shop.write(ROUTE, 'tables: "public.*"')

    planned, planned_all = printed("plan", str(file)), printed("plan", str(file), "--all")
    first = run(file, caplog)
    shop.execute("INSERT INTO t3 VALUES (2, 'two')")
    second = run(file, caplog)
    shown, shown_all = printed("status", str(file)), printed("status", str(file), "--all")
    again = printed("plan", str(file))

    assert planned[1].startswith("  db public.t0, public.t1, public.t2 and 4 more: begins at 0/")
    assert (
        planned.count(
            "    + _stream, _op, _lsn, _ordinal, _commit_time, _xid, _unchanged, as in all/public.t0"
        )
        == 6
    )
    assert "    + t5_note string" in planned
    assert planned_all.count("    + _stream string") == 7
    assert sum("begins at" in one for one in planned_all) == 14
    created = [one for one in first if "created at" in one]
    assert created == [
        f"all/public.t0: created at {tmp_path}/lake/public.t0",
        f"all/*: created at {tmp_path}/lake/* (6 more tables: "
        "all/public.t1, all/public.t2, all/public.t3 and 3 more)",
    ]
    commits = [one.partition(",")[0] for one in (*first, *second) if ": version " in one]
    assert commits == [
        "all/public.t3: version 1: 1 row in 1 file",
        "all/public.t3: version 2: 1 row in 1 file",
    ]
    assert sum(one.startswith("all/public.t") for one in shown) == 7
    positions = [one for one in shown if " <- " in one]
    assert [one.partition(":")[0] for one in positions] == ["  7 tables <- db"] * 2
    assert positions[0].endswith(" (all/public.t0, all/public.t1, all/public.t2 and 4 more)")
    assert sum(" <- " in one for one in shown_all) == 14
    assert again[0] == "all/public.t0, all/public.t1, all/public.t2 and 4 more: nothing to change"


def test_warning_that_is_the_same_for_many_tables_is_one_line(
    postgres: PostgresServer, database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(*(f"CREATE TABLE {name} (id int)" for name in NAMES), "CREATE PUBLICATION p FOR ALL TABLES")

    lines = run(shop.write('  all: {route: "lake/{_stream}", from: db}', "publication: p"), caplog)

    keyless = [one for one in lines if "has no primary key" in one]
    assert len(keyless) == 1
    same = "The same for public.t1, public.t2, public.t3 and 3 more"
    assert f"{same}: `lakefeed doctor` has the statement of each. ALTER TABLE public.t0 " in keyless[0]
