"""Upkeep runs beside a stream: files become fewer while events land, and nothing is lost or repeated."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.engine.run_events import RunEvent, UpkeepDone
from lakefeed.run import run
from support.ledger import assert_each_once, table_ids

pytestmark = pytest.mark.usefixtures("spark")

WAIT_SECONDS = 120


class Told:
    """Remembers which tables were looked after, and how."""

    def __init__(self) -> None:
        self.steps: list[UpkeepDone] = []

    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, UpkeepDone):
            self.steps.append(event)

    @property
    def done(self) -> set[tuple[str, str]]:
        return {(step.table, step.operation) for step in self.steps}


def pipeline(folder: Path, upkeep: str, rate: int = 2000) -> Pipeline:
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources: {{clicks: {{type: generate, rate: {rate}, bad_ratio: 0.01}}}}
tables:
  events: {{path: events, from: clicks, schema: {{event_id: long not null, event_time: timestamp}}}}
upkeep: {upkeep}
flush: {{interval: 20ms}}
"""
    )
    return Pipeline.from_file(file)


def run_until(pipeline: Pipeline, told: Told, wanted: set[tuple[str, str]]) -> None:
    """Run until these steps were reported, then stop."""
    stop, failures = threading.Event(), []

    def go() -> None:
        try:
            run(pipeline, watch=told, stop=stop)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=go)
    thread.start()
    deadline = time.monotonic() + WAIT_SECONDS
    while not wanted <= told.done and thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.05)
    stop.set()
    thread.join(120)
    assert failures == []
    assert wanted <= told.done, told.steps


def events_and_letters(folder: Path) -> tuple[list[Any], list[Any]]:
    return table_ids(folder / "events"), table_ids(folder / "shop_dead_letters", "offset")


def test_tables_and_dead_letters_are_compacted_while_events_land(tmp_path: Path) -> None:
    told = Told()

    run_until(
        pipeline(tmp_path, "{compact: {every: 300ms, min_files: 3}, max_share: 1}"),
        told,
        {("events", "compact"), ("dead letters", "compact")},
    )

    rows, letters = events_and_letters(tmp_path)
    assert_each_once(range(len(rows) + len(letters)), rows, letters)
    commits = [json.loads(one["lakefeed"]) for one in DeltaTable(tmp_path / "events").history()]
    kinds = [(one["kind"], one.get("by")) for one in commits]
    assert ("compact", "upkeep") in kinds and ("rows", None) in kinds
    assert sum(step.files_before - step.files_after for step in told.steps) > 0


def test_next_run_goes_on_from_a_table_that_was_compacted(tmp_path: Path) -> None:
    upkeep = "{compact: {every: 300ms, min_files: 3}, log: {checkpoint_every: 5, retain: 1s}, max_share: 1}"
    run_until(pipeline(tmp_path, upkeep), Told(), {("events", "compact")})

    run_until(pipeline(tmp_path, upkeep), Told(), {("events", "compact")})

    rows, letters = events_and_letters(tmp_path)
    assert_each_once(range(len(rows) + len(letters)), rows, letters)


def test_run_that_drains_and_ends_does_no_upkeep(tmp_path: Path) -> None:
    told = Told()
    shop = pipeline(tmp_path, "{compact: {every: 1ms, min_files: 2}}").model_copy()

    run(shop, once=True, watch=told)
    time.sleep(0.01)
    run(shop, once=True, watch=told)

    assert told.steps == []
    assert not (tmp_path / ".lakefeed" / "shop" / "upkeep.json").exists()


def test_run_that_ends_by_itself_leaves_its_table_compacted_where_that_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources: {clicks: {type: generate, rows: 1000}}
tables:
  asked: {path: asked, from: clicks, upkeep: {once: true, vacuum: off}}
  other: {path: other, from: clicks}
flush: {rows: 100}
"""
    )
    told = Told()

    run(Pipeline.from_file(file), once=True, watch=told)
    run(Pipeline.from_file(file), once=True, watch=told)

    assert [(step.table, step.operation, step.files_after) for step in told.steps] == [
        ("asked", "compact", 1)
    ]
    assert len(DeltaTable(tmp_path / "asked").file_uris()) == 1
    assert len(DeltaTable(tmp_path / "other").file_uris()) == 10
    assert DeltaTable(tmp_path / "asked").to_pyarrow_table().num_rows == 1000
