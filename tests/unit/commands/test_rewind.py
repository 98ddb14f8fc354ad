"""`lakefeed rewind`: the plan, what it did, and who finishes it after a kill."""

from __future__ import annotations

import json
import os
from pathlib import Path

from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.commands.output import operator
from lakefeed.engine.instance import only_instance
from support.command_line import Lakefeed
from support.dead_shop import check_ledger, killed, write
from support.ledger import dead_letters
from support.offline import drain


def test_killed_rewind_is_finished_by_the_next_run(lakefeed: Lakefeed, shop: Path) -> None:
    lakefeed("dead-letters", "replay", shop, "--yes")

    killed("rewind_committed", "rewind", shop, "--table", "events", "--to-version", "1", "--yes")
    left = len(dead_letters(shop.parent / "shop_dead_letters"))
    code, out, _ = lakefeed("verify", shop)
    drain(shop)
    returned = len(dead_letters(shop.parent / "shop_dead_letters"))
    lakefeed("dead-letters", "replay", shop, "--yes")

    assert (code, left, returned) == (3, 10, 100)
    assert "  ! interrupted: " in out
    check_ledger(shop.parent)
    assert lakefeed("verify", shop, "--deep")[0] == 0


def test_rewind_tells_rows_and_offsets_and_a_dry_run_changes_nothing(
    lakefeed: Lakefeed, tmp_path: Path
) -> None:
    file = write(tmp_path)
    drain(file, batch=20)
    version = DeltaTable(tmp_path / "events").version()

    code, shown, said = lakefeed("rewind", file, "--table", "events", "--to-version", 2, "--dry-run")
    unchanged = DeltaTable(tmp_path / "events").version()
    _, done, _ = lakefeed("rewind", file, "--table", "events", "--to-version", 2, "--yes")

    assert (code, said, unchanged) == (0, "", version)
    assert shown.startswith(
        f"events: would be rewound from version {version} to the content of version 2 of 20"
    )
    assert "  rows: 90 -> 36\n  clicks/0: next 50 -> 20, 30 offsets to read again\n" in shown
    assert "  6 dead letters of these offsets stay dead letters; after the next run, " in shown
    assert shown.endswith("Nothing was changed (--dry-run).\n")
    assert f", as the new version {version + 1}\n" in done
    drain(file)
    check_ledger(tmp_path)


def test_history_tells_rewind_and_replay_as_commands_with_their_rows(lakefeed: Lakefeed, shop: Path) -> None:
    lakefeed("dead-letters", "replay", shop, "--yes")
    lakefeed("rewind", shop, "--table", "events", "--to-version", 1, "--yes")

    _, found, _ = lakefeed("table", "history", shop.parent / "events", "--json")

    told = [(one["operation"], one["rows_added"], one["rows_removed"]) for one in json.loads(found)[:2]]
    assert told == [("rewind", 0, 90), ("replay", 90, 0)]
    assert {one["by"] for one in json.loads(found)[:2]} == {f"lakefeed command, {operator()}"}
    assert json.loads(found)[-1]["by"] == "lakefeed pipeline shop"


def test_the_plan_of_a_rewind_says_that_the_pipeline_runs_and_the_rewind_is_refused(
    lakefeed: Lakefeed, tmp_path: Path
) -> None:
    file = write(tmp_path)
    drain(file, batch=20)
    arguments = ("rewind", file, "--table", "events", "--to-version", 2)

    with only_instance(Pipeline.from_file(file)):
        code, shown, _ = lakefeed(*arguments)
        _, found, _ = lakefeed(*arguments, "--json")
        refused, _, said = lakefeed(*arguments, "--yes")
    _, stopped, _ = lakefeed(*arguments)

    process = f"is running on this machine as process {os.getpid()}"
    assert (code, json.loads(found)["running"], refused) == (0, True, 1)
    assert f"  note: pipeline shop {process}; a rewind is refused until it has stopped\n" in shown
    assert shown.endswith("Nothing was changed. To do it, stop the pipeline, then: --yes\n")
    assert "is already running on this machine" in said
    assert "running" not in stopped and stopped.endswith("To do it: --yes\n")
