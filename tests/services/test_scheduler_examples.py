"""The examples for schedulers, run by the real Airflow and the real Dagster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from support.programs import schedulers

TESTS = Path(__file__).parents[1]


@dataclass
class Outcome:
    """What became of three runs of each example: good events, two broken ones more, a lost data file."""

    folder: Path
    runs: dict[str, list[Any]]
    log: str


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("schedulers")
    done = subprocess.run(
        [sys.executable, "-m", "support.scheduled_runs", str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(schedulers()), str(TESTS)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return Outcome(folder, json.loads((folder / "outcome.json").read_text()), done.stdout)


def test_the_airflow_task_returns_what_it_has_written(outcome: Outcome) -> None:
    good = outcome.runs["airflow"][0]

    assert (good["state"], good["tasks"]) == ("success", {"load": "success"})
    assert good["returned"] == {"events": {"rows": 999, "version": 1}}


def test_the_airflow_task_fails_without_a_retry_if_there_are_new_dead_letters_and_keeps_the_rows(
    outcome: Outcome,
) -> None:
    refused = outcome.runs["airflow"][1]

    assert (refused["state"], refused["tasks"], refused["returned"]) == ("failed", {"load": "failed"}, None)
    assert "AirflowFailException: generate-example: 999 rows, 2 new dead letters" in outcome.log
    assert f"lakefeed dead-letters list {outcome.folder / 'airflow' / 'generate.yaml'}" in outcome.log
    assert DeltaTable(outcome.folder / "airflow" / "lake" / "events", version=2).count() == 1998


def test_the_airflow_task_fails_if_verify_finds_something(outcome: Outcome) -> None:
    lost = outcome.runs["airflow"][2]

    assert (lost["state"], lost["tasks"]) == ("failed", {"load": "failed"})
    assert "AirflowFailException: events: file: version 2: day=2026-01-01/" in outcome.log


def test_the_log_of_a_task_has_the_lines_of_the_run_and_none_of_the_bridge_to_java(outcome: Outcome) -> None:
    assert "events: version 1: 999 rows in 1 file" in outcome.log
    assert "py4j" not in outcome.log


def test_the_dagster_asset_has_rows_dead_letters_and_version_in_its_metadata(outcome: Outcome) -> None:
    good, refused, _ = outcome.runs["dagster"]

    assert good["success"]
    assert good["metadata"] == {"dagster/row_count": 999, "rows": 999, "dead_letters": 0, "version": 1}
    assert refused["metadata"] == {"dagster/row_count": 1998, "rows": 999, "dead_letters": 2, "version": 2}


def test_a_check_of_the_dagster_asset_fails_the_run(outcome: Outcome) -> None:
    good, refused, lost = ({"success": run["success"], **run["checks"]} for run in outcome.runs["dagster"])

    assert good == {"success": True, "no_dead_letters": True, "sound": True}
    assert refused == {"success": False, "no_dead_letters": False, "sound": True}
    assert lost == {"success": False, "no_dead_letters": True, "sound": False}
