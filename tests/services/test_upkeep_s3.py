"""Upkeep of a table in an object store, against a real S3 server and without Spark."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from lakefeed import Pipeline
from lakefeed.engine.run_events import unwatched
from lakefeed.handles.tables import Tables
from lakefeed.upkeep.jobs import jobs_of
from lakefeed.upkeep.schedule import Schedule
from lakefeed.upkeep.scheduler import Scheduler
from support.s3 import S3Server
from support.upkeep import perform


def test_table_in_s3_is_compacted_and_vacuumed(s3: S3Server, tmp_path: Path) -> None:
    s3.create_bucket("kept")
    (tmp_path / "shop.yaml").write_text(
        f"""\
name: shop
sources: {{clicks: {{type: generate}}}}
tables:
  events:
    path: s3://kept/events
    from: clicks
    schema: {{id: long, country: string}}
    partition_by: [country]
storage: {json.dumps(s3.storage)}
upkeep:
  compact: {{min_files: 3}}
  vacuum: {{retain: 1s, allow_short_retention: true}}
  max_share: 1
"""
    )
    tables = Tables(Pipeline.from_file(tmp_path / "shop.yaml"))
    handle = tables.handles["events"]
    handle.create(pa.schema([("id", pa.int64()), ("country", pa.string())]), {}, {"kind": "create"})
    for number in range(4):
        rows = pa.table({"id": [number], "country": ["a b/ü"]})
        write_deltalake(handle.path, rows, mode="append", storage_options=s3.storage)
    job = next(jobs_of(tables, None))
    scheduler = Scheduler([job], Schedule(tmp_path / "upkeep.json"), unwatched, threading.Event())

    perform(scheduler, job, "compact")
    time.sleep(1.1)
    perform(scheduler, job, "vacuum")

    table = DeltaTable(handle.path, storage_options=s3.storage)
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2, 3]
    assert [json.loads(one["lakefeed"])["kind"] for one in table.history(2)] == ["vacuum", "compact"]
    keys = [key for key in s3.keys("kept", "events/") if "_delta_log" not in key]
    assert len(keys) == 1
