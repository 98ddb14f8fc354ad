"""What a run tells those who watch it; without Spark."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakefeed import Fenced, Pipeline, SourceError, TableError
from lakefeed.engine.assignment import Assignments
from lakefeed.engine.batch.awaiting_schema import AwaitingSchema
from lakefeed.engine.batch.committer import Committer
from lakefeed.engine.batch.limits import BatchLimits
from lakefeed.engine.batch.manifest import MOST_SAMPLES, Manifest
from lakefeed.engine.batch.outcome import Outcome
from lakefeed.engine.batch.plan import FlowPlan
from lakefeed.engine.cores import ONE_CORE
from lakefeed.engine.flow import Flow
from lakefeed.engine.flow_run import FlowRun
from lakefeed.engine.run_events import (
    CommitFailed,
    Committed,
    DeadLettersWritten,
    FilesCounted,
    RunEvent,
    SourceTrouble,
    TableReached,
    unwatched,
)
from lakefeed.engine.supervisor import Supervisor
from lakefeed.engine.task.task import run_task
from lakefeed.events import Events, OffsetRange, Offsets
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.flush import Flush
from lakefeed.sources.generate.source import GenerateClient, GenerateSource, ShopEvents
from lakefeed.upkeep.file_counts import count_files
from support.processes import wait_until


class Ears:
    """Keeps what it is told, in order."""

    def __init__(self) -> None:
        self.heard: list[RunEvent] = []

    def __call__(self, event: RunEvent) -> None:
        self.heard.append(event)

    def of(self, kind: type) -> list[Any]:
        return [one for one in self.heard if isinstance(one, kind)]


def one_table(folder: Path) -> Pipeline:
    """A thousand rows, of which every tenth is cut off."""
    return Pipeline.model_validate(
        {
            "name": "shop",
            "sources": {"clicks": {"type": "generate", "rows": 1000, "bad_ratio": 0.1}},
            "tables": {"events": {"path": str(folder / "events"), "from": "clicks"}},
        }
    )


class Flowing:
    """A flow whose tasks run in the test."""

    def __init__(self, folder: Path) -> None:
        self.ears = Ears()
        self.pipeline = one_table(folder)
        self.tables = Tables(self.pipeline)
        spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))
        self.flow = Flow(self.tables, "clicks", spark, folder / "state", self.ears, once=True)
        self.client = GenerateClient(GenerateSource(rows=1000, bad_ratio=0.1), "clicks")
        self.begin()
        # The first attempt shows the columns that the table lacks.
        self.flow._apply(self.land(0, 100), self.client)
        self.begin()
        self.ears.heard.clear()

    def begin(self) -> None:
        opened, _ = self.flow._start_positions.find(self.client, ["events"])
        self.plan: FlowPlan = self.flow._plan(opened)
        self.committer = Committer(self.tables, "clicks", {}, opened, self.ears)

    def land(self, start: int, end: int) -> Outcome:
        manifest = run_task(self.plan, [OffsetRange("0", start, end)])
        sent = Manifest.from_json(manifest.to_json())
        return self.committer.commit([OffsetRange("0", start, end)], [sent])


def test_a_batch_tells_its_commits_its_dead_letters_and_how_far_each_table_is(tmp_path: Path) -> None:
    flowing = Flowing(tmp_path)

    flowing.land(0, 100)

    letters, events = flowing.ears.of(Committed)
    assert (letters.table, letters.rows) == ("dead letters", 10)
    assert (events.table, events.source, events.rows, events.dead_letters) == ("events", "clicks", 90, 10)
    assert (events.files, events.small_files) == (1, 1)
    (told,) = flowing.ears.of(DeadLettersWritten)
    assert (told.table, told.source, dict(told.counts)) == ("events", "clicks", {("decode", "bad_json"): 10})
    assert flowing.ears.heard[-1] == TableReached("events", "clicks", {"0": 100})


def test_only_a_few_dead_letters_come_back_word_for_word(tmp_path: Path) -> None:
    flowing = Flowing(tmp_path)

    flowing.land(0, 500)

    (told,) = flowing.ears.of(DeadLettersWritten)
    assert sum(told.counts.values()) == 50
    assert len(told.samples) == 3 <= MOST_SAMPLES
    first = told.samples[0]
    assert (first.partition, first.offset, first.stage, first.code) == ("0", 9, "decode", "bad_json")
    assert len(first.error) <= 300


def test_a_commit_tells_the_time_of_the_newest_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShopEvents, "newest", Events.newest)
    flowing = Flowing(tmp_path)

    flowing.land(0, 100)

    newest = flowing.ears.of(Committed)[-1].newest
    (last,) = flowing.plan.source.read([OffsetRange("0", 99, 100)])
    assert newest == last.origin().column("timestamp")[0].as_py().timestamp()


def test_made_up_events_do_not_tell_how_fresh_a_table_is(tmp_path: Path) -> None:
    flowing = Flowing(tmp_path)

    flowing.land(0, 100)

    assert flowing.ears.of(Committed)[-1].newest is None


def test_a_commit_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flowing = Flowing(tmp_path)

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError("connection refused")

    monkeypatch.setattr("os.link", refuse)
    monkeypatch.setattr("lakefeed.tables.write.commit._FIRST_WAIT", 0)
    flowing.land(0, 9)

    (failed,) = flowing.ears.of(CommitFailed)
    assert (failed.table, failed.source) == ("events", "clicks")
    assert "the commit failed 6 times" in failed.text


def test_files_are_counted_without_being_asked_until_the_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flowing = Flowing(tmp_path)
    flowing.land(0, 100)
    flowing.ears.heard.clear()
    monkeypatch.setattr("lakefeed.upkeep.file_counts._FIRST_AFTER", 0.01)

    with count_files(flowing.tables, flowing.ears, every=0.05):
        deadline = time.monotonic() + 120
        while len(flowing.ears.of(FilesCounted)) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)

    events = next(one for one in flowing.ears.of(FilesCounted) if one.table == "events")
    letters = next(one for one in flowing.ears.of(FilesCounted) if one.table == "dead letters")
    assert (events.rows, events.files, events.small_files) == (90, 1, 1)
    assert events.size == sum(file.stat().st_size for file in (tmp_path / "events").glob("*.parquet"))
    assert abs(time.time() - events.last_commit) < 60
    assert (letters.rows, letters.small_files) == (10, 0)


def flow_run(ears: Ears, folder: Path, *, after_failure: bool, waiting: int) -> FlowRun:
    """A run that finds so many events waiting, and is told to stop when it rests."""
    client = GenerateSource(rows=waiting).client("shop", "clicks")
    committer: Any = SimpleNamespace(
        awaiting_schema=AwaitingSchema(ears),
        record_positions=dict,
        committed=dict,
        is_kept=True,
        marks=client.marks(),
        close=lambda: None,
        tell_positions=lambda: None,
    )
    plan: Any = SimpleNamespace(source_name="clicks", cut=lambda start, end: end)
    limits = BatchLimits(Flush(interval=60))
    # What waits has come after the start.
    limits.allowed(0)
    run = FlowRun(
        client=client,
        committer=committer,
        plan=plan,
        cores=lambda: ONE_CORE,
        start={"0": 0},
        until=None,
        limits=limits,
        stop=threading.Event(),
        watch=ears,
        assignment=Assignments(Tables(one_table(folder)), "clicks", ears).main(),
        after_failure=after_failure,
    )

    def rest() -> Outcome:
        run.stop.set()
        return Outcome()

    run._rest = rest  # type: ignore[method-assign]
    return run


@pytest.mark.parametrize(
    ("after_failure", "waiting", "over"),
    [(False, 0, True), (False, 5, True), (True, 0, True), (True, 5, False)],
    ids=["answers", "answers, and events wait", "nothing left to fail", "the batch that failed still waits"],
)
def test_a_trouble_is_over_when_the_source_answers_unless_a_batch_that_failed_still_waits(
    after_failure: bool, waiting: int, over: bool, tmp_path: Path
) -> None:
    ears = Ears()
    run = flow_run(ears, tmp_path, after_failure=after_failure, waiting=waiting)

    run.run()
    run.close()

    assert (SourceTrouble("clicks", "") in ears.heard) == over


def test_the_source_is_told_the_position_that_every_table_has_recorded(tmp_path: Path) -> None:
    pipeline = Pipeline.model_validate(
        {
            "name": "shop",
            "sources": {"clicks": {"type": "generate", "rows": 100}},
            "tables": {
                name: {"path": str(tmp_path / name), "from": "clicks", "schema": {"event_id": "long"}}
                for name in ("fast", "slow")
            },
        }
    )
    flow = Flow(Tables(pipeline), "clicks", None, tmp_path, unwatched, once=True)  # type: ignore[arg-type]
    client = GenerateClient(GenerateSource(rows=100), "clicks")
    (fast, slow), _ = flow._start_positions.find(client, ["fast", "slow"])
    committer = Committer(Tables(pipeline), "clicks", {}, [fast, slow], unwatched)
    fast.logged, slow.logged = {"0": 79}, {"0": 9}
    slow.extend(OffsetRange("0", 10, 60), 50, 0)

    told: Offsets = flow.assignment.committed(committer.committed())
    committer.close()

    assert told == {"0": 10}
    assert slow.read_to == {"0": 60}


class Doomed:
    """A flow that ends with an error, once that of another one was reported."""

    def __init__(self, pipeline: Pipeline, source: str, error: Exception, after: Any = None) -> None:
        self.source, self.batches, self.has_lost_spark = source, 0, False
        self.assignment = Assignments(Tables(pipeline), "clicks", unwatched).main()
        self.stop, self.failures = threading.Event(), dict[str, TableError]()
        self.once, self._error, self._after = False, error, after

    def run(self) -> bool:
        if self._after is not None:
            wait_until(lambda: bool(self._after.reported), 120, lambda: "no error was reported")
        raise self._error


def test_an_error_that_was_told_when_it_happened_does_not_hide_the_one_that_ends_the_run(
    tmp_path: Path,
) -> None:
    shop = one_table(tmp_path)
    first = SourceError("topic 'clicks' does not exist")
    flows: Any = [
        Doomed(shop, "clicks", first),
        Doomed(shop, "orders", Fenced("another instance has written"), after=first),
    ]
    supervisor = Supervisor(shop, flows, unwatched, threading.Event())

    with pytest.raises(Fenced) as ended:
        supervisor.run()

    assert not ended.value.reported
    assert flows[0]._error.reported
