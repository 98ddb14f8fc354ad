from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefeed.engine.upkeep import SteadyClock
from support.upkeep import FIRST_DAY, Kept, orphan


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
    assert {"kind": "compact", "by": "upkeep", "pipeline": "shop"}.items() <= kept.account().items()


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
    kept = Kept(tmp_path, "{compact: {every: 100ms}}")
    kept.add(0, 2)

    at_once = kept.perform("compact")
    time.sleep(0.7)
    later = kept.perform("compact")

    assert at_once == []
    assert [one.files_before for one in later] == [2]


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
    assert "events: compact of upkeep failed, the stream goes on" in caplog.text
    assert "upkeep.compact.where 'id > 5'" in caplog.text


def test_growing_partition_is_gathered_by_tiers_so_that_large_files_are_not_rewritten(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "{compact: {min_files: 4, target_file_size: 64KB}}")
    kept.add(0, 1, rows=20_000)
    large = set(kept.files())
    kept.add(20_000, 4)

    steps = kept.perform("compact")

    assert [one.files_before for one in steps] == [4]
    assert large < set(kept.files())


def test_rows_older_than_their_age_are_deleted_and_no_others(tmp_path: Path) -> None:
    age = (datetime.now(UTC).date() - FIRST_DAY).days - 2
    kept = Kept(tmp_path, f"{{delete_after: {{column: at, age: {age}d}}}}")
    for day in range(5):
        kept.add(day * 10, 1, day=day)

    steps = kept.perform("delete")

    assert kept.ids() == list(range(30, 50))
    assert [(one.files_before, one.files_after) for one in steps] == [(1, 0)] * 3
    assert kept.account()["kind"] == "delete"
    assert kept.account()["by"] == "upkeep"
    assert kept.perform("delete") == []


def test_age_may_be_told_by_the_column_that_lays_out_the_table(tmp_path: Path) -> None:
    age = (datetime.now(UTC).date() - FIRST_DAY).days - 2
    kept = Kept(tmp_path, f"{{delete_after: {{column: day, age: {age}d}}}}")
    for day in range(5):
        kept.add(day * 10, 1, day=day)

    kept.perform("delete")

    assert kept.ids() == list(range(20, 50))


def test_cluster_orders_rows_so_that_files_hold_few_values(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "{compact: {target_file_size: 100KB}}", "cluster_by: [id]")
    for first in range(4):
        # Every file has ids from everywhere.
        from support.upkeep import _rows

        rows = _rows(0, 80_000, FIRST_DAY)
        from deltalake import write_deltalake

        write_deltalake(kept.path, rows.take(pa.array(range(first, 80_000, 4))), mode="append")

    steps = kept.perform("cluster")

    adds = pa.table(DeltaTable(kept.path).get_add_actions(flatten=True))
    spans = sorted(zip(adds["min.id"].to_pylist(), adds["max.id"].to_pylist(), strict=True))
    assert [one.operation for one in steps] == ["cluster"]
    assert len(spans) > 1
    assert all(before[1] < after[0] for before, after in zip(spans, spans[1:], strict=False))
    assert kept.ids() == list(range(80_000))


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
    assert kept.account()["kind"] == "vacuum"
    assert kept.ids() == list(range(80))


def test_vacuum_keeps_files_as_long_as_the_table_promises(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    properties = "properties: {delta.deletedFileRetentionDuration: interval 10 days}"
    left_out = Kept(tmp_path / "a", table=properties) if (tmp_path / "a").mkdir() is None else None
    assert left_out is not None
    kept_eight = orphan(left_out.path, "part-eight.parquet", 8)
    (tmp_path / "b").mkdir()
    shorter = Kept(tmp_path / "b", "{vacuum: {retain: 7d}}", properties)

    left_out.perform("vacuum")
    with caplog.at_level(logging.WARNING, "lakefeed"):
        shorter.perform("vacuum")

    assert kept_eight.exists()
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


def test_stream_commits_while_its_table_is_compacted(tmp_path: Path) -> None:
    from unit.tables.test_commit import rows as append_of

    assert append_of is not None
