"""Events without a column, before a table has one: it waits for others, and they are rows of it then."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline, TableError
from lakefeed.engine.batch.manifest import Manifest
from lakefeed.engine.batch.plan import FlowPlan
from lakefeed.engine.inline import run_inline
from lakefeed.engine.run_events import RunEvent, TableChanged
from lakefeed.engine.spark import local_tasks
from lakefeed.engine.task.task import run_task
from lakefeed.sources import source_of
from lakefeed.sources.samples import SampleSource
from lakefeed.testing import Sample
from support.ledger import dead_letters


class Ears:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def __call__(self, event: RunEvent) -> None:
        match event:
            case TableChanged(table=table, text=text):
                self.heard.append(f"{table}: {text}")


def run(folder: Path, payloads: list[str]) -> list[str]:
    """Run with a batch for each event."""
    file = folder / "shop.yaml"
    file.write_text(
        """\
name: shop
sources: {clicks: {type: kafka, brokers: "localhost:1", topics: [clicks], format: json}}
tables:
  inferred: {path: inferred, from: clicks, metadata: true}
  declared: {path: declared, from: clicks, schema: {id: long}}
flush: {rows: 1}
"""
    )
    pipeline = Pipeline.from_file(file)
    samples = [Sample.model_validate({"text": payload}) for payload in payloads]
    given = SampleSource.of(source_of(pipeline, "clicks"), "clicks", samples)
    ears = Ears()
    run_inline(pipeline.model_copy(update={"sources": {"clicks": given}, "give_up_after": 5.0}), ears)
    return ears.heard


def offsets(table: Path) -> list[tuple[int, int | None]]:
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    return sorted(((row["_offset"], row["id"]) for row in rows), key=str)


def test_a_table_without_columns_waits_for_them_and_loses_no_event(tmp_path: Path) -> None:
    heard = run(tmp_path, ["{}", '{"id": null}', "{", '{"a": [], "b": {}}', '{"id": 5}', "{}"])

    assert offsets(tmp_path / "inferred") == [(0, None), (1, None), (3, None), (4, 5), (5, None)]
    assert DeltaTable(tmp_path / "declared").to_pyarrow_table().num_rows == 5
    letters = dead_letters(tmp_path / "shop_dead_letters")
    assert sorted((letter["table"], letter["offset"]) for letter in letters) == [
        ("declared", 2),
        ("inferred", 2),
    ]
    waiting = [text for text in heard if "no columns yet" in text]
    assert waiting == ["inferred: has no columns yet: no field has a value in 1 event so far"]


def test_a_run_that_ends_without_columns_says_so_and_the_next_one_reads_the_events_again(
    tmp_path: Path,
) -> None:
    with pytest.raises(TableError, match="table inferred: no column has a value in 2 events"):
        run(tmp_path, ["{}", "{}"])
    assert DeltaTable(tmp_path / "declared").to_pyarrow_table().num_rows == 2

    run(tmp_path, ["{}", "{}", '{"id": 1}'])

    assert offsets(tmp_path / "inferred") == [(0, None), (1, None), (2, 1)]
    assert DeltaTable(tmp_path / "declared").to_pyarrow_table().num_rows == 3


def test_a_table_that_another_source_makes_takes_the_events_that_waited(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources:
  a: {type: kafka, brokers: "localhost:1", topics: [a], format: json}
  b: {type: kafka, brokers: "localhost:1", topics: [b], format: json}
tables: {both: {path: both, from: [a, b], metadata: true}}
"""
    )
    pipeline = Pipeline.from_file(file)
    payloads = {"a": ["{}", "{}"], "b": ["{}"] * 3 + ['{"id": 1}']}
    sources = {
        name: SampleSource.of(
            source_of(pipeline, name), name, [Sample.model_validate({"text": text}) for text in texts]
        )
        for name, texts in payloads.items()
    }
    moved = pipeline.model_copy(update={"sources": sources, "give_up_after": 5.0})

    for _ in range(2):
        try:
            run_inline(moved)
        except TableError as error:
            # The other source had not made it yet.
            assert "no column has a value in 2 events" in str(error)

    assert len(offsets(tmp_path / "both")) == 6


def test_a_table_that_another_source_makes_meanwhile_is_not_moved_past_the_events_that_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources:
  a: {type: kafka, brokers: "localhost:1", topics: [a], format: json}
  b: {type: kafka, brokers: "localhost:1", topics: [b], format: json}
tables: {both: {path: both, from: [a, b], metadata: true}}
"""
    )
    pipeline = Pipeline.from_file(file)
    payloads = {"a": ["{}", "{}"], "b": ['{"id": 1}']}
    sources = {
        name: SampleSource.of(
            source_of(pipeline, name), name, [Sample.model_validate({"text": text}) for text in texts]
        )
        for name, texts in payloads.items()
    }
    waiting, made = threading.Event(), threading.Event()

    def task(plan: FlowPlan, ranges: Any, **more: Any) -> Manifest:
        if plan.source_name == "b":
            assert waiting.wait(120)
        return run_task(plan, ranges, **more)

    class Between:
        def __call__(self, event: RunEvent) -> None:
            match event:
                case TableChanged(text=text):
                    if "no columns yet" in text:
                        waiting.set()
                        assert made.wait(120)
                    elif "created" in text:
                        made.set()

    monkeypatch.setattr(local_tasks, "run_task", task)
    run_inline(pipeline.model_copy(update={"sources": sources, "give_up_after": 5.0}), Between())

    assert offsets(tmp_path / "both") == [(0, 1), (0, None), (1, None)]
