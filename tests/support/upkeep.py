"""A table under upkeep without a stream: files are added by hand, and operations are done when a test says so."""

from __future__ import annotations

import threading
from datetime import date, timedelta
from pathlib import Path
from textwrap import indent
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from lakefeed import Pipeline
from lakefeed.engine.agenda import Agenda
from lakefeed.engine.charges import Charge, charges_of
from lakefeed.engine.lake import Lake, Place
from lakefeed.engine.report import Quiet, Upkept
from lakefeed.engine.upkeep import Caretaker, SteadyClock

SCHEMA = "{id: long not null, at: timestamp, day: date}"
FIRST_DAY = date(2026, 1, 1)


class Told(Quiet):
    """Remembers what upkeep reports."""

    def __init__(self) -> None:
        self.steps: list[Upkept] = []

    def upkept(self, event: Upkept) -> None:
        self.steps.append(event)


class Kept:
    """One table of a pipeline, `events`, whose upkeep is done by hand."""

    def __init__(
        self,
        folder: Path,
        upkeep: str = "{}",
        table: str = "partition_by: [day]",
        clock: SteadyClock | None = None,
    ) -> None:
        self.folder, self.path = folder, folder / "events"
        (folder / "shop.yaml").write_text(
            f"""\
name: shop
sources: {{clicks: {{type: generate}}}}
tables:
  events:
    path: events
    from: clicks
    schema: {SCHEMA}
{indent(table, "    ")}
upkeep: {upkeep}
"""
        )
        pipeline = Pipeline.from_file(folder / "shop.yaml")
        self.lake = Lake(pipeline)
        self.told = Told()
        place = self.place
        if place.open(pipeline.name) is None:
            columns = place.columns()
            assert columns is not None
            place.create(columns, {"shop/clicks/0": -1}, {"kind": "create"})
        self.stop = threading.Event()
        self.agenda = Agenda(folder / "upkeep.json")
        self.caretaker = Caretaker([self.charge], self.agenda, self.told, self.stop, clock)

    @property
    def place(self) -> Place:
        return self.lake.places["events"]

    @property
    def charge(self) -> Charge:
        return next(charges_of(self.lake, None))

    def add(self, first: int, count: int, day: int = 0, rows: int = 10) -> None:
        """`count` files of one day with consecutive ids from `first` on."""
        when = FIRST_DAY + timedelta(days=day)
        for at in range(first, first + count * rows, rows):
            write_deltalake(self.path, _rows(at, rows, when), mode="append")

    def perform(self, operation: str) -> list[Upkept]:
        """Do an operation now; answer its steps."""
        self.told.steps.clear()
        self.caretaker.perform(self.charge, operation)
        return list(self.told.steps)

    def ids(self) -> list[int]:
        return sorted(DeltaTable(self.path).to_pyarrow_table(columns=["id"])["id"].to_pylist())

    def files(self) -> list[str]:
        adds = pa.table(DeltaTable(self.path).get_add_actions())
        return sorted(adds.column("path").to_pylist())

    def account(self) -> dict[str, Any]:
        """The account of the newest version."""
        import json

        return dict(json.loads(DeltaTable(self.path).history(1)[0]["lakefeed"]))


def orphan(folder: Path, name: str, age_days: float) -> Path:
    """A data file that no version names, written some days ago."""
    import os
    import time

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    pq.write_table(pa.table({"id": [1]}), file)
    then = time.time() - age_days * 86400
    os.utime(file, (then, then))
    return file


def _rows(first: int, count: int, day: date) -> pa.Table:
    at = pa.array([day] * count, pa.date32()).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32())]
    )
    return pa.table([pa.array(range(first, first + count)), at, pa.array([day] * count)], schema=schema)
