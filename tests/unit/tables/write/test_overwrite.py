"""`mode: overwrite` on one table: what its commits hold, and which tables it refuses."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import Fenced, Pipeline, PipelineFileError, TableError
from lakefeed.commands.plan import _table as plan_lines
from lakefeed.engine.inline import InlineFlow, run_inline
from lakefeed.engine.run_events import Committed, RunEvent, TableChanged
from lakefeed.engine.spark.local_tasks import LocalTasks
from lakefeed.engine.supervisor import Supervisor
from lakefeed.files import WrittenFile
from lakefeed.files.parquet import FileTarget, TableWriter
from lakefeed.handles.tables import Tables
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.verify import verify
from lakefeed.reprocess.rewind import rewind
from lakefeed.tables import table as tables
from lakefeed.tables.detail.detail import history
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.append import append
from lakefeed.tables.write.commit import commit
from lakefeed.tables.write.mode import Change
from lakefeed.tables.write.overwrite import OverwriteMode
from support.fed_table import CITIES, IDS, make_table, open_table


def shop(folder: Path, rows: int, more: str = "", mode: str = "overwrite") -> Pipeline:
    (folder / "shop.yaml").write_text(
        f"""\
name: shop
sources:
  clicks: {{type: generate, rows: {rows}}}
tables:
  events: {{path: events, from: clicks, mode: {mode}, schema: {{event_id: long}}{more}}}
flush: {{rows: 100}}
"""
    )
    return Pipeline.from_file(folder / "shop.yaml")


def ids(folder: Path, version: int | None = None) -> list[int]:
    return sorted(DeltaTable(folder / "events", version=version).to_pyarrow_table()["event_id"].to_pylist())


def entry(folder: Path, version: int) -> list[dict[str, Any]]:
    text = (folder / "events" / "_delta_log" / f"{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def opened(pipeline: Pipeline) -> LakeTable:
    table = Tables(pipeline).handles["events"].open("shop")
    assert table is not None
    return table


@pytest.fixture(params=["an entry written here", "delta-rs"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways in which a commit is made."""
    if request.param == "delta-rs":
        monkeypatch.setattr("lakefeed.tables.table.writes_entries", lambda delta, store: False)
    return str(request.param)


def test_the_first_rows_of_a_run_replace_all_in_one_entry_with_the_positions(
    tmp_path: Path, way: str
) -> None:
    run_inline(shop(tmp_path, 200))
    before = DeltaTable(tmp_path / "events").version()

    run_inline(shop(tmp_path, 400))

    assert ids(tmp_path, before) == list(range(200))
    assert ids(tmp_path, before + 1) == list(range(200, 300))
    assert ids(tmp_path) == list(range(200, 400))
    actions = entry(tmp_path, before + 1)
    assert sorted(next(iter(action)) for action in actions) == [
        *("add", "commitInfo", "remove", "remove", "txn", "txn")
    ]
    info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    told = json.loads(info["lakefeed"])
    assert info["isBlindAppend"] is False
    assert (told["kind"], told["run"], told["removed"]) == ("overwrite", 2, {"files": 2, "rows": 200})
    assert told["ranges"] == {"0": [200, 300, 100, 0]}
    [replaced] = [one for one in history(opened(shop(tmp_path, 400))) if one.version == before + 1]
    assert (replaced.rows_added, replaced.rows_removed) == (100, 200)
    assert verify(shop(tmp_path, 400)).sound


def test_those_who_watch_hear_what_was_replaced(tmp_path: Path) -> None:
    run_inline(shop(tmp_path, 200))
    told: list[RunEvent] = []

    run_inline(shop(tmp_path, 400), told.append)

    changes = [one.text for one in told if isinstance(one, TableChanged)]
    assert changes == ["replaced 200 rows in 2 files"]
    assert [one.replaces for one in told if isinstance(one, Committed)] == [True, False]


def test_plan_says_what_becomes_of_the_rows_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = shop(tmp_path, 200)
    run_inline(pipeline)
    ended = plan_run(shop(tmp_path, 300)).tables[0]
    with monkeypatch.context() as broken:
        broken.setattr(OverwriteMode, "end", lambda *_: None)
        run_inline(shop(tmp_path, 300))

    open_run = plan_run(shop(tmp_path, 400)).tables[0]

    assert "  replaces 200 rows at its first commit with rows" in plan_lines(ended)
    assert "  adds to the rows of the last run, which did not come to its end" in plan_lines(open_run)


def test_a_rewind_brings_back_which_run_the_rows_are_of(tmp_path: Path) -> None:
    run_inline(shop(tmp_path, 200))
    run_inline(shop(tmp_path, 400))
    middle = next(one.version for one in history(opened(shop(tmp_path, 400))) if one.operation == "overwrite")

    rewind(shop(tmp_path, 400), "events", to_version=middle)
    run_inline(shop(tmp_path, 500))

    assert ids(tmp_path) == list(range(200, 500))
    assert verify(shop(tmp_path, 500)).sound


def test_a_rewind_into_the_first_run_opens_that_run_again(tmp_path: Path) -> None:
    run_inline(shop(tmp_path, 200))
    first = next(one.version for one in history(opened(shop(tmp_path, 200))) if one.operation == "overwrite")

    rewind(shop(tmp_path, 200), "events", to_version=first)
    assert ids(tmp_path) == list(range(100))
    run_inline(shop(tmp_path, 200))

    assert ids(tmp_path) == list(range(200))
    assert verify(shop(tmp_path, 200)).sound


def test_a_rewind_to_before_the_first_run_lets_the_next_one_replace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_inline(shop(tmp_path, 200, mode="append"))
    before = DeltaTable(tmp_path / "events").version()
    with monkeypatch.context() as broken:
        broken.setattr(OverwriteMode, "end", lambda *_: None)
        run_inline(shop(tmp_path, 300))

    rewind(shop(tmp_path, 300), "events", to_version=before)
    run_inline(shop(tmp_path, 300))

    assert ids(tmp_path) == list(range(200, 300))


def test_rows_of_others_that_were_replaced_are_told_of_again_after_a_rewind(tmp_path: Path) -> None:
    run_inline(shop(tmp_path, 100))
    write_deltalake(tmp_path / "events", pa.table({"event_id": [1000]}), mode="append", schema_mode="merge")
    theirs = DeltaTable(tmp_path / "events").version()
    run_inline(shop(tmp_path, 200))
    assert verify(shop(tmp_path, 200)).sound

    rewind(shop(tmp_path, 200), "events", to_version=theirs)

    [verified] = verify(shop(tmp_path, 200)).tables
    assert [(one.kind, one.version) for one in verified.findings] == [("foreign", theirs)]


def test_rows_of_one_source_stay_when_the_answer_to_their_commit_cannot_be_read(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, mode = make_table(tmp_path), OverwriteMode("shop")
    read = tables.read_tagged
    failed: list[int] = []

    def refuse_once(*args: Any, **more: Any) -> Any:
        if not failed:
            failed.append(1)
            raise OSError("connection reset by peer")
        return read(*args, **more)

    monkeypatch.setattr(tables, "read_tagged", refuse_once)

    with pytest.raises(TableError, match="connection reset"):
        commit(table, brings(tmp_path, "bills", 0, 9), mode, retries=0)
    commit(table, brings(tmp_path, "orders", 10, 19), mode, retries=0)

    assert sorted(DeltaTable(tmp_path).to_pyarrow_table()["id"].to_pylist()) == list(range(20))


def test_rows_that_come_just_before_the_first_commit_of_a_run_are_replaced_as_well(
    tmp_path: Path, way: str
) -> None:
    table = make_table(tmp_path)
    append(open_table(tmp_path), brings(tmp_path, "strangers", 0, 9), retries=0)

    commit(table, brings(tmp_path, "bills", 10, 19), OverwriteMode("shop"), retries=1)

    assert DeltaTable(tmp_path).to_pyarrow_table()["id"].to_pylist() == list(range(10, 20))


def test_files_of_partitions_with_any_sign_in_their_name_are_replaced(tmp_path: Path, way: str) -> None:
    table, mode = make_table(tmp_path, CITIES, ["city"]), OverwriteMode("shop")
    for run in (1, 2):
        writer = TableWriter(table.store, FileTarget(CITIES, ("city",)))
        cities = pa.array(["New York", "50% öl/x", "a=b#?", None], pa.string())
        writer.write(pa.record_batch({"id": [run] * 4, "city": cities}))
        told = {"pipeline": "shop", "source": "bills", "ranges": {}}
        commit(table, Change(writer.close(), {}, {}, told), mode, retries=0)
        mode.end(table, retries=0)

    assert DeltaTable(tmp_path).to_pyarrow_table()["id"].to_pylist() == [2] * 4


def brings(path: Path, source: str, first: int, last: int) -> Change:
    name, count = f"{first}.parquet", last - first + 1
    pq.write_table(pa.table({"id": list(range(first, last + 1))}, schema=IDS), path / name)
    file = WrittenFile(name, (path / name).stat().st_size, {}, json.dumps({"numRecords": count}), count)
    told = {"pipeline": "shop", "source": source, "ranges": {"0": [first, last + 1, count, 0]}, "rows": count}
    return Change([file], {f"shop/{source}/0": last}, {f"shop/{source}/0": None}, told)


def test_an_instance_whose_run_another_has_ended_is_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = shop(tmp_path, 300)
    other = Tables(shop(tmp_path, 300))
    ended = []

    def end_it(event: RunEvent) -> None:
        if isinstance(event, Committed) and not ended:
            other.handles["events"].open("shop")
            other.end_runs(["events"])
            ended.append(event)

    with pytest.raises(Fenced, match="has ended the run that this one writes"):
        run_inline(pipeline, end_it)

    assert ids(tmp_path) == list(range(100))


def test_several_sources_share_a_run(tmp_path: Path) -> None:
    for rows in (100, 250):
        (tmp_path / "shop.yaml").write_text(
            f"""\
name: shop
sources: {{a: {{type: generate, rows: {rows}}}, b: {{type: generate, rows: {rows}}}}}
tables: {{events: {{path: events, from: [a, b], mode: overwrite, schema: {{event_id: long}}}}}}
flush: {{rows: 50}}
"""
        )
        run_inline(Pipeline.from_file(tmp_path / "shop.yaml"))

    assert ids(tmp_path) == sorted([*range(100, 250)] * 2)


def test_a_table_whose_rows_must_stay_is_refused(tmp_path: Path) -> None:
    pipeline = shop(tmp_path, 200, ", properties: {delta.appendOnly: 'true'}")

    with pytest.raises(TableError, match=r"would remove rows, and the table has delta\.appendOnly=true"):
        run_inline(pipeline)
        run_inline(pipeline)

    assert "appendOnly" in (plan_run(pipeline).tables[0].refused or "")


def test_a_route_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(
        """\
name: shop
sources: {clicks: {type: generate}}
tables: {events: {route: "of_{event_type}", from: clicks, mode: overwrite}}
"""
    )

    with pytest.raises(
        PipelineFileError, match=r"tables\.events\.mode: `overwrite` replaces the rows of one"
    ):
        Pipeline.from_file(tmp_path / "shop.yaml")


def test_a_run_that_was_cut_short_is_not_over(tmp_path: Path) -> None:
    run_inline(shop(tmp_path, 200))
    pipeline, stop = shop(tmp_path, 400), threading.Event()

    def stop_it(event: RunEvent) -> None:
        if isinstance(event, Committed):
            stop.set()

    flow = InlineFlow(Tables(pipeline), "clicks", LocalTasks(), tmp_path / "state", stop_it, once=True)
    Supervisor(pipeline, [flow], stop_it, stop).run()
    half = opened(pipeline)

    assert OverwriteMode("shop").is_open(half)
    run_inline(pipeline)
    assert not OverwriteMode("shop").is_open(opened(pipeline))
    assert ids(tmp_path) == list(range(200, 400))
