"""Restore: an old version as a new one, and positions that nobody loses unawares."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed.errors import Conflict, TableError, UsageError
from lakefeed.tables.operations import restore
from lakefeed.tables.operations.operation import operation_info
from support.delta_tables import ids, open_any, write_table

DELETE = operation_info("delete", by="command", reason="erasure")
RESTORE = operation_info("restore", by="command")


def test_restore_brings_back_an_old_version_as_a_new_one(tmp_path: Path) -> None:
    table = write_table(tmp_path, [{"id": [1, 2]}, {"id": [3]}])
    DeltaTable(tmp_path).delete("id = 1")

    plan = restore.plan(table, 0)
    report = restore.run(table, plan, RESTORE)

    assert (plan.version, plan.to_version, plan.moved) == (2, 0, {})
    assert (plan.brought_back.files, plan.taken_away.files, plan.table.rows) == (1, 2, 2)
    assert (report.after.rows, report.versions) == (2, (3,))
    assert ids(tmp_path) == [1, 2]


def test_restore_to_a_moment_takes_the_version_of_that_moment(tmp_path: Path) -> None:
    write_table(tmp_path, [{"id": [1]}])
    time.sleep(0.05)
    moment = dt.datetime.now(dt.UTC)
    time.sleep(0.05)
    write_deltalake(tmp_path, pa.table({"id": [2]}), mode="append")

    plan = restore.plan(open_any(tmp_path), moment)

    assert plan.to_version == 0


def test_restore_that_would_part_rows_from_positions_is_refused_and_points_to_rewind(tmp_path: Path) -> None:
    table = write_table(tmp_path, [{"id": [number]} for number in range(3)], positions="shop/clicks/0")

    plan = restore.plan(table, 1)
    with pytest.raises(TableError) as refused:
        restore.refuse_moved(table, plan)

    assert plan.moved == {"shop/clicks/0": (1, 2)}
    told = (
        "version 1 had read up to offset 1 of 'shop/clicks/0', and the newest version has read up to offset 2"
    )
    assert f"{told}, as the log counts them." in str(refused.value)
    assert "the events in between would be lost" in str(refused.value)
    assert "lakefeed rewind FILE --table NAME --to-version 1" in str(refused.value)
    with pytest.raises(TableError, match=r"lakefeed rewind shop\.yaml --table"):
        restore.refuse_moved(table, plan, "shop.yaml")
    assert len(str(refused.value).splitlines()) == 3


def test_restore_takes_no_rows_away_that_came_after_its_plan(tmp_path: Path) -> None:
    table = write_table(tmp_path, [{"id": [1]}, {"id": [2]}])
    plan = restore.plan(table, 0)
    write_deltalake(tmp_path, pa.table({"id": [3]}), mode="append")

    with pytest.raises(Conflict, match="has changed the table since version 1; nothing was restored"):
        restore.run(table, plan, RESTORE)

    assert ids(tmp_path) == [1, 2, 3]
    restore.run(table, restore.plan(table, 0), RESTORE)
    assert ids(tmp_path) == [1]


def test_positions_stay_in_the_log_after_a_restore(tmp_path: Path) -> None:
    table = write_table(tmp_path, [{"id": [number]} for number in range(3)], positions="shop/clicks/0")

    restore.run(table, restore.plan(table, 1), RESTORE)

    assert ids(tmp_path) == [0, 1]
    assert open_any(tmp_path).transactions == {"shop/clicks/0": 2}


def test_restore_to_files_that_are_gone_says_so_and_changes_nothing(tmp_path: Path) -> None:
    table = write_table(tmp_path, [{"id": [1]}])
    write_deltalake(tmp_path, pa.table({"id": [2]}), mode="overwrite")
    old = DeltaTable(tmp_path, version=0).file_uris()[0]
    Path(old).unlink()
    table.refresh()

    with pytest.raises(TableError, match=r"1 of the files of version 0 are gone.*a vacuum has deleted them"):
        restore.plan(table, 0)

    assert table.version == 1


def test_version_that_never_was_is_told_with_those_that_are(tmp_path: Path) -> None:
    table = write_table(tmp_path, [{"id": [1]}, {"id": [2]}])

    with pytest.raises(UsageError, match=r"cannot be read as of 9; its log holds versions 0 to 1\."):
        restore.plan(table, 9)


def test_restore_gives_way_to_a_commit_that_came_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_table(tmp_path, [{"id": [1]}, {"id": [2]}])
    plan = restore.plan(table, 0)
    run = DeltaTable.restore

    def slowly(self: DeltaTable, *args: object, **kwargs: object) -> object:
        write_deltalake(tmp_path, pa.table({"id": [3]}), mode="append")
        return run(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaTable, "restore", slowly)

    with pytest.raises(Conflict, match="another writer changed the table"):
        restore.run(table, plan, RESTORE)

    assert ids(tmp_path) == [1, 2, 3]


def test_moment_before_the_table_was_there_is_no_version_to_restore(tmp_path: Path) -> None:
    table = write_table(tmp_path, [{"id": [1]}, {"id": [2]}])

    with pytest.raises(UsageError, match=r"there was no version at .*: the oldest version in the log is 0"):
        restore.plan(table, dt.datetime.now(dt.UTC) - dt.timedelta(hours=1))
