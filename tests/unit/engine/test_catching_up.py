"""Tables that are behind, or whose store is away, hold up nobody; without Spark."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefeed import GaveUp, Pipeline, TableError
from lakefeed.engine import inline
from lakefeed.engine.batch.committer import Committer
from lakefeed.engine.batch.manifest import Manifest
from lakefeed.engine.batch.outcome import Outcome
from lakefeed.engine.batch.plan import FlowPlan
from lakefeed.engine.inline import InlineFlow
from lakefeed.engine.run_events import (
    BatchDone,
    RunEvent,
    SourceStopped,
    SourceTrouble,
    TableDelayed,
    TableMoved,
    TableStopped,
    unwatched,
)
from lakefeed.engine.spark import local_tasks
from lakefeed.engine.spark.local_tasks import LocalTasks
from lakefeed.engine.supervisor import Supervisor
from lakefeed.engine.task.task import run_task
from lakefeed.errors import SourceError, StoreUnavailable
from lakefeed.events import OffsetRange, Offsets
from lakefeed.handles.table_plan import TableId
from lakefeed.handles.tables import Tables
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from lakefeed.sources.generate.clickstream import payloads
from lakefeed.sources.generate.source import GenerateClient, GenerateSource
from lakefeed.tables.table import commit_info_of
from support.ledger import assert_each_once, dead_letters, table_ids
from support.processes import wait_until

IGNORE = "evolve: {new_column: ignore}"


class Ears:
    """Keeps what is told about tables."""

    def __init__(self) -> None:
        self.moves: list[tuple[str, str]] = []
        self.delays: list[tuple[str, str]] = []
        self.troubles: list[str] = []
        self.stops: list[str] = []
        self.acknowledged: list[Offsets] = []
        self.read = 0

    def __call__(self, event: RunEvent) -> None:
        match event:
            case BatchDone():
                self.read += event.new
            case TableMoved(table=table, text=text):
                self.moves.append((table, text))
            case TableDelayed(table=table, text=text):
                self.delays.append((table, text))
            case SourceTrouble(text=text):
                self.troubles.append(text)
            case SourceStopped(source=source):
                self.stops.append(f"source {source}")
            case TableStopped(table=table):
                self.stops.append(f"table {table}")


class ThreadedShop:
    """A pipeline that runs in a thread of the test, over a source that is as long as the test says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.file = folder, folder / "shop.yaml"
        self.rows = 0
        self.ears = Ears()
        self.held = threading.Event()
        """Set while tasks of `slow` tables may run."""
        self.held.set()
        self.waits = threading.Event()
        """Set when a task of a `slow` table has come that far."""
        self.slow: set[str] = set()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: BaseException | None = None
        self.flows: list[Any] = []
        monkeypatch.setattr(GenerateClient, "latest", lambda client: {"0": self.rows})
        monkeypatch.setattr(
            GenerateClient, "acknowledge", lambda client, at: self.ears.acknowledged.append(at)
        )
        monkeypatch.setattr(local_tasks, "run_task", self._run_task)

    def _run_task(self, plan: FlowPlan, ranges: Any, **more: Any) -> Manifest:
        if self.slow & {table.name for table in plan.tables}:
            self.waits.set()
            assert self.held.wait(120)
        return run_task(plan, ranges, **more)

    def write(self, *tables: str, give_up_after: str = "10m") -> None:
        named = "\n".join(
            f"  {name}: {{path: {name}, from: clicks, schema: {{event_id: long}}, {IGNORE}}}"
            for name in tables
        )
        self.file.write_text(
            f"""\
name: shop
sources: {{clicks: {{type: generate, rows: 100000, bad_ratio: 0.01}}}}
tables:
{named}
flush: {{rows: 100, interval: 50ms}}
give_up_after: {give_up_after}
"""
        )

    def widen(self) -> None:
        """From now on, new columns are added."""
        self.file.write_text(self.file.read_text().replace(f", {IGNORE}", ""))

    def drain(self) -> None:
        inline.run_inline(Pipeline.from_file(self.file), self.ears)

    def start(self) -> None:
        pipeline = Pipeline.from_file(self.file)
        lake, state = Tables(pipeline), self.folder / "state"
        self.flows = [
            InlineFlow(lake, name, LocalTasks(), state, self.ears, once=False) for name in pipeline.sources
        ]
        supervisor = Supervisor(pipeline, self.flows, self.ears, self._stop)

        def run() -> None:
            try:
                supervisor.run()
            except BaseException as error:
                self.error = error

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def stop(self) -> None:
        self.held.set()
        self._stop.set()
        if self._thread:
            self._thread.join(120)
            assert not self._thread.is_alive()

    def count(self, table: str) -> int:
        """Events that a table has, as rows or as dead letters."""
        dead = [one for one in dead_letters(self.folder / "shop_dead_letters") if one["table"] == table]
        return len(table_ids(self.folder / table)) + len(dead)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        wait_until(condition, 120, lambda: f"{self.error} {self.ears.__dict__}")

    def has(self, **counts: int) -> None:
        self.wait_for(lambda: all(self.count(table) == count for table, count in counts.items()))

    def together(self, *tables: str) -> None:
        self.wait_for(lambda: self.flows[0].assignment.tables == list(tables))

    def check(self, *tables: str) -> None:
        for name in tables:
            dead = [
                one["offset"]
                for one in dead_letters(self.folder / "shop_dead_letters")
                if one["table"] == name
            ]
            assert_each_once(range(self.rows), table_ids(self.folder / name), dead)
        proof = verify(Pipeline.from_file(self.file), deep=True)
        assert proof.sound, proof


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadedShop]:
    shop = ThreadedShop(tmp_path, monkeypatch)
    yield shop
    shop.stop()


def away(shop: ThreadedShop, monkeypatch: pytest.MonkeyPatch, table: str) -> threading.Event:
    """Until the event is set, nothing can be committed to a table."""
    back, link = threading.Event(), os.link

    def refuse(source: Any, target: Any, **more: Any) -> None:
        if not back.is_set() and f"/{table}/_delta_log" in str(target):
            raise OSError("connection refused")
        link(source, target, **more)

    monkeypatch.setattr("os.link", refuse)
    monkeypatch.setattr("lakefeed.tables.write.commit._FIRST_WAIT", 0)
    return back


def test_new_table_catches_up_beside_the_others_which_go_on_meanwhile_and_then_joins_them(
    shop: ThreadedShop,
) -> None:
    shop.rows = 1000
    shop.write("old")
    shop.drain()
    shop.write("old", "late")
    shop.slow = {"late"}
    shop.held.clear()
    shop.ears.read = 0

    shop.start()
    shop.rows = 1050
    shop.has(old=1050, late=0)
    apart = shop.flows[0].assignment.tables
    shop.held.set()
    shop.together("old", "late")
    shop.slow = set()
    shop.rows = 1100
    shop.has(old=1100, late=1100)
    shop.stop()

    assert shop.error is None
    assert apart == ["old"]
    assert shop.ears.moves == [
        ("late", "1,000 events behind the other tables of clicks: catches up in a query of its own"),
        ("late", "has caught up with the other tables of clicks"),
    ]
    assert len(shop.flows) == 2
    assert shop.ears.read == 1100
    shop.check("old", "late")


def test_source_that_stops_ends_the_tables_that_catch_up_with_it_too(
    shop: ThreadedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.rows = 1000
    shop.write("old")
    shop.drain()
    shop.write("old", "late")
    shop.slow = {"late"}
    shop.held.clear()
    refused = threading.Event()

    def latest(client: GenerateClient) -> Offsets:
        if refused.is_set():
            refused.clear()
            raise SourceError("source clicks: access is refused")
        return {"0": shop.rows}

    monkeypatch.setattr(GenerateClient, "latest", latest)
    shop.start()
    shop.rows = 1050
    shop.has(old=1050, late=0)
    assert shop.waits.wait(120)

    refused.set()
    shop.wait_for(lambda: shop.ears.stops == ["source clicks"])
    shop.held.set()

    shop.wait_for(lambda: shop.error is not None)
    assert str(shop.error) == "source clicks: access is refused"
    assert shop.ears.stops == ["source clicks"]
    assert 0 < shop.count("late") < 1000
    assert verify(Pipeline.from_file(shop.file), deep=True).sound


def test_table_that_is_little_behind_stays_with_the_others(shop: ThreadedShop) -> None:
    shop.rows = 300
    shop.write("old")
    shop.drain()
    shop.write("old", "late")

    shop.drain()

    assert shop.ears.moves == []
    shop.check("old", "late")


def test_run_that_ends_by_itself_drains_a_table_that_is_far_behind_too(shop: ThreadedShop) -> None:
    shop.rows = 1000
    shop.write("old")
    shop.drain()
    shop.rows = 1450
    shop.write("old", "late")

    shop.drain()

    assert [table for table, _ in shop.ears.moves][:1] == ["late"]
    shop.check("old", "late")


def test_table_without_columns_waits_for_them_apart_from_the_others(
    shop: ThreadedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.rows = 1000
    shop.write("old")
    shop.drain()
    shop.write("old", "bare")
    text = shop.file.read_text().replace(
        "{path: bare, from: clicks, schema: {event_id: long}", "{path: bare, from: clicks"
    )
    keys = ", ".join(json.loads(payloads(0, np.arange(1))[0]))
    shop.file.write_text(
        text.replace(f"{{path: bare, from: clicks, {IGNORE}", f"{{path: bare, from: clicks, drop: [{keys}]")
    )

    shop.start()
    shop.rows = 1100
    shop.has(old=1100)
    shop.wait_for(lambda: shop.flows[1:] and shop.flows[1].batches >= 10)
    shop.rows = 1200
    shop.has(old=1200)
    moves = list(shop.ears.moves)
    shop.stop()

    assert len(moves) == 1
    assert len(shop.flows) == 2


def test_tables_at_several_distances_each_catch_up_and_come_together(shop: ThreadedShop) -> None:
    shop.write("a")
    shop.rows = 2000
    shop.drain()
    shop.write("b")
    shop.rows = 1000
    shop.drain()
    shop.rows = 2100
    shop.write("a", "b", "c")

    shop.start()
    shop.has(a=2100, b=2100, c=2100)
    shop.together("a", "b", "c")
    shop.stop()

    assert shop.error is None
    shop.check("a", "b", "c")


def test_store_that_is_away_for_one_table_does_not_hold_up_the_others(
    shop: ThreadedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write("here", "there")
    shop.rows = 100
    shop.drain()
    back = away(shop, monkeypatch, "there")

    shop.start()
    shop.rows = 200
    shop.has(here=200)
    shop.rows = 900
    shop.has(here=900)
    shop.wait_for(lambda: bool(shop.ears.delays))
    behind = shop.count("there")
    back.set()
    shop.has(there=900)
    shop.together("here", "there")
    shop.rows = 1000
    shop.has(here=1000, there=1000)
    shop.stop()

    assert shop.error is None
    assert behind <= 102
    assert not any(shop.ears.troubles)
    table, text = shop.ears.delays[0]
    assert table == "there"
    assert "connection refused" in text
    assert ("there", "") in shop.ears.delays
    shop.check("here", "there")


def test_table_whose_store_stays_away_stops_alone_and_holds_back_what_is_acknowledged(
    shop: ThreadedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write("here", "there", give_up_after="1s")
    shop.rows = 100
    shop.drain()
    away(shop, monkeypatch, "there")
    shop.start()
    shop.rows = 200
    shop.wait_for(lambda: shop.ears.stops == ["table there"])

    shop.rows = 300
    shop.has(here=300)
    shop.stop()

    assert isinstance(shop.error, GaveUp)
    assert "Gave up after 1s" in str(shop.error)
    assert shop.ears.acknowledged[-1] == {"0": 100}


def test_table_without_rows_whose_store_stays_away_stops_too(
    shop: ThreadedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write("here", "there", give_up_after="1s")
    text = shop.file.read_text()
    shop.file.write_text(
        text.replace(
            "there, from: clicks, schema: {event_id: long}", "there, from: clicks, schema: {event_id: date}"
        )
    )
    shop.rows = 100
    shop.drain()
    away(shop, monkeypatch, "there")
    monkeypatch.setattr("lakefeed.engine.flow_run._RECORD_EVERY", 0)
    shop.start()
    shop.rows = 200
    shop.wait_for(lambda: len(shop.flows) > 1)
    # Its batches land, with dead letters only; its position never does.
    monkeypatch.setattr("lakefeed.engine.flow_run._RECORD_EVERY", 120)

    shop.wait_for(lambda: shop.ears.stops == ["table there"])
    shop.has(here=200)
    shop.stop()

    assert isinstance(shop.error, GaveUp)


def test_log_of_a_table_says_soon_how_far_it_is_while_only_dead_letters_come(
    shop: ThreadedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakefeed.engine.flow_run._RECORD_REFUSED_EVERY", 0.1)
    shop.write("here", "there")
    shop.file.write_text(shop.file.read_text().replace("event_id: long", "event_id: date", 1))
    shop.rows = 100
    shop.start()

    def positions() -> list[int]:
        tables = status(Pipeline.from_file(shop.file)).tables
        return [at.next for table in tables for at in table.offsets.get("clicks", {}).values()]

    shop.wait_for(lambda: positions() == [100, 100])
    shop.stop()

    assert DeltaTable(shop.folder / "here").to_pyarrow_table().num_rows == 0


def test_table_that_failed_holds_back_what_is_acknowledged(shop: ThreadedShop) -> None:
    shop.write("good", "bad")
    shop.rows = 100
    shop.drain()
    shop.file.write_text(
        shop.file.read_text().replace(
            "{path: bad, from: clicks, schema: {event_id: long}",
            "{path: bad, from: clicks, schema: {event_id: string}",
        )
    )
    shop.rows = 200
    shop.ears.acknowledged.clear()

    with pytest.raises(TableError):
        shop.drain()

    assert shop.count("good") == 200
    assert shop.ears.acknowledged == []


def test_schema_change_that_fails_for_good_ends_within_give_up_after(
    shop: ThreadedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write("here", "there", give_up_after="1s")
    shop.rows = 100
    shop.drain()
    shop.widen()

    def refuse(*args: Any) -> bool:
        return False

    monkeypatch.setattr("lakefeed.handles.handle.add_columns", refuse)
    shop.start()
    shop.rows = 200
    shop.wait_for(lambda: shop.error is not None)

    assert isinstance(shop.error, GaveUp)
    assert sorted(shop.ears.stops) == ["table here", "table there"]


def test_events_that_ask_for_the_same_column_again_and_again_stop_their_table(
    shop: ThreadedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write("here")
    shop.rows = 100
    shop.drain()
    shop.widen()
    monkeypatch.setattr("lakefeed.handles.handle.add_columns", lambda *_: True)
    shop.rows = 200

    with pytest.raises(TableError, match="same new columns were needed 3 times, although they were added"):
        shop.drain()


def test_route_that_one_task_failed_for_is_left_to_its_own_flow_whatever_other_tasks_propose(
    shop: ThreadedShop,
) -> None:
    shop.write("here")
    text = shop.file.read_text().replace(
        "tables:\n", 'tables:\n  kinds: {route: "kinds/{event_type}", from: clicks}\n'
    )
    shop.file.write_text(text)
    lake, state = Tables(Pipeline.from_file(shop.file)), shop.folder / "state"
    flow = InlineFlow(lake, "clicks", LocalTasks(), state, shop.ears, once=True)
    launched: list[Any] = []
    flow.launch = launched.append
    client = GenerateClient(GenerateSource(rows=100), "clicks")
    outcome = Outcome(
        {TableId("kinds", ("view",)): pa.schema([("event_id", pa.int64())])},
        {TableId("kinds"): StoreUnavailable("away")},
    )

    with flow._assignments.feeding(flow.assignment.number) as flow._fed:
        flow._apply(outcome, client)

    assert [one.assignment.tables for one in launched] == [["kinds"]]
    assert not (shop.folder / "kinds").exists()


def test_idle_table_records_its_position_ever_less_often(shop: ThreadedShop) -> None:
    shop.write("quiet")
    shop.drain()
    pipeline = Pipeline.from_file(shop.file)
    lake = Tables(pipeline)
    flow = InlineFlow(lake, "clicks", LocalTasks(), shop.folder / "state", unwatched, once=True)
    client = GenerateClient(GenerateSource(rows=100, bad_ratio=0.01), "clicks")
    ((progress,), _) = flow._start_positions.find(client, ["quiet"])
    committer = Committer(lake, "clicks", {}, [progress], unwatched)

    for offset in range(60):
        progress.extend(OffsetRange("0", offset, offset + 1), 0, 0)
        assert committer.record_when_due() == {}
    committer.close()

    accounts = [commit_info_of(info) for info in DeltaTable(shop.folder / "quiet").history()]
    # After 1, 3, 7, 15, 30, 45 and 60 chances.
    assert [one["kind"] for one in accounts].count("position") == 7
    assert accounts[0]["ranges"] == {"0": [45, 60, 0, 0]}
