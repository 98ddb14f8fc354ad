"""Pipelines that a program runs, in the foreground and beside itself."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import Commit, Pipeline, RunResult, Table, TableError, UsageError
from lakefeed.sources import GenerateSource
from support.processes import wait_until

pytestmark = pytest.mark.usefixtures("spark")


def shop(folder: Path, source: GenerateSource, **table: object) -> Pipeline:
    return Pipeline(
        name="shop",
        sources={"clicks": source},
        tables={"events": Table(path=str(folder / "events"), from_=("clicks",), **table)},  # type: ignore[arg-type]
        state=str(folder / "state"),
        flush={"interval": "500ms"},  # type: ignore[arg-type]
    )


def test_a_run_answers_what_it_did_and_calls_back_for_each_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    pipeline = shop(tmp_path, GenerateSource(rows=1000, bad_ratio=0.01))
    commits: list[Commit] = []

    def heard(commit: Commit) -> None:
        commits.append(commit)
        raise RuntimeError("what a callback raises ends no run")

    result = pipeline.run(once=True, on_commit=heard)
    again = pipeline.run(once=True)

    table = result.tables["events"]
    assert (result.rows, result.dead_letters) == (990, {"bad_json": 10})
    assert (table.version, table.commits) == (DeltaTable(tmp_path / "events").version(), len(commits))
    assert sum(one.rows for one in commits) == 990
    assert {one.table for one in commits} == {"events"}
    assert 0 < table.seconds < result.seconds
    assert (again.rows, again.tables["events"].version) == (0, None)
    assert not [record for record in caplog.records if record.name.startswith("py4j")]


def test_a_background_run_is_started_and_stopped_by_a_thread_that_is_not_the_main_one(tmp_path: Path) -> None:
    pipeline = shop(tmp_path, GenerateSource(rate=200))
    results: list[RunResult] = []

    def notebook() -> None:
        with pipeline.start() as run:
            with pytest.raises(UsageError, match="pipeline shop already runs in this program"):
                pipeline.run(once=True)
            wait_until(lambda: run.result.rows > 0 or not run.running, 120, lambda: repr(run))
            run.stop()
            results.append(run.wait())

    thread = threading.Thread(target=notebook)
    thread.start()
    thread.join(240)

    assert not thread.is_alive()
    (result,) = results
    assert result.rows == DeltaTable(tmp_path / "events").to_pyarrow_dataset().count_rows() > 0


def test_a_table_is_rebuilt_by_a_method(tmp_path: Path) -> None:
    source = GenerateSource(rows=1000, bad_ratio=0.01)
    shop(tmp_path, source).run(once=True)
    changed = shop(tmp_path, source, where="event_id < 500")
    before = DeltaTable(tmp_path / "events").version()

    planned = changed.rebuild("events", dry_run=True)
    untouched = DeltaTable(tmp_path / "events").version()
    report = changed.rebuild("events")

    table = DeltaTable(tmp_path / "events")
    assert (planned.rows_now, planned.other_rows, planned.version) == (990, 990, None)
    assert untouched == before
    assert (report.version, report.rows_then) == (table.version(), table.to_pyarrow_table().num_rows)
    assert set(table.to_pyarrow_table()["event_id"].to_pylist()) <= set(range(500))
    assert changed.verify().sound


def test_the_error_that_ended_a_run_is_lakefeeds_own(tmp_path: Path) -> None:
    shop(tmp_path, GenerateSource(rows=10)).run(once=True)

    with pytest.raises(TableError, match="is partitioned by nothing, the pipeline file says"):
        shop(tmp_path, GenerateSource(rows=20), partition_by=("event_type",)).run(once=True)
