"""A table of the file feeds others, exactly once; without a JVM."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import Pipeline, PipelineFileError, SourceError
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.flow import Flow
from lakefeed.engine.inline import InlineFlow, run_inline
from lakefeed.engine.run_events import Committed, RunEvent
from lakefeed.engine.spark.local_tasks import LocalTasks
from lakefeed.engine.supervisor import Supervisor
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.test_file import Sample
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.rewind import rewind
from lakefeed.sources.delta.offset import DeltaOffset
from lakefeed.tables.operations import delete as deleting
from lakefeed.tables.operations.operation import operation_info
from lakefeed.testing.landed import run_samples
from lakefeed.upkeep.rewriter import BY
from support.delta_tables import age_log, clean_log, open_any
from support.ledger import dead_letters, table_ids
from support.processes import wait_until

FILE = """\
name: shop
sources: {{events: {{type: generate, rows: {rows}, partitions: 2, bad_ratio: 0.02}}}}
tables:
  gold_like: {{path: gold, from: silver, schema: {{event_id: long}}, evolve: ignore}}
  silver: {{path: silver, from: bronze, schema: {{event_id: long, price: double}}, evolve: ignore}}
  bronze: {{path: bronze, from: events}}
flush: {{rows: 70}}
"""


def write(folder: Path, rows: int = 200, text: str = FILE) -> Pipeline:
    file = folder / "shop.yaml"
    file.write_text(text.format(rows=rows))
    return Pipeline.from_file(file)


def test_one_run_brings_rows_along_the_whole_graph(tmp_path: Path) -> None:
    run_inline(write(tmp_path))

    ids = [sorted(table_ids(tmp_path / name)) for name in ("bronze", "silver", "gold")]
    assert len(ids[0]) == 196
    assert ids[0] == ids[1] == ids[2]


def test_each_run_brings_what_is_new_and_repeats_nothing(tmp_path: Path) -> None:
    for rows in (200, 400, 400, 1000):
        run_inline(write(tmp_path, rows))

    ids = [sorted(table_ids(tmp_path / name)) for name in ("bronze", "silver", "gold")]
    assert len(ids[0]) == 980
    assert ids[0] == ids[1] == ids[2]
    assert verify(write(tmp_path, 1000)).sound


def test_lag_is_counted_in_rows(tmp_path: Path) -> None:
    bronze_only = FILE.replace("  silver", "# silver").replace("  gold_like", "# gold")
    run_inline(write(tmp_path))
    run_inline(write(tmp_path, 300, bronze_only))

    found = {table.name: table.lag for table in status(write(tmp_path, 300)).tables}
    assert found == {"bronze": 0, "silver": 98, "gold_like": 0}


def test_a_rewind_of_bronze_says_what_silver_needs_and_both_agree_afterwards(tmp_path: Path) -> None:
    for rows in (200, 400):
        run_inline(write(tmp_path, rows))
    pipeline = write(tmp_path, 400)

    told = rewind(pipeline, "bronze", to_version=4, dry_run=True)
    (note,) = told.notes
    command = re.search(r"lakefeed rewind .*shop.yaml --table silver --to-version (\d+) --yes", note)
    assert command, note
    rewind(pipeline, "bronze", to_version=4)
    with pytest.raises(SourceError, match=r"table bronze: version .* brings .* back to version 4"):
        run_inline(pipeline)
    silver = rewind(pipeline, "silver", to_version=int(command[1]))
    (note,) = silver.notes
    command = re.search(r"--table gold_like --to-version (\d+) --yes", note)
    assert command, note
    assert silver.partitions[0].now_place and silver.partitions[0].events > 0
    rewind(pipeline, "gold_like", to_version=int(command[1]))
    run_inline(pipeline)

    ids = [sorted(table_ids(tmp_path / name)) for name in ("bronze", "silver", "gold")]
    assert len(ids[0]) == 392
    assert ids[0] == ids[1] == ids[2]
    assert verify(pipeline).sound


def test_verify_counts_what_silver_has_read_against_the_rows_of_bronze(tmp_path: Path) -> None:
    run_inline(write(tmp_path))

    found = {table.name: table for table in verify(write(tmp_path)).tables}
    (note,) = found["silver"].notes
    assert note.startswith("bronze/0: the snapshot of version 3 up to version 4")
    assert note.endswith("all 196 rows that bronze has there")


def test_verify_proves_what_it_can_where_bronze_is_gone(tmp_path: Path) -> None:
    run_inline(write(tmp_path))
    shutil.rmtree(tmp_path / "bronze")

    proof = verify(write(tmp_path))

    silver = next(table for table in proof.tables if table.name == "silver")
    assert proof.sound
    assert silver.rows == 196
    assert silver.notes == ["bronze cannot count again what was read of it: not compared"]


def test_silver_waits_for_a_bronze_that_is_not_there_yet(tmp_path: Path) -> None:
    run_inline(write(tmp_path, 0))
    assert not (tmp_path / "bronze" / "_delta_log").exists()
    run_inline(write(tmp_path, 100))

    assert sorted(table_ids(tmp_path / "silver")) == sorted(table_ids(tmp_path / "bronze")) != []


def test_silver_that_waited_for_long_begins_with_what_is_there(tmp_path: Path) -> None:
    run_inline(write(tmp_path, 0))
    bronze_only = FILE.replace("  silver", "# silver").replace("  gold_like", "# gold")
    run_inline(write(tmp_path, 200, bronze_only))
    DeltaTable(tmp_path / "bronze").create_checkpoint()
    for version in (0, 1, 2):
        (tmp_path / "bronze" / "_delta_log" / f"{version:020d}.json").unlink()
    run_inline(write(tmp_path, 300))

    assert sorted(table_ids(tmp_path / "silver")) == sorted(table_ids(tmp_path / "bronze")) != []
    assert not [one for table in verify(write(tmp_path, 300)).tables[:2] for one in table.findings]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            "a: {path: a, from: b}\n  b: {path: b, from: a}\n  c: {path: c, from: events}",
            r"tables.a.from: tables feed each other in a circle: 'a' from 'b' from 'a'",
        ),
        ("a: {path: a, from: a}\n  c: {path: c, from: events}", r"tables.a.from: unknown source 'a'"),
        (
            "bronze: {path: a, from: events}\n  c: {path: c, from: bronce}",
            r"tables.c.from: unknown source 'bronce', did you mean 'bronze'\?",
        ),
        (
            "bronze: {path: a, from: events}\n  c: {path: c, from: xyz}",
            r"unknown source 'xyz'; known are events, and as tables bronze",
        ),
        (
            "bronze: {route: 'a/{event_type}', from: events}\n  c: {path: c, from: bronze}",
            r"tables.c.from: 'bronze' has a `route`, so its rows lie in many tables",
        ),
        (
            "bronze: {path: a, from: events, mode: overwrite}\n  c: {path: c, from: bronze}",
            r"tables.c.from: 'bronze' has `mode: overwrite`, which replaces its rows",
        ),
        (
            "bronze: {path: a, query: SELECT 1}\n  c: {path: c, from: bronze}\n  d: {path: d, from: events}",
            r"tables.c.from: 'bronze' has a `query`, which replaces all its rows",
        ),
        (
            "bronze: {path: a, from: events}\n  c: {path: c, from: bronze, streams: [x]}",
            r"tables.c.streams: source 'bronze' has no streams",
        ),
    ],
)
def test_tables_that_cannot_feed_each_other_are_refused(tmp_path: Path, tables: str, message: str) -> None:
    text = "name: shop\nsources: {{events: {{type: generate, rows: {rows}}}}}\ntables:\n"
    with pytest.raises(PipelineFileError, match=message):
        write(tmp_path, 1, text + "  " + tables.replace("{", "{{").replace("}", "}}") + "\n")


def test_table_with_a_query_that_is_to_feed_another_is_told_of_once(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "name: shop\nsources: {events: {type: generate, rows: 1}}\ntables:\n  a: {path: a, from: events}\n"
        "  b: {path: b, query: SELECT * FROM a}\n  c: {path: c, from: b}\n"
    )

    with pytest.raises(PipelineFileError) as refused:
        Pipeline.from_file(file)

    (problem,) = refused.value.problems
    assert (problem.key, problem.message) == (
        "tables.c.from",
        "'b' has a `query`, which replaces all its rows; use it in a `query` of this table",
    )


def test_a_source_wins_over_a_table_of_its_name(tmp_path: Path) -> None:
    text = FILE.replace("sources: {{", "sources: {{bronze: {{type: delta, path: other}}, ")
    pipeline = write(tmp_path, 1, text)

    assert pipeline.inputs["bronze"].reads_table() == str(tmp_path / "other")
    assert list(pipeline.inputs) == ["bronze", "events", "silver"]


def test_dead_letters_of_rows_are_replayed_after_the_file_is_corrected(tmp_path: Path) -> None:
    narrow = FILE.replace("price: double", "price: int")
    run_inline(write(tmp_path, 200, narrow))
    letters = [one for one in dead_letters(tmp_path / "shop_dead_letters") if one["table"] == "silver"]
    wider = narrow.replace("evolve: ignore}}\n  bronze", "evolve: {{type_change: rescue}}}}\n  bronze")

    done = replay(write(tmp_path, 200, wider), DeadLetterFilter(table="silver"))

    assert len(letters) > 100 and b'"price":' in letters[0]["payload"]
    assert sorted(table_ids(tmp_path / "silver")) == sorted(table_ids(tmp_path / "bronze"))
    assert done
    assert verify(write(tmp_path, 200, wider)).sound


def test_a_run_that_goes_on_follows_within_a_moment_and_stops_clean(tmp_path: Path) -> None:
    pipeline = write(tmp_path, 2000, FILE.replace("partitions: 2", "partitions: 2, rate: 1000"))
    stop, moments = threading.Event(), dict[str, float]()
    rows: Counter[str] = Counter()

    def watch(event: RunEvent) -> None:
        if isinstance(event, Committed):
            rows[event.table] += event.rows
            if rows[event.table] == 1960:
                moments[event.table] = time.monotonic()

    tables = Tables(pipeline)
    flows: list[Flow] = [
        InlineFlow(tables, name, LocalTasks(), tmp_path / "s", watch, once=False) for name in pipeline.inputs
    ]
    running = threading.Thread(target=Supervisor(pipeline, flows, watch, stop).run, daemon=True)
    running.start()
    wait_until(lambda: "gold_like" in moments, 120, lambda: f"{rows}")
    stop.set()
    running.join(120)

    assert not running.is_alive()
    assert moments["gold_like"] - moments["bronze"] < 60
    assert sorted(table_ids(tmp_path / "gold")) == sorted(table_ids(tmp_path / "bronze"))
    assert verify(pipeline).sound


def test_plan_warns_of_a_table_that_is_behind_by_half_of_what_its_source_keeps(tmp_path: Path) -> None:
    run_inline(write(tmp_path, 200))
    bronze_only = FILE.replace("  silver", "# silver").replace("  gold_like", "# gold")
    run_inline(write(tmp_path, 300, bronze_only))
    age_log(tmp_path / "bronze", 4)

    found = {table.name: table.warnings for table in plan_run(write(tmp_path, 300)).tables}
    assert any("behind by 4d, and a replaced file is kept for 7d" in text for text in found["silver"])
    assert not any("behind by" in text for text in found["gold_like"])


def test_followers_survive_a_log_that_is_cleaned_behind_versions_without_rows(tmp_path: Path) -> None:
    run_inline(write(tmp_path, 200))
    for name in ("bronze", "silver"):
        DeltaTable(tmp_path / name).optimize.compact()
        DeltaTable(tmp_path / name).vacuum(0, dry_run=False, enforce_retention_duration=False)
    run_inline(write(tmp_path, 200))
    for name in ("bronze", "silver", "gold"):
        clean_log(tmp_path / name)
    run_inline(write(tmp_path, 300))

    ids = [sorted(table_ids(tmp_path / name)) for name in ("bronze", "silver", "gold")]
    assert len(ids[0]) == 294
    assert ids[0] == ids[1] == ids[2]


def test_a_run_that_goes_on_takes_positions_along_over_versions_without_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakefeed.engine.flow_run._RECORD_EVERY", 0.1)
    run_inline(pipeline := write(tmp_path, 200))
    stop, tables = threading.Event(), Tables(pipeline)
    flow: Flow = InlineFlow(tables, "bronze", LocalTasks(), tmp_path / "s", lambda event: None, once=False)
    running = threading.Thread(target=Supervisor(pipeline, [flow], lambda event: None, stop).run, daemon=True)
    running.start()
    DeltaTable(tmp_path / "bronze").optimize.compact()
    newest = DeltaTable(tmp_path / "bronze").version()

    def place() -> str | None:
        return status(pipeline).tables[1].offsets["bronze"]["0"].next_place

    wait_until(lambda: place() == f"version {newest + 1}", 120, place)
    stop.set()
    running.join(120)

    assert not running.is_alive()


def test_a_rewind_of_bronze_to_before_a_compaction_does_not_stop_silver(tmp_path: Path) -> None:
    run_inline(write(tmp_path, 200))
    before = DeltaTable(tmp_path / "bronze").version()
    DeltaTable(tmp_path / "bronze").optimize.compact()
    run_inline(pipeline := write(tmp_path, 200))

    (note,) = rewind(pipeline, "bronze", to_version=before).notes
    run_inline(write(tmp_path, 300))

    assert (
        note == "table silver is fed from bronze; it has read nothing of what goes, and continues behind it"
    )
    ids = [sorted(table_ids(tmp_path / name)) for name in ("bronze", "silver")]
    assert len(ids[0]) == 294 and ids[0] == ids[1]
    assert verify(write(tmp_path, 300)).sound


def test_a_source_that_reads_a_table_of_the_file_reads_it_in_tests_too(tmp_path: Path) -> None:
    text = FILE.replace("sources: {{", "sources: {{bronze: {{type: delta, path: bronze}}, ")
    samples = [Sample(json_={"event_id": 1, "price": 2.5}), Sample(json_={"event_id": 2})]

    landed = run_samples(write(tmp_path, 1, text), {"events": samples}, tmp_path / "landed")

    assert [row["event_id"] for row in landed.rows("gold_like")] == [1, 2]


def test_a_rewind_of_bronze_tells_of_dead_letters_of_rows_that_go(tmp_path: Path) -> None:
    narrow = FILE.replace("price: double", "price: int")
    for rows in (200, 400):
        run_inline(write(tmp_path, rows, narrow))
    letters = [one for one in dead_letters(tmp_path / "shop_dead_letters") if one["table"] == "silver"]
    going = [one for one in letters if DeltaOffset.of(one["offset"]).version > 4]

    *_, note = rewind(write(tmp_path, 400, narrow), "bronze", to_version=4, dry_run=True).notes

    assert 0 < len(going) < len(letters)
    assert note.startswith(
        f"{len(going)} dead letters of silver are of rows that go; their events come again"
    )


def test_rows_that_upkeep_deletes_for_their_age_stay_in_silver(tmp_path: Path) -> None:
    run_inline(write(tmp_path, 200))
    bronze = open_any(tmp_path / "bronze")
    aged = operation_info("delete", by=BY)
    deleting.run(bronze, deleting.plan(bronze, "event_id < 90"), aged)
    run_inline(write(tmp_path, 300))

    assert min(table_ids(tmp_path / "bronze")) >= 90
    assert len(table_ids(tmp_path / "silver")) == len(table_ids(tmp_path / "gold")) == 294
    assert not [one for table in verify(write(tmp_path, 300)).tables[:2] for one in table.findings]


def test_a_column_that_bronze_gets_later_comes_to_silver_too(tmp_path: Path) -> None:
    text = """\
name: shop
sources: {{orders: {{type: delta, path: orders}}}}
tables: {{bronze: {{path: bronze, from: orders}}, silver: {{path: silver, from: bronze}}}}
"""
    for columns in ({"event_id": [1]}, {"event_id": [2], "note": ["x"]}):
        write_deltalake(tmp_path / "orders", pa.table(columns), mode="append", schema_mode="merge")
        run_inline(write(tmp_path, 0, text))

    found = DeltaTable(tmp_path / "silver").to_pyarrow_table().sort_by("event_id").to_pylist()
    assert found == [{"event_id": 1, "note": None}, {"event_id": 2, "note": "x"}]
