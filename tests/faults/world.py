"""A small world to break: a topic, a pipeline of two tables over it, and the ledger of what was produced."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from lakefeed import Pipeline
from lakefeed.watch.verify import verify
from support.drivers import Drivers, Ended
from support.kafka import Broker
from support.ledger import (
    assert_each_once,
    assert_ranges_contiguous,
    assert_versions_contiguous,
    dead_letters,
    table_ids,
)

TABLES = ("one", "two")
BROKEN_EVERY = 30
"""Of so many events, one is cut off; it carries its number all the same."""


class World:
    """Everything that can be done to a pipeline, and what must hold after it.

    `note` is told the name of each fault, for a report.
    """

    def __init__(
        self, broker: Broker, folder: Path, partitions: int = 1, note: Callable[[str], None] = lambda _: None
    ) -> None:
        self.broker, self.folder, self._note = broker, folder, note
        self.topic = f"events-{uuid4().hex[:12]}"
        self.file = folder / "shop.yaml"
        self.produced: list[int] = []
        self.drained = False
        """Whether everything that was produced has been read by a run that ended well."""
        self._partitions, self._columns = partitions, 0
        broker.create_topic(self.topic, partitions)
        self.write()

    def write(self, schema: str = "{event_id: long not null}", flush: str = "{rows: 100}") -> None:
        """Write the pipeline file."""
        self.file.write_text(
            f"""\
name: shop
sources:
  clicks: {{type: kafka, brokers: "{self.broker.address}", topics: [{self.topic}], format: json}}
tables:
  one: {{path: one, from: clicks, metadata: true, schema: {schema}}}
  two: {{path: two, from: clicks, schema: {schema}}}
flush: {flush}
give_up_after: 60s
"""
        )

    @property
    def letters(self) -> Path:
        return self.folder / "shop_dead_letters"

    def produce(self, count: int, **more: Any) -> None:
        """Events with the next numbers, spread over the partitions; `more` are further fields."""
        first = len(self.produced)
        numbers = range(first, first + count)
        payloads = [json.dumps({"event_id": number, **more}).encode() for number in numbers]
        for at, number in enumerate(numbers):
            if number % BROKEN_EVERY == 0:
                payloads[at] = f'{{"event_id": {number}'.encode()
        self.broker.produce(self.topic, payloads)
        self.produced += numbers
        self.drained = False

    def run(self) -> None:
        """Read everything that is there, in this process."""
        Pipeline.from_file(self.file).run(once=True)
        self.drained = True

    def crash(self, drivers: Drivers, point: str, nth: int) -> Ended:
        """Run in a process that is killed at a named point, or whose worker is; the run may end before."""
        self._note(f"kill -9 at {point}")
        mark = self.folder / f"killed-{uuid4().hex}"
        ended = drivers.run(self.file, kill_at=f"{point}:{nth}:{mark}")
        on_worker = point.startswith("task_")
        expected = -9 if mark.exists() and not on_worker else 0
        assert ended.code == expected, f"{ended.code} after {point}:{nth}, expected {expected}:\n{ended.said}"
        self.drained = ended.code == 0
        return ended

    def run_twice_at_once(self, drivers: Drivers) -> None:
        """Two instances that do not know of each other; the tables must fence one off, or both."""
        self._note("second instance")
        settings = ["flush.rows=50", "flush.interval=50ms"]
        first = drivers.start(self.file, *settings)
        second = drivers.start(self.file, *settings, f"state={self.folder / 'elsewhere'}")
        both = [first.wait(), second.wait()]
        for ended in both:
            fenced = "another instance of this pipeline has written" in ended.said
            assert ended.code == int(fenced), f"exit code {ended.code}:\n{ended.said}"
        self.drained = any(ended.code == 0 for ended in both)

    def lose_checkpoint(self) -> None:
        """Delete everything that is not a table."""
        self._note("checkpoint deleted")
        shutil.rmtree(self.folder / ".lakefeed", ignore_errors=True)

    def spoil_checkpoint(self) -> None:
        """Fill every file that Spark has left behind with rubbish."""
        self._note("checkpoint corrupted")
        for file in (self.folder / ".lakefeed").rglob("*"):
            if file.is_file() and file.name != "lock":
                file.write_bytes(b"\0rubbish")

    def add_partition(self) -> None:
        self._note("partition added")
        self._partitions += 1
        self.broker.add_partitions(self.topic, self._partitions)

    def widen_events(self, count: int) -> None:
        """Events with a field that no table has."""
        self._note("new field in events")
        self._columns += 1
        self.produce(count, **{f"field_{self._columns}": "new"})

    def alter_from_outside(self, table: str) -> None:
        """Somebody else adds a column to a table."""
        if DeltaTable.is_deltatable(str(self.folder / table)):
            self._note("table altered from outside")
            self._columns += 1
            field = Field(f"outside_{self._columns}", PrimitiveType("string"))
            DeltaTable(self.folder / table).alter.add_columns([field])

    def compact(self, table: str) -> None:
        if DeltaTable.is_deltatable(str(self.folder / table)):
            self._note("table compacted")
            DeltaTable(self.folder / table).optimize.compact()

    def vacuum(self, table: str) -> None:
        """Delete every file that the newest version does not need, however young."""
        if DeltaTable.is_deltatable(str(self.folder / table)):
            self._note("table vacuumed")
            DeltaTable(self.folder / table).vacuum(0, dry_run=False, enforce_retention_duration=False)

    def checkpoint_log(self, table: str) -> None:
        if DeltaTable.is_deltatable(str(self.folder / table)):
            self._note("log checkpointed")
            DeltaTable(self.folder / table).create_checkpoint()

    def check(self) -> None:
        """The ledger: nothing doubled at any time, and nothing lost once a run has ended well."""
        letters = dead_letters(self.letters)
        for name in TABLES:
            path = self.folder / name
            rows = table_ids(path)
            dead = [int(one["payload"].split(b":")[1]) for one in letters if one["table"] == name]
            if self.drained:
                assert_each_once(self.produced, rows, dead)
            else:
                assert_each_once([*rows, *dead], rows, dead)
            if DeltaTable.is_deltatable(str(path)):
                assert_versions_contiguous(path)
                assert_ranges_contiguous(path)
        proof = verify(Pipeline.from_file(self.file), deep=True)
        found = [
            f"{one.name}: {finding}"
            for one in (*proof.tables, proof.dead_letters)
            for finding in one.findings
        ]
        assert not found, "\n".join(["`lakefeed verify --deep` says:", *found])

    def close(self) -> None:
        """Delete the topic and the tables."""
        self.broker.delete_topic(self.topic)
        shutil.rmtree(self.folder, ignore_errors=True)

    def landed(self) -> Counter[str]:
        """How many events are in place, by where."""
        counts = Counter({name: len(table_ids(self.folder / name)) for name in TABLES})
        counts["dead letters"] = len(dead_letters(self.letters))
        return counts
