"""Bronze, silver and gold of the template, killed at random points, and their agreement to the row."""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from lakefeed import Pipeline
from lakefeed.commands.init import init
from lakefeed.reports.verify import verify
from lakefeed.sources.generate.clickstream import payloads
from support.lakefeed import Process, run, start
from support.ledger import assert_each_once, dead_letters, table_ids

SETTINGS = ["--set", "flush.interval=200ms", "--set", "tables.gold.refresh=500ms"]
MOST_SECONDS = 300.0
BAD_EVERY = 1000
"""One event in so many is cut off: see the template."""
PRICE = "cast(price AS decimal(10,2)) AS price"
SPOILT = (
    "cast(CASE WHEN event_id % 100 = 7 THEN 'none' WHEN event_id % 100 = 13 THEN concat('-', price) "
    "ELSE price END AS decimal(10,2)) AS price"
)
"""One row in a hundred has no number for its price, and one a negative one."""


class Medallion:
    """The pipeline that `init --template medallion` writes, with rows that silver refuses.

    `note` is told each kill.
    """

    def __init__(self, folder: Path, rows: int, note: Callable[[str], None] = lambda _: None) -> None:
        init(folder, "medallion")
        self.folder, self.rows, self._note = folder, rows, note
        self.file = folder / f"{folder.name}.yaml"
        text = self.file.read_text()
        assert PRICE in text
        self.file.write_text(text.replace(PRICE, SPOILT))
        self._events = [_parsed(payload) for payload in payloads(0, np.arange(rows, dtype=np.int64))]

    def survive(self, kills: int, chance: random.Random) -> None:
        """Kill it so often while its source goes on, then let it read to the end."""
        # The rows that are there grow from start to start, so that each has something to do.
        for number in range(1, kills + 1):
            most = self.rows * number // (kills + 1)
            with self._started(most) as process:
                # Most kills hit the time in which rows go from table to table, some the start of Spark.
                if chance.random() < 0.8:
                    self._wait_for_work(process)
                    _sleep(process, chance.uniform(0, 6))
                else:
                    _sleep(process, chance.uniform(0, 15))
                self._note("kill -9 of bronze, silver and gold")
                process.kill_tree()
            self.check_parts()
        code, _, said = run("run", str(self.file), "--once", *self._rows, timeout=MOST_SECONDS)
        assert code == 0, said
        self.check(spoilt=True)

    def mend(self) -> None:
        """Correct the file, and send what silver has refused again."""
        self.file.write_text(self.file.read_text().replace(SPOILT, PRICE))
        code, out, said = run(
            "dead-letters", "replay", str(self.file), "--table", "silver", "--yes", timeout=MOST_SECONDS
        )
        assert code == 0, (out, said)
        code, _, said = run("run", str(self.file), "--once", *self._rows, timeout=MOST_SECONDS)
        assert code == 0, said
        self.check(spoilt=False)

    def check(self, *, spoilt: bool) -> None:
        """Everything was read: each event is where it belongs, once, and gold is what silver sums up to."""
        letters = dead_letters(self._path(f"{self.folder.name}_dead_letters"))
        cut = [one["offset"] * 2 + one["partition"] for one in letters if one["table"] == "bronze"]
        assert_each_once(range(self.rows), table_ids(self._path("bronze")), cut)
        assert len(cut) == self.rows // BAD_EVERY
        wanted = [
            event for event in self._events if event["event_id"] not in cut and event["event_type"] != "view"
        ]
        refused = {_id(one): (one["stage"], one["code"]) for one in letters if one["table"] == "silver"}
        assert len(refused) == sum(one["table"] == "silver" for one in letters)
        assert refused == (_reasons(wanted) if spoilt else {})
        assert_each_once(
            [event["event_id"] for event in wanted], table_ids(self._path("silver")), list(refused)
        )
        assert self._gold() == _summed(event for event in wanted if event["event_id"] not in refused)
        proof = verify(Pipeline.from_file(self.file))
        assert proof.sound, proof

    def check_parts(self) -> None:
        """What holds at every moment: nothing is there twice, and silver has nothing that bronze has not."""
        bronze, silver = table_ids(self._path("bronze")), table_ids(self._path("silver"))
        assert len(set(bronze)) == len(bronze)
        assert len(set(silver)) == len(silver)
        assert set(silver) <= set(bronze)

    def _gold(self) -> dict[tuple[str, str], tuple[int, Decimal]]:
        rows = DeltaTable(self._path("gold")).to_pyarrow_table().to_pylist()
        found = {(str(row["day"]), row["brand"]): (row["purchases"], row["revenue"]) for row in rows}
        assert len(found) == len(rows)
        return found

    def _path(self, table: str) -> Path:
        return self.folder / "lake" / table

    @property
    def _rows(self) -> tuple[str, str]:
        return "--set", f"sources.shop.rows={self.rows}"

    def _started(self, rows: int) -> Process:
        return start("run", str(self.file), *SETTINGS, "--set", f"sources.shop.rows={rows}")

    def _wait_for_work(self, process: Process) -> None:
        """Until something lands, so that kills do not all hit the start of Spark."""
        before = self._version("bronze")
        process.wait_for(lambda: self._version("bronze") > before, MOST_SECONDS)

    def _version(self, table: str) -> int:
        try:
            return DeltaTable(self._path(table)).version()
        except TableNotFoundError:
            return -1


def _sleep(process: Process, seconds: float) -> None:
    """Wait; a process without an end must not have ended meanwhile."""
    time.sleep(seconds)
    assert process.running, process.stderr[-3000:]


def _parsed(payload: bytes) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(payload, parse_float=Decimal)
    return event


def _id(letter: dict[str, Any]) -> int:
    number: int = json.loads(letter["payload"])["event_id"]
    return number


def _reasons(events: list[dict[str, Any]]) -> dict[int, tuple[str, str]]:
    """Why silver refuses the events that it refuses."""
    why = {7: ("select", "CAST_INVALID_INPUT"), 13: ("expect", "positive_price")}
    numbers = [event["event_id"] for event in events]
    return {number: why[number % 100] for number in numbers if number % 100 in why}


def _summed(events: Any) -> dict[tuple[str, str], tuple[int, Decimal]]:
    sums: dict[tuple[str, str], tuple[int, Decimal]] = defaultdict(lambda: (0, Decimal(0)))
    for event in events:
        if event["event_type"] == "purchase":
            key = event["event_time"][:10], event["brand"]
            number, revenue = sums[key]
            sums[key] = number + 1, revenue + event["price"]
    return dict(sums)
