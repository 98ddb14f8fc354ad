"""What a task holds in memory is bounded by bytes; runs without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from support.ledger import assert_each_once, table_ids

PipelineFile = Callable[[str], Path]


def test_events_larger_than_expected_are_read_again_in_batches_of_the_right_size(
    pipeline_file: PipelineFile, tmp_path: Path
) -> None:
    file = pipeline_file(
        """
        name: shop
        sources:
          clicks: {type: generate, rows: 2000}
        tables:
          events: {path: events, from: clicks, schema: {event_id: long}}
        flush: {bytes: 100KB}
        """
    )

    run_inline(Pipeline.from_file(file))

    assert_each_once(range(2000), table_ids(tmp_path / "events"))
    infos = [json.loads(one["lakefeed"]) for one in DeltaTable(tmp_path / "events").history()]
    rows = [one["rows"] for one in infos if one["kind"] == "rows"]
    assert len(rows) >= 2
    assert max(rows) * 180 < 2 * 100_000


def test_one_event_larger_than_a_batch_lands_by_itself(pipeline_file: PipelineFile, tmp_path: Path) -> None:
    file = pipeline_file(
        """
        name: shop
        sources:
          clicks: {type: generate, rows: 5}
        tables:
          events: {path: events, from: clicks, schema: {event_id: long}}
        flush: {bytes: 10B}
        """
    )

    run_inline(Pipeline.from_file(file))

    assert_each_once(range(5), table_ids(tmp_path / "events"))
    assert DeltaTable(tmp_path / "events").version() >= 3


def test_tables_of_a_route_share_one_limit(
    pipeline_file: PipelineFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakefeed.engine.task.task.MOST_WAITING", 1)
    file = pipeline_file(
        """
        name: shop
        sources:
          clicks: {type: generate, rows: 120000}
        tables:
          events: {route: "lake/{event_type}", from: clicks, schema: {event_id: long, event_type: string}}
        """
    )

    run_inline(Pipeline.from_file(file))

    tables = [tmp_path / "lake" / kind for kind in ("view", "cart", "purchase")]
    assert_each_once(range(120_000), [number for table in tables for number in table_ids(table)])
    groups = [pq.ParquetFile(path).num_row_groups for path in DeltaTable(tables[0]).file_uris()]
    assert max(groups) > 1
