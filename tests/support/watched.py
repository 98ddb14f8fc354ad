"""A run without an engine: a state that a test tells what happened, and a server of what it knows."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lakefeed import Pipeline
from lakefeed.engine.run_events import (
    BatchDone,
    CommitFailed,
    Committed,
    CoresSeen,
    DeadLetterSample,
    DeadLettersWritten,
    RefusingMany,
    SourceSeen,
    SourceTrouble,
    TableChanged,
    TableReached,
    TableStopped,
    UpkeepDone,
    all_of,
)
from lakefeed.watch.metrics import Metrics
from lakefeed.watch.state import RunState
from lakefeed.watch.web.server import serving

NOON = 1_794_744_000.0
"""2026-11-15T12:00:00Z."""


def shop(**more: Any) -> Pipeline:
    """Two sources and three tables; `refunds` has events of both sources."""
    return Pipeline.model_validate(
        {
            "name": "shop",
            "sources": {
                "clicks": {"type": "generate", "partitions": 2},
                "orders": {
                    "type": "kafka",
                    "brokers": "broker:9092",
                    "topics": ["orders"],
                    "format": "json",
                    "options": {"sasl.password": "hunter22"},
                },
            },
            "tables": {
                "clicks": {"path": "/lake/clicks", "from": "clicks"},
                "orders": {"path": "/lake/orders", "from": "orders"},
                "refunds": {"path": "/lake/refunds", "from": ["clicks", "orders"]},
            },
            "http": {"listen": "127.0.0.1:0"},
            **more,
        }
    )


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


class WatchedRun:
    """The watchers of a run, as `lakefeed run` puts them together."""

    def __init__(self, pipeline: Pipeline | None = None) -> None:
        self.pipeline = pipeline or shop()
        self.clock = Clock()
        self.state = RunState(self.pipeline, self.clock)
        self.metrics = Metrics(self.state)
        self.tell = all_of(self.state.watch, self.metrics.watch)

    def commit(self, table: str, source: str, rows: int = 100, **more: Any) -> None:
        told = {
            "version": 1,
            "files": 1,
            "size": 4000,
            "dead_letters": 0,
            "seconds": 0.02,
            "retries": 0,
        } | more
        self.tell(Committed(table=table, source=source, rows=rows, **told))

    def letters(
        self,
        table: str,
        source: str,
        count: int,
        code: str = "bad_json",
        error: str = "no",
        payload: str = "{broken",
    ) -> None:
        sample = DeadLetterSample(f"{source}-0", 17, "decode", code, error, payload)
        self.tell(DeadLettersWritten(table, source, {("decode", code): count}, (sample,)))
        self.commit("dead letters", source, count)

    def all_is_well(self) -> None:
        """Every source has answered, every table has a hundred rows and is at the end."""
        for source in self.pipeline.sources:
            self.tell(SourceSeen(source, {"0": 100}))
            self.tell(CoresSeen(source, 8, 2))
            self.tell(BatchDone(source, 100, 20_000, 0.5, 0, tasks=8))
        for name, table in self.pipeline.tables.items():
            for source in table.from_:
                self.tell(TableReached(name, source, {"0": 100}))
                self.commit(name, source, newest=self.clock.now - 1)

    def trouble_everywhere(self) -> None:
        """A stopped broker, a refused table, a fifth of the records bad, and what else can happen."""
        self.all_is_well()
        self.letters("clicks", "clicks", 1, error="the text ends inside a string at byte 93")
        share = "25 of the last 125 events (20.0%) became dead letters"
        why = "most often bad_json: the text ends inside a string"
        self.tell(RefusingMany("clicks", "clicks", share, why))
        self.tell(SourceTrouble("orders", "source orders: broker:9092 does not answer: Connection refused"))
        self.tell(
            TableStopped(
                "refunds",
                "table refunds: /lake/refunds is partitioned by ['day'], the pipeline file says nothing.\n"
                "Change `partition_by` or choose another path.",
            )
        )
        self.tell(CommitFailed("orders", "orders", "/lake/orders: the store does not answer"))
        self.tell(TableChanged("clicks", "new column referrer string"))
        self.tell(UpkeepDone("clicks", "compact", 40, 2, 4_000_000, 3_000_000, 1.5))


@dataclass(frozen=True)
class Answer:
    code: int
    text: str
    headers: Mapping[str, str]

    def json(self) -> Any:
        return json.loads(self.text)


class Site:
    """What is served at an address, as a program asks for it."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str = "", method: str = "GET", **headers: str) -> Answer:
        asked = urllib.request.Request(
            self.address + path, method=method, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )
        try:
            with urllib.request.urlopen(asked, timeout=60) as got:
                return Answer(got.status, got.read().decode(), dict(got.headers))
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read().decode(), dict(error.headers))


@contextmanager
def served(run: WatchedRun) -> Iterator[Site]:
    with serving(run.pipeline, run.state, run.metrics) as address:
        yield Site(address)
