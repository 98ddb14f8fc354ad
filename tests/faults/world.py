"""A small world to break: a topic, a pipeline of two tables over it, and the ledger of what was produced."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from faults.meddling import GOES_ON, MEDDLING
from lakefeed import Pipeline
from lakefeed.reports.verify import verify
from support.drivers import Driver, Drivers, Ended
from support.kafka import Broker, Position
from support.ledger import (
    assert_each_once,
    assert_ranges_contiguous,
    assert_versions_contiguous,
    dead_letters,
    table_ids,
)
from support.processes import wait_until

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
        self.missing: dict[str, set[int]] = {name: set() for name in TABLES}
        """Events that the broker lost before the table could read them, or read them again."""
        self.drained = False
        """Whether everything that was produced has been read by a run that ended well."""
        self._partitions, self._columns = partitions, 0
        self._places: list[Position] = []
        self._skips = False
        broker.create_topic(self.topic, partitions)
        self.write()

    def write(self, schema: str = "{event_id: long not null}", flush: str = "{rows: 100}") -> None:
        """Write the pipeline file."""
        self.file.write_text(
            f"""\
name: shop
sources:
  clicks:
    type: kafka
    brokers: "{self.broker.address}"
    topics: [{self.topic}]
    format: json
    on_data_loss: {"skip" if self._skips else "fail"}
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
        self._places += self.broker.produce(self.topic, payloads)
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

    def replace(self, drivers: Drivers, count: int, point: str, nth: int) -> Ended:
        """A table whose content each run replaces is killed in the middle of a run, and started again.

        It holds the events of that run then, all of them and no others.
        """
        self._note("kill -9 of a run that replaces a table")
        file = self.folder / "last.yaml"
        file.write_text(
            f"""\
name: last
sources:
  clicks:
   {{type: kafka, brokers: "{self.broker.address}", topics: [{self.topic}], format: json, on_data_loss: skip}}
tables:
  last: {{path: last, from: clicks, mode: overwrite, schema: {{event_id: long not null}}, evolve: ignore}}
flush: {{rows: 100}}
"""
        )
        pipeline = Pipeline.from_file(file)
        pipeline.run(once=True)
        before = self._dead("last", self.folder / "last_dead_letters")
        self.produce(count)
        ended = drivers.run(file, kill_at=f"{point}:{nth}:{self.folder / f'killed-{uuid4().hex}'}")
        pipeline.run(once=True)
        dead = [one for one in self._dead("last", self.folder / "last_dead_letters") if one not in before]
        if len(dead) < count:
            assert_each_once(self.produced[-count:], table_ids(self.folder / "last"), dead)
        assert verify(pipeline).sound, verify(pipeline)
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

    def meddle(self, drivers: Drivers, kind: str, table: str) -> None:
        """Somebody else changes a table while the stream runs.

        The table goes on rightly, or stops alone with its name and without another commit; then it is made
        anew. The other table has every event in the end.
        """
        self.run()
        self._note(f"{kind} while the stream runs")
        path, (other,) = self.folder / table, (name for name in TABLES if name != table)
        driver = self._streaming(drivers)
        MEDDLING[kind](path)
        entries = _entries(path)
        self.produce(20)
        self._wait(driver, lambda: self._settled(other))
        told = f"table {table} stopped: "
        self._wait(driver, lambda: told in driver.said or self._newest_landed(table, 20))
        driver.terminate()
        ended = driver.wait()
        stopped = told in ended.said
        assert ended.code == int(stopped), f"exit code {ended.code} after {kind}:\n{ended.said}"
        assert "defect in Lakefeed" not in ended.said, ended.said
        assert not stopped or _entries(path) == entries, f"{kind}: written to after all:\n{ended.said}"
        assert not (stopped and kind in GOES_ON), f"{kind} stopped the table:\n{ended.said}"
        if kind not in GOES_ON:
            self.make_anew(table)

    def make_anew(self, table: str) -> None:
        """Delete a table; the next run reads everything again that the broker still has."""
        shutil.rmtree(self.folder / table, ignore_errors=True)
        self.missing[table] = self._gone() - set(self._dead(table))
        self.run()

    def expire(self) -> None:
        """The broker deletes what was read, as retention does."""
        self.run()
        self._note("events that were read expire")
        for partition, end in self.broker.end_offsets(self.topic).items():
            self.broker.delete_records(self.topic, partition, end)

    def truncate(self, drivers: Drivers, count: int, *, awake: bool) -> None:
        """The broker loses events that no batch has read, while the stream looks away or does not run.

        What a consumer had fetched ahead may land all the same; what does not is told as a loss.
        """
        self.run()
        self._note("log truncated while the stream runs" if awake else "log truncated between two runs")
        driver = self._streaming(drivers) if awake else None
        if driver:
            driver.pause()
        read = self.broker.end_offsets(self.topic)
        self.produce(count)
        for partition, end in self.broker.end_offsets(self.topic).items():
            self.broker.delete_records(self.topic, partition, (read[partition] + end + 1) // 2)
        if driver:
            driver.resume()
        said = self._read_on(driver or self._streaming(drivers, wait=False), drivers)
        gone = self._gone() - set(self.produced[:-count])
        for table in TABLES:
            lost = gone - self._there(table)
            assert not lost or "Continuing at offset" in said, (
                f"{table}: {len(lost)} lost without a word:\n{said}"
            )
            self.missing[table] |= lost
        self.drained = True

    def recreate_topic(self, drivers: Drivers, count: int, *, awake: bool) -> None:
        """Somebody deletes the topic and makes it again: other events lie at the offsets that were read."""
        self.run()
        self._note(f"topic made anew {'while the stream runs' if awake else 'between two runs'}")
        driver = self._streaming(drivers) if awake else None
        self.broker.delete_topic(self.topic)
        self.broker.create_topic(self.topic, self._partitions)
        self._places = [(partition, -1) for partition, _ in self._places]
        self.produce(count)
        said = self._read_on(driver or self._streaming(drivers, wait=False), drivers)
        assert "was deleted and created again" in said, f"other events were read without a word:\n{said}"
        self.drained = True

    def _streaming(self, drivers: Drivers, *, wait: bool = True) -> Driver:
        """A stream that has read something, and waits for more."""
        driver = drivers.start(self.file, "flush.interval=100ms", "give_up_after=30s", once=False)
        if wait:
            self.produce(20)
            self._wait(driver, lambda: all(self._settled(name) for name in TABLES))
        return driver

    def _read_the_rest(self, driver: Driver) -> str:
        """Let it read what the broker still has; gives what it said, be it of a loss."""
        wanted = set(self.produced) - self._gone()

        def over() -> bool:
            return not driver.running or all(wanted <= self._there(name) for name in TABLES)

        wait_until(over, 120, lambda: f"not within 120 s:\n{driver.said[-3000:]}")
        if driver.running:
            driver.terminate()
        ended = driver.wait()
        assert ended.code == int(_told_to_stop(ended.said)), f"exit code {ended.code}:\n{ended.said}"
        return ended.said

    def _read_on(self, driver: Driver, drivers: Drivers) -> str:
        """Read the rest, and do what a message says when a run stops; gives what all of them said."""
        told = [self._read_the_rest(driver)]
        while _told_to_stop(told[-1]):
            assert len(told) < 4, "\n".join(["it stops again and again:", *told])
            if "Set `on_data_loss: skip`" in told[-1]:
                self._skips = True
                self.write()
            told.append(self._read_the_rest(self._streaming(drivers, wait=False)))
        return "\n".join(told)

    def produce_large(self, count: int) -> None:
        """Events nearly as large as the broker takes them, in a field of their own."""
        self._note("large events")
        self.produce(count, large="x" * (self.broker.max_message_bytes * 9 // 10))

    def _gone(self) -> set[int]:
        """Events that the broker no longer has."""
        first = self.broker.start_offsets(self.topic)
        return {n for n, (partition, offset) in enumerate(self._places) if offset < first[partition]}

    def _there(self, table: str) -> set[int]:
        return {*table_ids(self.folder / table), *self._dead(table)}

    def _wait(self, driver: Driver, happened: Callable[[], bool]) -> None:
        def over() -> bool:
            running = driver.running
            assert happened() or running, f"the stream has ended:\n{driver.said}"
            return happened()

        wait_until(over, 120, lambda: f"not within 120 s:\n{driver.said[-3000:]}")

    def _dead(self, table: str, letters: Path | None = None) -> list[int]:
        """The numbers of a table's dead letters."""
        found = (one["payload"] for one in dead_letters(letters or self.letters) if one["table"] == table)
        return [int(match[0]) for payload in found if (match := re.search(rb"\d+", payload))]

    def _settled(self, table: str) -> bool:
        """Whether every event is in place."""
        there = len(table_ids(self.folder / table)) + len(self._dead(table))
        return there >= len(self.produced) - len(self.missing[table])

    def _newest_landed(self, table: str, count: int) -> bool:
        """Whether the newest events are in place, whatever became of those before them."""
        try:
            return set(self.produced[-count:]) <= self._there(table)
        except Exception:
            # Being made, or of a kind that this reader does not know.
            return False

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
        for name in TABLES:
            path = self.folder / name
            rows = table_ids(path)
            dead = self._dead(name)
            if self.drained:
                assert_each_once(set(self.produced) - self.missing[name], rows, dead)
            else:
                assert_each_once([*rows, *dead], rows, dead)
            if DeltaTable.is_deltatable(str(path)):
                assert_versions_contiguous(path)
                if not self._skips:
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

    def settled(self) -> int:
        """How many events are in place, in the tables or among their dead letters."""
        return sum(len(table_ids(self.folder / name)) + len(self._dead(name)) for name in TABLES)

    def landed(self) -> Counter[str]:
        """How many events are in place, by where."""
        counts = Counter({name: len(table_ids(self.folder / name)) for name in TABLES})
        counts["dead letters"] = len(dead_letters(self.letters))
        return counts


def _told_to_stop(said: str) -> bool:
    """Whether a run had to end: of lost events, or while there was no topic."""
    return "Set `on_data_loss: skip`" in said or "does not exist on" in said


def _entries(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "_delta_log").glob("*.json"))
