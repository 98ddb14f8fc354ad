"""Vacuum: only what nobody needs goes, and nothing that is not the table's."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed.errors import TableError
from lakefeed.tables.operations import vacuum
from lakefeed.tables.operations.operation import operation_info
from lakefeed.tables.retention import DAY, interval_seconds
from lakefeed.tables.rewrite import compact as compaction
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed import KeyRules
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
    table.mode = UpsertMode("shop", rules, table.target, CopyOnWrite(), tombstones * DAY)
    for key in range(25):
        # So many files of tombstones become one, which is all that the newest version names.
        table.apply({"id": key, "at": 1, "op": "delete"})

    plan = vacuum.plan(table.open(), now=time.time() + days * DAY)

    assert any("/tombstones/" in path for path in deleted(plan)) is not kept


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
