from __future__ import annotations

import logging
import random
import shutil
import signal
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed.engine.run_events import unwatched
from lakefeed.stores import open_store
from lakefeed.tables.table import LakeTable
from lakefeed.upkeep import scheduler
from lakefeed.upkeep.jobs import UpkeepJob
from lakefeed.upkeep.rewriter import DeltaRewriter, FileChange
from lakefeed.upkeep.schedule import Schedule
from lakefeed.upkeep.scheduler import Scheduler, SteadyClock, running
from support.faultpoints import UPKEEP_POINTS
from support.processes import wait_until
from support.upkeep import FIRST_DAY, Kept, age_at_noon, orphan, perform_in_a_process
from support.vectors import allow, mark_everywhere


def test_small_files_of_a_partition_become_one_and_every_row_stays(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.add(0, 8, day=0)
    kept.add(80, 3, day=1)

    steps = kept.perform("compact")

    assert [(one.table, one.operation, one.files_before, one.files_after) for one in steps] == [
        ("events", "compact", 8, 1)
    ]
    assert steps[0].bytes_before > steps[0].bytes_after > 0
    assert len(kept.files()) == 1 + 3
    assert kept.ids() == list(range(110))
    assert {"kind": "compact", "by": "upkeep", "pipeline": "shop"}.items() <= kept.commit_info().items()


def test_second_compaction_changes_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.add(0, 8)
    kept.perform("compact")
    version = DeltaTable(kept.path).version()

    again = kept.perform("compact")

    assert again == []
    assert DeltaTable(kept.path).version() == version


def test_min_files_says_how_many_small_files_are_worth_a_rewrite(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "{compact: {min_files: 4}}")
    kept.add(0, 3)

    too_few = kept.perform("compact")
    kept.add(30, 1)
    enough = kept.perform("compact")

    assert too_few == []
    assert [one.files_before for one in enough] == [4]


def test_partition_that_gets_no_more_files_is_finished_from_two_files_on(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "{compact: {every: 1h}}")
    kept.add(0, 2)

    at_once = kept.perform("compact")
    time.sleep(0.05)
    later = Kept(tmp_path, "{compact: {every: 1ms}}").perform("compact")

    assert at_once == []
    assert [one.files_before for one in later] == [2]


def test_partition_that_is_finished_has_no_small_file_left(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "{compact: {every: 1ms, target_file_size: 200KB}, max_share: 1}", "")
    scattered = random.Random(7).sample(range(2**60), 60_000)
    for start, end in ((0, 25_000), (25_000, 50_000), (50_000, 52_000), (52_000, 60_000)):
        kept.write(scattered[start:end])
    time.sleep(0.05)

    looks = 0
    while kept.perform("compact"):
        looks += 1
        time.sleep(0.05)

    sizes = pa.table(DeltaTable(kept.path).get_add_actions())["size_bytes"].to_pylist()
    assert len(sizes) < 4
    assert all(100 * 1024 <= size <= 400 * 1024 for size in sizes)
    assert looks <= 2
    assert kept.ids() == sorted(scattered)


def test_where_leaves_other_partitions_alone(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "{compact: {min_files: 2, where: \"day > '2026-01-01'\"}}")
    kept.add(0, 2, day=0)
    kept.add(20, 2, day=1)

    steps = kept.perform("compact")

    assert len(steps) == 1
    assert sum("day=2026-01-01" in file for file in kept.files()) == 2
    assert sum("day=2026-01-02" in file for file in kept.files()) == 1


def test_where_that_does_not_fit_is_told_once_and_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept(tmp_path, '{compact: {where: "id > 5"}}')
    kept.add(0, 2)

    with caplog.at_level(logging.WARNING, "lakefeed"):
        kept.perform("compact")
        kept.perform("compact")

    assert len(caplog.records) == 1
    assert "events: compact of upkeep failed, the stream continues" in caplog.text
    assert "upkeep.compact.where 'id > 5'" in caplog.text


def test_growing_partition_is_gathered_by_tiers_so_that_large_files_are_not_rewritten(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "{compact: {min_files: 4, target_file_size: 64KB}}")
    kept.add(0, 1, rows=20_000)
    large = set(kept.files())
    kept.add(20_000, 4)

    steps = kept.perform("compact")

    assert [one.files_before for one in steps] == [4]
    assert large < set(kept.files())


def test_compaction_keeps_to_the_rows_that_a_file_may_have(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "{compact: {min_files: 2}, max_share: 1}", "max_rows_per_file: 30")
    kept.add(0, 9)

    first = kept.perform("compact")
    again = kept.perform("compact")

    records = pa.table(DeltaTable(kept.path).get_add_actions())["num_records"].to_pylist()
    assert max(records) == 30
    assert sum(step.files_before for step in first) == 9 > len(records)
    assert again == []
    assert kept.ids() == list(range(90))


@pytest.mark.parametrize("age", [0, 4000], ids=["growing", "cold"])
def test_files_with_all_the_rows_that_they_may_have_are_not_written_again(
    age: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = "partition_by: [day]\nmax_rows_per_file: 1000"
    kept = Kept(tmp_path, "{compact: {min_files: 2}, max_share: 1}", limit, columns=", v: string")

    def write(first: int, count: int, day: int, size: int) -> None:
        """A file with texts of so many bits."""
        texts = pa.array([str(random.getrandbits(size)) for _ in range(count)])
        days = pa.array([FIRST_DAY + timedelta(days=day)] * count, pa.date32())
        ids = pa.array(range(first, first + count), pa.int64())
        at = pa.nulls(count, pa.timestamp("us", "UTC"))
        rows = pa.table({"id": ids, "at": at, "day": days, "v": texts})
        write_deltalake(kept.path, rows, mode="append")

    for first in range(0, 2300, 100):
        write(first, 100, day=0, size=8)
    # Beside rows as long as these, the files of others look small.
    write(5000, 1000, day=1, size=8000)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + age)

    while kept.perform("compact"):
        assert DeltaTable(kept.path).version() < 30

    version = DeltaTable(kept.path).version()
    kept.perform("compact")
    assert DeltaTable(kept.path).version() == version
    assert len(kept.files()) <= 5
    assert kept.ids() == [*range(2300), *range(5000, 6000)]


def test_rows_older_than_their_age_are_deleted_and_no_others(tmp_path: Path) -> None:
    kept = Kept(tmp_path, f"{{delete_after: {{column: at, age: {age_at_noon(2)}}}}}")
    for day in range(5):
        kept.add(day * 10, 1, day=day)

    steps = kept.perform("delete")

    assert kept.ids() == list(range(30, 50))
    assert [(one.files_before, one.files_after) for one in steps] == [(1, 0)] * 3
    assert kept.commit_info()["kind"] == "delete"
    assert kept.commit_info()["by"] == "upkeep"
    assert kept.perform("delete") == []


def test_old_rows_are_deleted_from_partitions_of_booleans(tmp_path: Path) -> None:
    upkeep = "{delete_after: {column: at, age: 7d}, max_share: 1}"
    kept = Kept(tmp_path, upkeep, "partition_by: [flag]", columns=", flag: boolean")
    schema = DeltaTable(kept.path).to_pyarrow_table().schema
    for first, at in ((0, datetime(2026, 1, 1, tzinfo=UTC)), (3, datetime.now(UTC))):
        rows = [range(first, first + 3), [at] * 3, [None] * 3, [True, False, None]]
        arrays = [pa.array(values, kind) for values, kind in zip(rows, schema.types, strict=True)]
        write_deltalake(kept.path, pa.table(arrays, schema=schema), mode="append")

    kept.perform("delete")

    assert kept.ids() == [3, 4, 5]


def test_age_may_be_told_by_the_column_that_lays_out_the_table(tmp_path: Path) -> None:
    kept = Kept(tmp_path, f"{{delete_after: {{column: day, age: {age_at_noon(2)}}}}}")
    for day in range(5):
        kept.add(day * 10, 1, day=day)

    kept.perform("delete")

    assert kept.ids() == list(range(20, 50))


def test_cluster_orders_rows_so_that_files_hold_few_values(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "{compact: {target_file_size: 100KB}}", "cluster_by: [id]")
    scattered = random.Random(7).sample(range(2**60), 80_000)
    for start in range(4):
        kept.write(scattered[start::4])

    steps = kept.perform("cluster")

    adds = pa.table(DeltaTable(kept.path).get_add_actions(flatten=True))
    spans = sorted(zip(adds["min.id"].to_pylist(), adds["max.id"].to_pylist(), strict=True))
    assert [(one.operation, one.files_before) for one in steps] == [("cluster", 4)]
    assert len(spans) > 2
    assert all(high - low < 2**59 for low, high in spans)
    assert kept.ids() == sorted(scattered)


def test_partition_in_order_is_not_ordered_again_until_it_gets_files(tmp_path: Path) -> None:
    kept = Kept(tmp_path, table="partition_by: [day]\ncluster_by: [id]")
    kept.add(0, 2, day=0)
    kept.add(20, 2, day=1)
    assert len(kept.perform("cluster")) == 2

    nothing = kept.perform("cluster")
    kept.add(40, 1, day=1)
    one = kept.perform("cluster")

    assert nothing == []
    assert [step.files_before for step in one] == [2]


def test_vacuum_deletes_old_files_that_no_version_needs_and_nothing_else(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.add(0, 8)
    kept.perform("compact")
    day = kept.path / "day=2026-01-01"
    old, young = orphan(day, "part-old.parquet", 8), orphan(day, "part-young.parquet", 6.9)
    note = kept.path / "README.txt"
    note.write_text("mine")
    files = sum(1 for _ in kept.path.rglob("*.parquet"))

    steps = kept.perform("vacuum")

    assert not old.exists()
    assert young.exists() and note.exists()
    assert sum(1 for _ in kept.path.rglob("*.parquet")) == files - 1
    assert [(one.files_before, one.files_after) for one in steps] == [(1, 0)]
    assert kept.commit_info()["kind"] == "vacuum"
    assert kept.ids() == list(range(80))


def test_vacuum_keeps_files_as_long_as_the_table_promises(tmp_path: Path) -> None:
    properties = "properties: {delta.deletedFileRetentionDuration: interval 10 days}"
    kept = Kept(tmp_path, table=properties)
    promised = orphan(kept.path, "part-promised.parquet", 8)
    old = orphan(kept.path, "part-old.parquet", 11)

    kept.perform("vacuum")

    assert promised.exists()
    assert not old.exists()


def test_vacuum_refuses_a_retention_below_what_the_table_promises(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    properties = "properties: {delta.deletedFileRetentionDuration: interval 10 days}"
    kept = Kept(tmp_path, "{vacuum: {retain: 7d}}", properties)
    promised = orphan(kept.path, "part-promised.parquet", 8)

    with caplog.at_level(logging.WARNING, "lakefeed"):
        kept.perform("vacuum")

    assert promised.exists()
    assert "a retention of 7d is too short" in caplog.text
    assert "delta.deletedFileRetentionDuration is 10d" in caplog.text
    assert "allow_short_retention: true" in caplog.text


def test_short_retention_that_is_allowed_frees_removed_files_at_once_but_no_file_of_a_running_batch(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path, "{vacuum: {retain: 1s, allow_short_retention: true}}")
    kept.add(0, 8)
    kept.perform("compact")
    in_flight = orphan(kept.path / "day=2026-01-01", "part-batch.parquet", 0.01)
    time.sleep(1.2)

    steps = kept.perform("vacuum")

    assert [one.files_before for one in steps] == [8]
    assert in_flight.exists()
    assert kept.ids() == list(range(80))


def test_clock_that_is_set_forward_makes_no_file_old(tmp_path: Path) -> None:
    jump = 0.0
    clock = SteadyClock(lambda: time.time() + jump)
    kept = Kept(tmp_path, clock=clock)
    in_flight = orphan(kept.path, "part-batch.parquet", 0)
    jump = 30 * 86400

    steps = kept.perform("vacuum")

    assert steps == []
    assert in_flight.exists()
    assert abs(clock.now() - time.time()) < 60


def test_stream_appends_while_its_table_is_compacted_and_the_ledger_holds(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "{compact: {min_files: 2}, max_share: 1}")
    compacted = threading.Event()

    def append() -> None:
        kept.stream(40)
        # There are small files for a step, however long the other thread had to wait for the first.
        assert compacted.wait(120)
        kept.stream(40, first=400)

    stream = threading.Thread(target=append)

    stream.start()
    while stream.is_alive():
        if kept.perform("compact"):
            compacted.set()
    stream.join()

    assert kept.ids() == list(range(800))
    assert DeltaTable(kept.path).transaction_version("shop/clicks/0") == 799
    assert compacted.is_set()
    assert len(kept.files()) < 80


def test_two_compactions_at_once_double_no_row(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "{compact: {min_files: 2}, max_share: 1}")
    kept.add(0, 30)
    other = Kept(tmp_path, "{compact: {min_files: 2}, max_share: 1}")
    both = [threading.Thread(target=each.perform, args=("compact",)) for each in (kept, other)]

    for thread in both:
        thread.start()
    for thread in both:
        thread.join()

    assert kept.ids() == list(range(300))
    assert len(kept.files()) == 1


def test_deletion_gets_through_beside_a_stream_that_appends_all_the_time(tmp_path: Path) -> None:
    kept = Kept(tmp_path, f"{{delete_after: {{column: at, age: {age_at_noon(1)}}}, max_share: 1}}", "")
    kept.add(10_000, 5, day=0)
    stream = threading.Thread(target=kept.stream, args=(60, 300))

    stream.start()
    kept.perform("delete")
    stream.join()

    assert kept.ids() == list(range(600))
    assert DeltaTable(kept.path).transaction_version("shop/clicks/0") == 599


def test_upkeep_takes_no_more_than_its_share_of_time(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "{compact: {min_files: 2}, max_share: 0.25}")
    for day in range(3):
        kept.add(day * 40, 4, day=day)
    began = time.monotonic()

    steps = kept.perform("compact")

    worked = sum(step.seconds for step in steps)
    assert len(steps) == 3
    assert worked / (time.monotonic() - began) < 0.26


def test_scheduler_does_what_is_due_until_the_run_ends(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "{compact: {every: 300ms, min_files: 2}, vacuum: {every: 200ms}, max_share: 1}")
    kept.add(0, 2)
    old = orphan(kept.path, "day=2026-01-01/part-old.parquet", 8)
    began = time.monotonic()

    with running(kept.scheduler, 120):
        wait_until(lambda: not old.exists() and len(kept.files()) == 1, 120, lambda: f"{kept.files()}")
        waited = time.monotonic() - began

    assert waited > 0.3
    assert {step.operation for step in kept.told.steps} == {"compact", "vacuum"}
    assert kept.ids() == list(range(20))


def test_a_table_with_many_deleted_rows_does_not_wait_for_its_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "_WORN_LOOK", 0.05)
    kept = Kept(tmp_path, "{compact: {every: 1h}, max_share: 1}")
    kept.add(0, 2, rows=60)
    allow(kept.path)
    mark_everywhere(kept.path, [0])
    kept.handle.table.refresh()

    with running(kept.scheduler, 10):
        time.sleep(0.5)
        few = list(kept.told.steps)
        mark_everywhere(kept.path, [1, 2])
        with kept.handle.lock:
            kept.handle.table.refresh()
        wait_until(lambda: bool(kept.told.steps), 120, lambda: "no compaction")

    assert few == []
    assert [(step.operation, step.files_before) for step in kept.told.steps] == [("compact", 2)]
    assert kept.ids() == [*range(3, 60), *range(63, 120)]
    # Nor do readers meet the entries that have marked them.
    assert DeltaTable(kept.path).version() in kept.handle.table.log().checkpoints


def test_small_files_that_come_between_two_steps_go_along_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path, "{compact: {target_file_size: 64KB}, max_share: 1}")
    kept.add(0, 4, rows=20_000)
    allow(kept.path)
    mark_everywhere(kept.path, range(2000))
    real = DeltaRewriter.compact

    def compact(self: DeltaRewriter, *given: Any) -> FileChange:
        change = real(self, *given)
        if not kept.told.steps:
            kept.add(80_000, 3)
        return change

    monkeypatch.setattr(DeltaRewriter, "compact", compact)
    kept.handle.table.refresh()

    steps = kept.perform("compact")

    # What the first step has left over as well.
    assert [step.files_before for step in steps] == [2, 2 + 3 + 1]
    assert kept.ids() == [n for n in range(80_030) if n % 20_000 >= 2000 or n >= 80_000]


@pytest.mark.parametrize("reason", ["where", "error"])
def test_deleted_rows_that_compaction_cannot_remove_are_tried_once_in_an_interval(
    reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "_WORN_LOOK", 0.05)
    where = f", where: \"day = '{FIRST_DAY.replace(day=9)}'\"" if reason == "where" else ""
    kept = Kept(tmp_path, f"{{compact: {{every: 1h{where}}}, max_share: 1}}")
    kept.add(0, 2, rows=20)
    allow(kept.path)
    mark_everywhere(kept.path, [0, 1, 2])
    kept.handle.table.refresh()
    if reason == "error":
        for file in kept.files():
            (kept.path / file).unlink()
    looked: list[int] = []
    real = scheduler.due_for_compaction
    monkeypatch.setattr(
        scheduler, "due_for_compaction", lambda *given, **named: looked.append(1) or real(*given, **named)
    )

    with running(kept.scheduler, 10):
        wait_until(lambda: bool(looked), 120, lambda: "nothing looks")
        time.sleep(0.5)

    assert (len(looked), kept.told.steps) == (1, [])


def test_a_log_that_cannot_be_read_keeps_no_other_table_from_its_upkeep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "_WORN_LOOK", 0.05)
    for name in ("broken", "sound"):
        (tmp_path / name).mkdir()
    broken = Kept(tmp_path / "broken", "{compact: {every: 1h}, max_share: 1}")
    broken.add(0, 2, rows=20)
    allow(broken.path)
    broken.handle.table.refresh()
    sound = Kept(tmp_path / "sound", "{compact: {every: 1m}, max_share: 1}")
    sound.add(0, 9)
    shutil.rmtree(broken.path / "_delta_log")
    schedule = sound.schedule
    monkeypatch.setattr(
        schedule, "seconds_until", lambda _, name, every: 0.0 if (name, every) == ("compact", 60) else 99.0
    )
    both = Scheduler([broken.job, sound.job], schedule, sound.told, threading.Event(), None)

    with running(both, 10):
        wait_until(lambda: bool(sound.told.steps), 120, lambda: "no compaction")

    assert {step.operation for step in sound.told.steps} == {"compact"}


def test_vacuum_of_one_table_does_not_keep_others_waiting_and_runs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("slow", "other"):
        (tmp_path / name).mkdir()
    slow = Kept(tmp_path / "slow", "{compact: off, vacuum: {every: 1h}}")
    other = Kept(tmp_path / "other", "{compact: {every: 1h, min_files: 2}, vacuum: off, max_share: 1}")
    other.add(0, 3)
    (tmp_path / "upkeep.json").write_text(
        '{"done": {"events vacuum": 0, "events compact": 0}, "ordered": {}}'
    )
    begun: list[str] = []
    compacted, real = threading.Event(), scheduler.vacuum.plan

    def plan(table: LakeTable, **more: Any) -> Any:
        begun.append(table.path)
        assert compacted.wait(120)
        return real(table, **more)

    monkeypatch.setattr(scheduler.vacuum, "plan", plan)
    schedule = Schedule(tmp_path / "upkeep.json")
    both = Scheduler([slow.job, other.job], schedule, other.told, threading.Event(), None)

    with running(both, 30):
        try:
            wait_until(lambda: bool(other.told.steps), 100, lambda: "no compaction")
        finally:
            compacted.set()

    assert [step.operation for step in other.told.steps] == ["compact"]
    assert begun == [str(slow.path)]


@pytest.mark.parametrize("what", ["step", "rest"])
def test_a_step_and_a_rest_of_one_table_keep_no_other_waiting(what: str, tmp_path: Path) -> None:
    for name in ("slow", "other"):
        (tmp_path / name).mkdir()
    # Of its second step, a table with so small a share would rest for hours.
    slow = Kept(tmp_path / "slow", "{compact: {every: 1h, min_files: 2}, vacuum: off, max_share: 0.00001}")
    other = Kept(tmp_path / "other", "{compact: {every: 1h, min_files: 2}, vacuum: off, max_share: 1}")
    compacted, begun = threading.Event(), threading.Event()

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(slow.job.rewriter, name)

        def compact(self, *step: Any) -> Any:
            if what == "rest":
                begun.set()
            else:
                # As a step of a table with keys, which holds its lock.
                with slow.handle.lock:
                    begun.set()
                    assert compacted.wait(120)
            return slow.job.rewriter.compact(*step)

    for kept in (slow, other):
        for day in range(2):
            kept.add(day * 40, 3, day=day)
    schedule = Schedule(tmp_path / "upkeep.json", lambda: 0.0)
    jobs = [replace(slow.job, rewriter=Slow()), other.job]
    both = Scheduler(jobs, schedule, slow.told, threading.Event(), None)
    schedule.wait("events", "compact", 3600.0, 0.0)

    with running(both, 60):
        assert begun.wait(120)
        try:
            wait_until(lambda: len(other.files()) == 2, 100, lambda: f"{other.files()}")
        finally:
            compacted.set()
        left = len(other.files())
    assert left == 2


def test_stop_ends_a_vacuum_between_two_files_and_the_next_deletes_the_rest(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    orphans = [orphan(kept.path / "day=2026-01-01", f"part-{n}.parquet", 8) for n in range(3)]
    kept.stop.set()

    kept.perform("vacuum")
    left = sum(file.exists() for file in orphans)
    kept.stop.clear()
    kept.perform("vacuum")

    assert left == 2
    assert not any(file.exists() for file in orphans)


def test_stop_ends_a_rewrite_in_the_middle_and_leaves_nothing_behind(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.add(0, 8)
    files = set(kept.path.rglob("*.parquet"))
    kept.stop.set()

    steps = kept.perform("compact")

    assert steps == []
    assert set(kept.path.rglob("*.parquet")) == files
    assert kept.ids() == list(range(80))


def test_partition_beyond_memory_is_not_ordered_but_the_way_out_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path, table="partition_by: [day]\ncluster_by: [id]")
    kept.add(0, 2, rows=1000)
    monkeypatch.setattr("lakefeed.tables.rewrite.memory.memory_available", lambda: 1000)

    with caplog.at_level(logging.WARNING, "lakefeed"):
        kept.perform("cluster")

    assert "day=2026-01-01: ordering" in caplog.text
    assert "Set `upkeep: {engine: spark}`" in caplog.text
    assert len(kept.files()) == 2


def test_log_keys_become_properties_of_the_table(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "{log: {checkpoint_every: 5, retain: 1.5s}}")

    kept.stream(12)

    properties = DeltaTable(kept.path).metadata().configuration
    assert properties["delta.checkpointInterval"] == "5"
    assert properties["delta.logRetentionDuration"] == "interval 2 seconds"
    assert (kept.path / "_delta_log" / f"{9:020}.checkpoint.parquet").exists()


def test_log_that_is_cleaned_keeps_the_positions(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "{log: {checkpoint_every: 5, retain: 1s}}")
    kept.stream(12)
    behind = LakeTable.open("events", str(kept.path), {}, open_store(str(kept.path), {}))
    assert behind is not None
    time.sleep(2.1)
    kept.stream(12, first=120)

    behind.refresh()

    entries = sorted((kept.path / "_delta_log").glob("*.json"))
    assert len(entries) < 20
    assert behind.transactions == {"shop/clicks/0": 239}
    assert kept.ids() == list(range(240))


@pytest.mark.parametrize("point", UPKEEP_POINTS)
def test_kill_at_any_point_of_upkeep_leaves_the_rows_as_they_should_be(point: str, tmp_path: Path) -> None:
    age = age_at_noon(0)
    upkeep = f"{{compact: {{min_files: 2}}, delete_after: {{column: at, age: {age}}}, max_share: 1}}"
    table = "partition_by: [day]\ncluster_by: [id]"
    kept = Kept(tmp_path, upkeep, table)
    for day in range(3):
        kept.add(day * 20, 2, day=day)
    orphans = [orphan(kept.path / "day=2026-01-01", f"part-{n}.parquet", 8) for n in range(3)]
    operation = point.partition("_")[0]

    killed = perform_in_a_process(tmp_path, upkeep, table, operation, kill_at=f"{point}:1")
    left = kept.ids()
    kept.perform(operation)

    assert killed == -signal.SIGKILL
    assert left in ([*range(60)], [*range(20, 60)])
    assert kept.ids() == ([*range(20, 60)] if operation == "delete" else [*range(60)])
    assert len(kept.files()) == {"compact": 3, "cluster": 3, "delete": 4, "vacuum": 6}[operation]
    assert not any(file.exists() for file in orphans) or operation != "vacuum"
    assert DeltaTable(kept.path).transaction_version("shop/clicks/0") == -1


@pytest.mark.parametrize("operation", ["compact", "cluster"])
def test_kill_in_the_middle_of_a_rewrite_leaves_the_rows_as_they_were(operation: str, tmp_path: Path) -> None:
    upkeep, table = "{compact: {min_files: 2}, max_share: 1}", "cluster_by: [id]"
    killed = 0
    # On a busy machine the process may end before its first file has been seen.
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        kept = Kept(folder, upkeep, table)
        for start in range(4):
            kept.write(range(start * 100_000, (start + 1) * 100_000))
        before = set(kept.path.rglob("*.parquet"))

        def writing(path: Path = kept.path, before: set[Path] = before) -> bool:
            return bool(set(path.rglob("*.parquet")) - before)

        killed = perform_in_a_process(folder, upkeep, table, operation, kill_when=writing)
        if killed:
            break
    left = kept.ids()
    kept.perform(operation)

    assert killed == -signal.SIGKILL
    assert left == kept.ids() == list(range(400_000))
    assert len(kept.files()) == 1


def test_tables_that_cannot_be_looked_for_now_are_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("lakefeed.upkeep.scheduler._AGAIN", 0.01)
    looks: list[int] = []

    def look() -> list[UpkeepJob]:
        looks.append(len(looks))
        if len(looks) < 3:
            raise OSError("the store is away")
        return []

    with caplog.at_level(logging.WARNING, "lakefeed"):
        Scheduler(look, Schedule(tmp_path / "upkeep.json"), unwatched, threading.Event()).run()

    assert looks == [0, 1, 2]
    assert caplog.messages == [
        "all tables: the search for work of upkeep failed, the stream continues: the store is away"
    ]


def test_operations_that_are_due_are_done_once_without_rests(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "{once: true, max_share: 0.01, compact: {every: 1h}, vacuum: off}")
    kept.add(0, 8)

    kept.scheduler.run_due()
    kept.add(80, 8)
    kept.scheduler.run_due()

    assert [(step.operation, step.files_before) for step in kept.told.steps] == [("compact", 8)]
    assert kept.ids() == list(range(160))
