"""A table under upkeep without a stream: files are added by hand, operations are done when a test says so."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock_time
from pathlib import Path
from textwrap import indent
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from lakefeed import Pipeline
from lakefeed.engine.run_events import RunEvent, UpkeepDone
from lakefeed.files import WrittenFile
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.tables import Tables
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change
from lakefeed.upkeep.jobs import UpkeepJob, jobs_of
from lakefeed.upkeep.schedule import Schedule
from lakefeed.upkeep.scheduler import Scheduler, SteadyClock
from support.forks import ended, start

FIRST_DAY = date(2026, 1, 1)
_SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32())]
)


class Told:
    """Remembers what upkeep reports."""

    def __init__(self) -> None:
        self.steps: list[UpkeepDone] = []

    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, UpkeepDone):
            self.steps.append(event)


def perform(scheduler: Scheduler, job: UpkeepJob, operation: str) -> None:
    """Do all steps of an operation now, whether or not it is due."""
    steps = scheduler._steps(job, operation)
    while (rest := scheduler._advance(job, operation, steps)) is not None:
        scheduler._stop.wait(rest)


class Kept:
    """One table of a pipeline, `events`, whose upkeep is done by hand."""

    def __init__(
        self,
        folder: Path,
        upkeep: str = "{max_share: 1}",
        table: str = "partition_by: [day]",
        clock: SteadyClock | None = None,
        spark: Any = None,
        columns: str = "",
    ) -> None:
        self.path = folder / "events"
        (folder / "shop.yaml").write_text(
            f"""\
name: shop
sources: {{clicks: {{type: generate}}}}
tables:
  events:
    path: events
    from: clicks
    schema: {{id: long not null, at: timestamp, day: date{columns}}}
{indent(table, "    ")}
upkeep: {upkeep}
"""
        )
        pipeline = Pipeline.from_file(folder / "shop.yaml")
        tables = Tables(pipeline)
        self.handle: TableHandle = tables.handles["events"]
        if self.handle.open(pipeline.name) is None:
            columns = self.handle.columns()
            assert columns is not None
            self.handle.create(columns, {"shop/clicks/0": -1}, {"kind": "create"})
        self.told = Told()
        self.stop = threading.Event()
        self.schedule = Schedule(folder / "upkeep.json")
        self.job: UpkeepJob = next(jobs_of(tables, spark, self.stop.is_set))
        self.scheduler = Scheduler([self.job], self.schedule, self.told, self.stop, clock)

    def add(self, first: int, count: int, day: int = 0, rows: int = 10) -> None:
        """`count` files of one day with consecutive ids from `first` on."""
        for at in range(first, first + count * rows, rows):
            self.write(range(at, at + rows), day)

    def write(self, ids: Iterable[int], day: int = 0) -> None:
        """One more file, as a stranger writes it."""
        write_deltalake(self.path, _rows(ids, day), mode="append")

    def stream(self, batches: int, day: int = 0, first: int = 0) -> None:
        """Append as the stream does, ten events in a batch, with their positions."""
        for at in range(first, first + 10 * batches, 10):
            name = f"day={FIRST_DAY + timedelta(days=day)}/part-{at}.parquet"
            (self.path / name).parent.mkdir(exist_ok=True)
            rows = _rows(range(at, at + 10), day)
            values = {"day": str(FIRST_DAY + timedelta(days=day))}
            if not self.handle.spec or not self.handle.spec.partition_by:
                values = {}
            pq.write_table(rows.drop_columns(list(values)), self.path / name)
            file = WrittenFile(
                name, (self.path / name).stat().st_size, values, json.dumps({"numRecords": 10}), 10
            )
            key = "shop/clicks/0"
            with self.handle.lock:
                append(self.handle.table, Change([file], {key: at + 9}, {key: at - 1}, {}), retries=5)

    def perform(self, operation: str) -> list[UpkeepDone]:
        """Do an operation now; returns its steps."""
        self.told.steps.clear()
        perform(self.scheduler, self.job, operation)
        return list(self.told.steps)

    def ids(self) -> list[int]:
        rows = pa.RecordBatchReader.from_stream(DeltaTable(self.path).scan()).read_all()
        return sorted(rows["id"].to_pylist())

    def files(self) -> list[str]:
        return sorted(pa.table(DeltaTable(self.path).get_add_actions()).column("path").to_pylist())

    def commit_info(self) -> dict[str, Any]:
        """The commit info of the newest version."""
        return dict(json.loads(DeltaTable(self.path).history(1)[0]["lakefeed"]))


def age_at_noon(day: int) -> str:
    """An age that ends within the hour after noon of a day, so that a midnight moves no row across it."""
    noon = datetime.combine(FIRST_DAY + timedelta(days=day), clock_time(12), UTC)
    return f"{(datetime.now(UTC) - noon) // timedelta(hours=1)}h"


def orphan(folder: Path, name: str, age_days: float) -> Path:
    """A data file that no version names, written some days ago."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [1]}), folder / name)
    then = time.time() - age_days * 86400
    os.utime(folder / name, (then, then))
    return folder / name


def perform_in_a_process(
    folder: Path,
    upkeep: str,
    table: str,
    operation: str,
    *,
    kill_at: str | None = None,
    kill_when: Callable[[], bool] | None = None,
) -> int:
    """Do an operation in a process that is killed, at a point or when something is seen; its exit code."""
    process = start(_perform, folder, upkeep, table, operation, env={"LAKEFEED_KILL_AT": kill_at or ""})
    while kill_when and process.is_alive() and not kill_when():
        time.sleep(0.001)
    if kill_when:
        process.kill()
    return ended(process)


def _perform(folder: Path, upkeep: str, table: str, operation: str) -> None:
    Kept(folder, upkeep, table).perform(operation)


def _rows(ids: Iterable[int], day: int) -> pa.Table:
    numbers = pa.array(ids, pa.int64())
    days = pa.array([FIRST_DAY + timedelta(days=day)] * len(numbers), pa.date32())
    at = days.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    return pa.table([numbers, at, days], schema=_SCHEMA)
