"""What a flow does when something else was faster or failed; without Spark."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import Pipeline, StoreUnavailable, TableError
from lakefeed.engine.assignment import Assignments
from lakefeed.engine.batch.awaiting_schema import AwaitingSchema
from lakefeed.engine.batch.committer import Committer
from lakefeed.engine.batch.limits import BatchLimits
from lakefeed.engine.batch.manifest import Manifest, TableManifest
from lakefeed.engine.batch.outcome import Outcome
from lakefeed.engine.cores import ONE_CORE
from lakefeed.engine.flow import Flow
from lakefeed.engine.flow_run import FlowRun
from lakefeed.engine.run_events import RunEvent, SourceTrouble, unwatched
from lakefeed.events import OffsetRange, Offsets
from lakefeed.files import WrittenFile
from lakefeed.handles.table_plan import TableId
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.flush import Flush
from lakefeed.sources.generate.source import GenerateClient, GenerateSource
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change


def shop(folder: Path) -> Pipeline:
    file = folder / "shop.yaml"
    file.write_text(
        """\
name: shop
sources:
  clicks: {type: generate, rows: 100}
tables:
  events: {path: events, from: clicks, schema: {event_id: long}}
"""
    )
    return Pipeline.from_file(file)


class Overtaken(GenerateClient):
    """A source so slow to answer that another instance creates the table meanwhile, and writes ten rows."""

    def __init__(self, other: Tables) -> None:
        self._other: Tables | None = None
        super().__init__(GenerateSource(rows=100), "clicks")
        self._other = other

    def start(self) -> Offsets:
        other, self._other = self._other, None
        if other:
            handle = other.handles["events"]
            columns = handle.columns()
            assert columns is not None
            table = handle.create(columns, {"shop/clicks/0": -1}, {})
            append(table, Change([], {"shop/clicks/0": 9}, {"shop/clicks/0": -1}, {}), retries=0)
        return super().start()


def test_instance_that_was_overtaken_while_creating_the_table_begins_where_the_other_is(
    tmp_path: Path,
) -> None:
    pipeline = shop(tmp_path)
    spark: Any = None
    flow = Flow(Tables(pipeline), "clicks", spark, tmp_path / "state", unwatched, once=True)

    ((progress,), _) = flow._start_positions.find(Overtaken(Tables(pipeline)), ["events"])

    assert progress.logged == {"0": 9}
    assert progress.rows_from == {"0": 10}


def test_batch_that_a_store_did_not_take_does_not_count_as_landed(tmp_path: Path) -> None:
    troubles: list[str] = []

    def watch(event: RunEvent) -> None:
        if isinstance(event, SourceTrouble):
            troubles.append(event.text)

    failed = Outcome(failures={TableId("events"): StoreUnavailable("the store does not answer")})
    client = GenerateSource(rows=100).client("shop", "clicks")
    committer: Any = SimpleNamespace(
        awaiting_schema=AwaitingSchema(unwatched),
        committed=dict,
        commit=lambda spans, manifests, confirm, reloads: failed,
        record_positions=lambda at_least: {},
        is_kept=True,
        marks=client.marks(),
        close=lambda: None,
    )
    plan: Any = SimpleNamespace(source_name="clicks", cut=lambda start, end: end, positions=list, tables=())
    frame: Any = SimpleNamespace(collect=lambda: [(Manifest().to_json(),)])
    run = FlowRun(
        client=client,
        committer=committer,
        plan=plan,
        cores=lambda: ONE_CORE,
        start={"0": 0},
        until=None,
        limits=BatchLimits(Flush(), hurry=True),
        stop=threading.Event(),
        watch=watch,
        assignment=Assignments(Tables(shop(tmp_path)), "clicks", watch).main(),
        after_failure=True,
    )
    run.channel.open_to = lambda end, tasks: run.take(frame, 0)  # type: ignore[method-assign]

    outcome = run.run()
    run.close()

    assert outcome is failed
    assert run.assignment.batches == 0
    assert troubles == []


def test_table_of_other_columns_is_not_taken_for_the_dead_letters(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "shop_dead_letters", pa.table({"id": [1]}))
    tables = Tables(shop(tmp_path))

    with pytest.raises(TableError) as refused:
        tables.open_dead_letters()

    assert str(refused.value) == (
        f"{tmp_path / 'shop_dead_letters'} is not a table of dead letters.\n"
        "Choose another path for `dead_letters`."
    )


def test_position_is_never_recorded_past_rows_whose_commit_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = shop(tmp_path)
    tables = Tables(pipeline)
    spark: Any = None
    flow = Flow(tables, "clicks", spark, tmp_path / "state", unwatched, once=True)
    client = GenerateClient(GenerateSource(rows=100), "clicks")
    ((progress,), _) = flow._start_positions.find(client, ["events"])
    committer = Committer(tables, "clicks", {}, [progress], unwatched)
    (tmp_path / "events" / "a.parquet").write_bytes(b"x")
    file = WrittenFile("a.parquet", 1, {}, '{"numRecords": 10}', 10)
    batch = Manifest(
        [OffsetRange("0", 0, 10)], {TableId("events"): TableManifest(TableId("events"), [file])}, {"0": 10}
    )

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError("connection refused")

    with monkeypatch.context() as broken:
        broken.setattr("os.link", refuse)
        broken.setattr("lakefeed.tables.write.commit._FIRST_WAIT", 0)
        outcome = committer.commit([OffsetRange("0", 0, 10)], [batch])
    recorded = committer.record_positions()
    committer.close()

    assert isinstance(outcome.failures[TableId("events")], StoreUnavailable)
    assert recorded == {}
    assert DeltaTable(tmp_path / "events").transaction_version("shop/clicks/0") == -1
