"""Kafka, bronze, silver by key, and tables that follow the changes of silver: killed, compared to the row."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.reports.verify import verify
from lakefeed.tables.data_files import data_files, read_rows
from lakefeed.tables.operations import checkpoint, vacuum
from lakefeed.tables.rewrite import compact
from lakefeed.upkeep.file_writer import file_writer
from support.delta_tables import clean_log, open_any
from support.faultpoints import POINTS
from support.forks import run_and_kill
from support.kafka import Broker
from support.lakefeed import run, start

KEYS = 9
ROUND_SECONDS = 300.0
_CAME = ("insert", "update_postimage")


class FollowerChain:
    """Events of few keys, some of which delete their key. `note` is told each fault."""

    def __init__(
        self, broker: Broker, folder: Path, layout: str, note: Callable[[str], None] = lambda _: None
    ) -> None:
        self._broker, self._folder, self._note = broker, folder, note
        self._topic = f"chain-{uuid4().hex[:12]}"
        self.events: list[dict[str, Any]] = []
        self.killed = 0
        broker.create_topic(self._topic, 2)
        self.file = folder / "chain.yaml"
        self.file.write_text(
            f"""\
name: chain
sources: {{events: {{type: kafka, brokers: "{broker.address}", topics: [{self._topic}], format: json}}}}
tables:
  bronze: {{path: bronze, from: events, schema: {{n: long, k: long, gone: boolean}}}}
  silver: {{path: silver, from: bronze, mode: upsert, keys: k, sequence_by: n, delete_when: gone,
    updates: {layout}}}
  copy: {{path: copy, from: silver, mode: upsert}}
  past: {{path: past, from: silver, mode: history}}
  audit: {{path: audit, from: silver}}
flush: {{rows: 40, interval: 200ms}}
upkeep: off
sync: false
"""
        )

    def produce(self, count: int, chance: random.Random) -> None:
        """The next events; the same key always goes to the same partition."""
        first = len(self.events)
        new = [
            {"n": number, "k": chance.randrange(KEYS), "gone": chance.random() < 0.2}
            for number in range(first, first + count)
        ]
        for partition in (0, 1):
            payloads = [json.dumps(event).encode() for event in new if event["k"] % 2 == partition]
            self._broker.produce(self._topic, payloads, partition)
        self.events += new

    def die(self, chance: random.Random) -> None:
        """Run without Spark in a process that is killed at a point of a batch; it may end before."""
        point = f"{chance.choice(POINTS)}:{chance.randint(1, 12)}"
        self._note(f"kill -9 of a chain at {point.partition(':')[0]}")
        code = run_and_kill(self.file, point)
        assert code in (0, -signal.SIGKILL), code
        self.killed += code != 0

    def die_on_spark(self, chance: random.Random) -> None:
        """Run the command line, and kill it with all its processes at any moment."""
        self._note("kill -9 of a chain on Spark")
        with start("run", str(self.file)) as process:
            before = self._version("silver")
            process.wait_for(
                lambda: self._version("silver") > before or chance.random() < 0.02, ROUND_SECONDS
            )
            process.kill_tree()
        self.killed += 1

    def meddle(self, chance: random.Random) -> None:
        """Files of a table are compacted or vacuumed, or its log is cleaned, as upkeep does."""
        name = chance.choice(["bronze", "silver", "past"])
        if self._version(name) < 0:
            return
        table, kind = open_any(self._folder / name), chance.choice(["compact", "vacuum", "checkpoint"])
        self._note(f"{kind} of a table of a chain")
        info = {"kind": kind, "by": "command"}
        match kind:
            case "compact":
                compact.run(table, compact.plan(table, max_deleted=0.0), info, file_writer)
            case "vacuum" if name == "past":
                # Of the others, readers that are behind may still need the files.
                vacuum.run(table, vacuum.plan(table, retain=0.0, allow_short=True), info)
            case _:
                checkpoint.run(table, checkpoint.plan(table))

    def finish(self) -> None:
        """Read all that is there, and forget what lies behind the readers."""
        run_inline(Pipeline.from_file(self.file))
        for name in ("bronze", "silver"):
            clean_log(self._folder / name)

    def finish_on_spark(self) -> None:
        """Read all that is there, as a user does."""
        code, _, said = run("run", str(self.file), "--once", timeout=ROUND_SECONDS)
        assert code == 0, said

    def check(self) -> None:
        """Each event is once in bronze, silver is what they make of it, and followers are what silver was."""
        assert sorted(self.rows("bronze", "n")) == [(event["n"],) for event in self.events]
        last = {event["k"]: event for event in self.events}
        silver = sorted((key, event["n"]) for key, event in last.items() if not event["gone"])
        states, there = self._audited()
        assert self.rows("silver", "k", "n") == silver == there == self.rows("copy", "k", "n")
        assert self.rows("past", "k", "n", "valid_from", "valid_to") == states
        found = [
            (table.name, one.kind)
            for table in verify(Pipeline.from_file(self.file)).tables
            for one in table.findings
        ]
        assert not found, found

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """Rows of a table in order."""
        table = open_any(self._folder / name)
        rows = [row for batch in read_rows(table, data_files(table)) for row in batch.to_pylist()]
        return sorted((tuple(row[column] for column in columns) for row in rows), key=repr)

    def _audited(self) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Each state of silver with the versions that it was there, and what is left, by the audit trail."""
        there: dict[tuple[int, int], int] = {}
        states = []
        trail = self.rows("audit", "_commit_version", "_change_type", "k", "n")
        for version, kind, key, number in sorted(trail, key=lambda one: (one[0], one[1] in _CAME)):
            if kind in _CAME:
                there[key, number] = version
            else:
                states.append((key, number, there.pop((key, number)), version))
        states += [(*row, version, None) for row, version in there.items()]
        return sorted(states, key=repr), sorted(there)

    def _version(self, name: str) -> int:
        log = self._folder / name / "_delta_log"
        return max((int(entry.stem) for entry in log.glob("*.json")), default=-1)
