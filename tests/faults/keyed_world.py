"""A world whose tables change by key: an upsert in deletion vectors, and a history."""

from __future__ import annotations

import random
from typing import Any

from faults.world import TABLES, World
from lakefeed.tables.operations import vacuum
from lakefeed.tables.rewrite import compact
from lakefeed.upkeep.file_writer import file_writer
from support.delta_tables import open_any
from support.drivers import Drivers
from support.faultpoints import POINTS

KEYS = 7
_SCHEMA = "{event_id: long not null, k: long, v: long}"
_STEPS = ("crash", "crash", "crash", "twice", "compact", "vacuum", "checkpoint", "lose", "run")


class KeyedWorld(World):
    """Every event is a row of both tables: in one under its own key, in two as a state of one of few keys."""

    def write(self, schema: str = _SCHEMA, flush: str = "{rows: 100}") -> None:
        """The same pipeline with other modes."""
        super().write(schema, flush)
        text = self.file.read_text()
        upsert = "mode: upsert, keys: event_id, sequence_by: v, updates: merge_on_read, "
        text = text.replace("metadata: true, ", f"metadata: true, {upsert}")
        history = "two: {path: two, from: clicks, mode: history, keys: k, sequence_by: event_id, "
        text = text.replace("two: {path: two, from: clicks, ", history)
        self.file.write_text(text)

    def produce(self, count: int, **more: Any) -> None:
        """Events of few keys, some of them twice: their second rows change nothing."""
        for number in range(len(self.produced), len(self.produced) + count):
            super().produce(1, k=number % KEYS, v=number, **more)

    def compact(self, table: str) -> None:
        """By our own compaction, which purges deleted rows."""
        self._note("table compacted")
        lake = open_any(self.folder / table)
        plan = compact.plan(lake, max_deleted=0.0)
        compact.run(lake, plan, {"kind": "compact", "by": "command"}, file_writer)

    def vacuum(self, table: str) -> None:
        """By our own vacuum, which knows deletion vectors."""
        self._note("table vacuumed")
        lake = open_any(self.folder / table)
        plan = vacuum.plan(lake, retain=0.0, allow_short=True)
        vacuum.run(lake, plan, {"kind": "vacuum", "by": "command"})

    def step(self, chance: random.Random, drivers: Drivers) -> None:
        """Something that befalls it."""
        table, kind = chance.choice(TABLES), chance.choice(_STEPS)
        if kind in ("crash", "twice", "run"):
            self.produce(chance.randint(1, 200))
        match kind:
            case "crash":
                self.crash(drivers, chance.choice(POINTS), chance.randint(1, 3))
            case "twice":
                self.run_twice_at_once(drivers)
            case "compact":
                self.compact(table)
            case "vacuum":
                self.vacuum(table)
            case "checkpoint":
                self.checkpoint_log(table)
            case "lose":
                self.lose_checkpoint()
            case "run":
                self.run()
