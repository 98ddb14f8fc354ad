"""`lakefeed plan`: what a run would do, and what it warns of."""

from __future__ import annotations

import json
from pathlib import Path

from lakefeed.commands.plan import _table
from lakefeed.reports.plan.plan import PlannedPartition, PlannedTable
from support.command_line import Lakefeed
from support.dead_shop import write
from support.landing import Landing
from support.offline import drain


def test_plan_prints_what_a_run_would_do(lakefeed: Lakefeed, tmp_path: Path) -> None:
    file = write(tmp_path)

    code, out, said = lakefeed("plan", file)
    _, json_out, _ = lakefeed("plan", file, "--json")
    drain(file)
    _, after, _ = lakefeed("plan", file)

    assert (code, said) == (0, "")
    assert out.startswith(
        f"events: create at {tmp_path / 'events'}\n  columns, inferred from 90 waiting events:\n"
    )
    assert "    + event_id long\n" in out
    assert "  clicks 0: begins at 0, end 50, lag 50\n" in out
    refused = "  of 100 sampled events would be dead letters: 10 bad_json\n    bad_json: line 1 column "
    assert refused in out
    assert out.endswith("Nothing was changed.\n")
    assert json.loads(json_out)["tables"][0]["action"] == "create"
    assert after == (
        "events: nothing to change\n"
        "  clicks 0: continues at 50, end 50, lag 0\n"
        "  clicks 1: continues at 50, end 50, lag 0\n"
        "Nothing was changed.\n"
    )


def test_plan_of_a_run_that_would_stop_fails(lakefeed: Lakefeed, tmp_path: Path) -> None:
    drain(write(tmp_path))

    code, out, _ = lakefeed("plan", write(tmp_path, time="date"))

    assert "events: would stop: " in out
    assert code == 1


def test_plan_says_why_waiting_events_show_no_column() -> None:
    told = PlannedTable("events", "lake/events", "create")
    told.resumes = {"clicks": {"0": PlannedPartition(0, 3, 3, True)}}

    told.lag = told.sampled = 3
    waiting = _table(told)[1]
    told.lag = told.sampled = 0
    none = _table(told)[1]

    assert (
        waiting == "  columns: inferred from the first events; 3 events wait, none has a column with a value"
    )
    assert none == "  columns: inferred from the first events; there are none yet"


def test_plan_warns_of_columns_that_few_events_show() -> None:
    told = PlannedTable("events", "lake/events", "create", ["id long"], inferred=True)
    told.sampled = told.seen_in = 1

    assert _table(told)[1] == (
        "  columns, inferred from 1 waiting event; declare `schema` if later events may differ:"
    )


def test_plan_names_what_a_file_needs(lakefeed: Lakefeed, tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json")
    landing.put("a.json", json.dumps({"type": "x", "features": [{"id": at} for at in range(30)]}))

    _, out, _ = lakefeed("plan", landing.file)
    landing.set("format: {type: csv, header: true}")
    landing.put("a.json", "id;name\n1;a\n2;b\n")
    _, csv_out, _ = lakefeed("plan", landing.file)

    assert (
        "  warning: drops: a file is one record, with 30 objects in `features`; to make each of them a row, "
        "set `sources.drops.records: features`\n"
    ) in out
    assert (
        "  of 2 sampled events would be dead letters: 2 bad_fields\n"
        '    bad_fields: the header is one field, "id;name"; with \';\' it has 2: set `delimiter: ";"`\n'
    ) in csv_out
