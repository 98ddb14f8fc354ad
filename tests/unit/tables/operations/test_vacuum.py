"""Vacuum: only what nobody needs goes, and nothing that is not the table's."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed.errors import TableError
from lakefeed.handles.retype import retyped
from lakefeed.tables.log import log as log_module
from lakefeed.tables.log.checkpoint import Checkpoint
from lakefeed.tables.operations import vacuum
from lakefeed.tables.operations.operation import operation_info
from lakefeed.tables.retention import DAY, interval_seconds
from lakefeed.tables.rewrite import compact as compaction
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed import tombstones as tombstones_module
from lakefeed.tables.write.keyed.copy_on_write import CopyOnWrite
from lakefeed.tables.write.upsert import UpsertMode
from lakefeed.upkeep.file_writer import file_writer
from support.delta_tables import age_log, ids, make_old, open_any, write_table
from support.keyed_table import KeyedTable

INFO = operation_info("vacuum", by="command", reason="disk is full")


def overwritten(path: Path, days: float = 30) -> LakeTable:
    """A table whose first three files were replaced days ago."""
    table = write_table(path, [{"id": [number]} for number in range(3)])
    compaction.run(table, compaction.plan(table), operation_info("compact", by="upkeep"), file_writer)
    age_log(path, days)
    return open_any(path)


def deleted(plan: vacuum.VacuumPlan) -> set[str]:
    return {file.path for file in plan.files}


def test_files_unneeded_for_longer_than_the_retention_go_and_the_rows_stay(tmp_path: Path) -> None:
    table = overwritten(tmp_path)
    (live,) = (file for file in DeltaTable(tmp_path).file_uris())

    plan = vacuum.plan(table)
    report = vacuum.run(table, plan, INFO)

    assert plan.deleted.files == 3
    assert [file.name for file in tmp_path.glob("*.parquet")] == [Path(live).name]
    assert (report.before.files, report.after.files) == (4, 1)
    assert ids(tmp_path) == [0, 1, 2]
    told = DeltaTable(tmp_path).history(1)[0]["lakefeed"]
    assert '"kind":"vacuum"' in told and '"reason":"disk is full"' in told and '"files":3' in told
    assert vacuum.plan(open_any(tmp_path)).files == ()
    assert vacuum.run(table, vacuum.plan(table), INFO).versions == ()


@pytest.mark.parametrize(("tombstones", "days", "kept"), [(30, 10, True), (30, 31, False), (2, 10, False)])
def test_tombstones_that_an_older_version_names_stay_while_they_count(
    tombstones: int, days: int, kept: bool, tmp_path: Path
) -> None:
    rules = KeyRules(("id",), ("at",))
    table = KeyedTable(tmp_path, pa.schema([("id", pa.int64()), ("at", pa.int64())]), rules)
    table.mode = UpsertMode("shop", rules, table.target, CopyOnWrite(), tombstones * DAY, retyped)
    for key in range(25):
        # So many files of tombstones become one, which is all that the newest version names.
        table.apply({"id": key, "at": 1, "op": "delete"})

    plan = vacuum.plan(table.open(), now=time.time() + days * DAY)

    assert any("/tombstones/" in path for path in deleted(plan)) is not kept


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many entries and checkpoints of a log, and footers of tombstones, are read."""
    count: Counter[str] = Counter()

    def counting(kind: str, module: Any, name: str) -> None:
        real = getattr(module, name)

        def counted(*given: Any) -> Any:
            count[kind] += 1
            return real(*given)

        monkeypatch.setattr(module, name, counted)

    counting("entries", log_module, "read_entry")
    counting("entries", vacuum, "read_entry")
    counting("checkpoints", Checkpoint, "actions")
    counting("tombstones", tombstones_module, "_told")
    return count


@pytest.mark.parametrize("commits", [15, 45])
def test_vacuum_reads_as_much_of_the_log_of_an_old_table_as_of_a_young_one(
    commits: int, tmp_path: Path, reads: Counter[str]
) -> None:
    properties = {"delta.checkpointInterval": "10"}
    table = write_table(tmp_path, [{"id": [number]} for number in range(commits)], properties=properties)
    orphan = tmp_path / "old.parquet"
    orphan.write_bytes(b"x")
    os.utime(orphan, (1, 1))
    *older, _ = sorted((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    for checkpoint in older:
        os.utime(checkpoint, (time.time() - 8 * DAY,) * 2)
    table = open_any(tmp_path)
    reads.clear()

    plan = vacuum.plan(table)
    planning = Counter(reads)
    vacuum.run(table, plan, INFO)

    assert not orphan.exists()
    assert planning == {"entries": 5, "checkpoints": 2}
    assert reads - planning == {}


@pytest.mark.parametrize("deletions", [30, 70])
def test_vacuum_opens_as_many_tombstone_files_however_many_there_are(
    deletions: int, tmp_path: Path, reads: Counter[str]
) -> None:
    rules = KeyRules(("id",), ("at",))
    keyed = KeyedTable(tmp_path, pa.schema([("id", pa.int64()), ("at", pa.int64())]), rules)
    keyed.mode = UpsertMode("shop", rules, keyed.target, CopyOnWrite(), 2 * DAY, retyped)
    for key in range(deletions):
        keyed.apply({"id": key, "at": 1, "op": "delete"})
    table = keyed.open()
    reads.clear()

    plan = vacuum.plan(table, now=time.time() + 10 * DAY)

    assert len(plan.files) >= deletions - 30
    assert reads["tombstones"] == 2


def test_older_checkpoints_replace_entries_for_a_retention_longer_than_that_of_the_table(
    tmp_path: Path, reads: Counter[str]
) -> None:
    own = "delta.deletedFileRetentionDuration"
    table = write_table(
        tmp_path, [{"id": [number]} for number in range(3)], properties={own: "interval 1 days"}
    )
    removed = {file.name for file in tmp_path.glob("*.parquet")}
    compaction.run(table, compaction.plan(table), operation_info("compact", by="upkeep"), file_writer)
    table.delta.create_checkpoint()
    set_retention(tmp_path, "interval 1 millisecond")
    DeltaTable(tmp_path).create_checkpoint()
    set_retention(tmp_path, "interval 1 days")
    DeltaTable(tmp_path).create_checkpoint()
    began = time.time()
    for name in removed:
        os.utime(tmp_path / name, (1, 1))
    for version in (4, 5):
        newer = tmp_path / "_delta_log" / f"{version:020d}.checkpoint.parquet"
        os.utime(newer, (began + 0.8 * DAY, began + 0.8 * DAY))
    table = open_any(tmp_path)
    log = table.log()
    reads.clear()

    within = vacuum.plan(table, retain=2.5 * DAY, allow_short=True, now=began + 2 * DAY)
    read = reads["entries"]
    beyond = vacuum.plan(table, retain=1.5 * DAY, allow_short=True, now=began + 2 * DAY)

    assert not log.removed(5) and len(log.removed(3)) == 3
    # The checkpoint of version 4 has forgotten what its own entry may have removed.
    assert (deleted(within), read) == (set(), 1)
    assert deleted(beyond) == removed


def test_retention_that_was_raised_protects_files_that_the_checkpoint_has_forgotten(tmp_path: Path) -> None:
    own = "delta.deletedFileRetentionDuration"
    table = write_table(
        tmp_path, [{"id": [number]} for number in range(3)], properties={own: "interval 1 millisecond"}
    )
    for file in tmp_path.glob("*.parquet"):
        os.utime(file, (1, 1))
    compaction.run(table, compaction.plan(table), operation_info("compact", by="upkeep"), file_writer)
    time.sleep(0.01)
    table.delta.create_checkpoint()
    set_retention(tmp_path, "interval 30 days")
    DeltaTable(tmp_path).create_checkpoint()

    plan = vacuum.plan(open_any(tmp_path))

    assert plan.files == ()
    assert DeltaTable(tmp_path, version=2).to_pyarrow_table().num_rows == 3


def test_retention_that_was_lowered_for_a_time_takes_no_file_that_was_removed_before(tmp_path: Path) -> None:
    own = "delta.deletedFileRetentionDuration"
    table = write_table(tmp_path, [{"id": [n]} for n in range(3)], properties={own: "interval 7 days"})
    DeltaTable(tmp_path).create_checkpoint()
    removed = {file.name for file in tmp_path.glob("*.parquet")}
    compaction.run(table, compaction.plan(table), operation_info("compact", by="upkeep"), file_writer)
    set_retention(tmp_path, "interval 1 millisecond")
    time.sleep(0.01)
    DeltaTable(tmp_path).create_checkpoint()
    set_retention(tmp_path, "interval 7 days")
    DeltaTable(tmp_path).create_checkpoint()
    for name in removed:
        os.utime(tmp_path / name, (1, 1))
    now = time.time()
    oldest = min((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    os.utime(oldest, (now - 20 * DAY,) * 2)

    assert deleted(vacuum.plan(open_any(tmp_path), now=now + 3 * DAY)) == set()
    assert deleted(vacuum.plan(open_any(tmp_path), now=now + 8 * DAY)) == removed


def set_retention(path: Path, interval: str) -> None:
    DeltaTable(path).alter.set_table_properties({"delta.deletedFileRetentionDuration": interval})


def test_files_removed_within_the_retention_stay_for_time_travel(tmp_path: Path) -> None:
    table = overwritten(tmp_path, days=6)

    plan = vacuum.plan(table)

    assert plan.files == ()
    assert plan.young.files == 0
    assert DeltaTable(tmp_path, version=2).to_pyarrow_table().num_rows == 3


@pytest.mark.parametrize("checkpoint", [False, True])
def test_file_written_long_ago_and_removed_yesterday_stays(tmp_path: Path, checkpoint: bool) -> None:
    table = write_table(tmp_path, [{"id": [number]} for number in range(3)])
    age_log(tmp_path, 90)
    table = open_any(tmp_path)
    compaction.run(table, compaction.plan(table), operation_info("compact", by="upkeep"), file_writer)
    if checkpoint:
        table.delta.create_checkpoint()
        for entry in (tmp_path / "_delta_log").glob("*.json"):
            entry.unlink()
    table = open_any(tmp_path)

    assert vacuum.plan(table).files == ()


def test_orphan_of_a_running_batch_stays_and_an_old_one_goes(tmp_path: Path) -> None:
    table = write_table(tmp_path, [{"id": [1]}])
    (tmp_path / "young.parquet").write_bytes(b"x")
    (tmp_path / "old.parquet").write_bytes(b"x")
    os.utime(tmp_path / "old.parquet", (1, 1))

    default = vacuum.plan(table)
    shortest = vacuum.plan(table, retain=1, allow_short=True)

    assert deleted(default) == {"old.parquet"}
    assert default.young.files == 1
    assert deleted(shortest) == {"old.parquet"}


def test_nothing_that_is_not_the_tables_is_touched(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "other.parquet").write_bytes(b"x")
    path = tmp_path / "table"
    write_table(path, [{"id": [1], "_p": ["a"]}], partition_by=["_p"])
    write_deltalake(path / "nested", pa.table({"id": [7]}))
    for name in ("notes.txt", "_p=a/orphan.parquet", "_hidden/x.parquet", ".x.parquet", "sub/README"):
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(b"x")
    make_old(tmp_path, 100)
    (path / "link").symlink_to(outside)
    (path / "link.parquet").symlink_to(outside / "other.parquet")
    table = open_any(path)

    plan = vacuum.plan(table)
    vacuum.run(table, plan, INFO)

    assert deleted(plan) == {"_p=a/orphan.parquet"}
    assert set(plan.left_alone) == {
        "nested", "link", "link.parquet", "notes.txt", "_hidden/x.parquet", ".x.parquet", "sub/README",
    }  # fmt: skip
    for name in ("notes.txt", "_hidden/x.parquet", ".x.parquet", "sub/README", "link/other.parquet"):
        assert (path / name).exists()
    assert ids(path / "nested") == [7]
    assert ids(path) == [1]


def test_too_short_a_retention_is_refused_in_words(tmp_path: Path) -> None:
    table = write_table(
        tmp_path, [{"id": [1]}], properties={"delta.deletedFileRetentionDuration": "interval 30 days"}
    )

    with pytest.raises(TableError) as below_own:
        vacuum.plan(table, retain=10 * DAY)
    allowed = vacuum.plan(table, retain=10 * DAY, allow_short=True)
    table.delta.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 1 hours"})
    with pytest.raises(TableError) as below_minimum:
        vacuum.plan(table, retain=DAY)

    assert (
        "a retention of 10d is too short; the table's own delta.deletedFileRetentionDuration is 30d"
        in str(below_own.value)
    )
    assert str(below_own.value).endswith("If nobody reads old versions: --allow-short-retention.")
    assert allowed.retain == 10 * DAY
    assert "below 7d readers and time travel are at risk" in str(below_minimum.value)
    assert vacuum.plan(table).retain == 7 * DAY


def test_file_that_a_restore_has_brought_back_since_the_plan_stays(tmp_path: Path) -> None:
    table = overwritten(tmp_path)
    plan = vacuum.plan(table)
    DeltaTable(tmp_path).restore(2)

    vacuum.run(table, plan, INFO)

    assert ids(tmp_path) == [0, 1, 2]


def test_files_of_the_change_data_feed_are_kept_as_long_as_others(tmp_path: Path) -> None:
    write_table(tmp_path, [{"id": [1, 2, 3]}], properties={"delta.enableChangeDataFeed": "true"})
    DeltaTable(tmp_path).delete("id = 2")
    fed = {file.relative_to(tmp_path).as_posix() for file in (tmp_path / "_change_data").glob("*.parquet")}

    young = vacuum.plan(open_any(tmp_path))
    age_log(tmp_path, 30)
    old = vacuum.plan(open_any(tmp_path))

    assert len(fed) == 1
    assert young.files == ()
    assert fed < deleted(old)


@pytest.mark.parametrize("scheme", ["file://", "file:"])
def test_log_that_names_files_by_absolute_paths_is_left_alone(tmp_path: Path, scheme: str) -> None:
    write_table(tmp_path, [{"id": [1]}])
    entry = tmp_path / "_delta_log" / f"{0:020d}.json"
    entry.write_text(entry.read_text().replace('"path":"', f'"path":"{scheme}{tmp_path}/'))

    with pytest.raises(TableError, match="its log names files by absolute paths"):
        vacuum.plan(open_any(tmp_path))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("interval 1 week", 7 * DAY), ("interval 168 hours", 7 * DAY), ("INTERVAL 1 days 12 hours", 1.5 * DAY)],
)
def test_intervals_are_read_as_delta_writes_them(text: str, seconds: float) -> None:
    assert interval_seconds(text) == seconds


@pytest.mark.parametrize("text", ["banana", "interval", "interval 1 month", "7d"])
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected an interval such as 'interval 7 days'"):
        interval_seconds(text)
