"""Deletion: exactly the rows that are meant."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed.errors import TableError, UsageError
from lakefeed.tables.operations import delete as deletion
from lakefeed.tables.operations import restore
from lakefeed.tables.operations.operation import operation_info
from support.delta_tables import ids, open_any, write_table

DELETE = operation_info("delete", by="command", reason="erasure")


def test_deletion_takes_the_rows_that_meet_the_condition_and_no_others(tmp_path: Path) -> None:
    table = write_table(
        tmp_path, [{"id": [1, 2, 3], "v": [1, None, 5]}, {"id": [4], "v": [0]}], positions="shop/clicks/0"
    )

    plan = deletion.plan(table, "v > 2")
    report = deletion.run(table, plan, DELETE)

    assert (plan.rows, plan.touched.files, plan.table.rows) == (1, 1, 4)
    assert (report.before.rows, report.after.rows, report.versions) == (4, 3, (2,))
    assert ids(tmp_path) == [1, 2, 4]
    assert open_any(tmp_path).transactions == {"shop/clicks/0": 1}
    assert '"where":"v > 2"' in DeltaTable(tmp_path).history(1)[0]["lakefeed"]


def test_deletion_of_nothing_makes_no_version(tmp_path: Path) -> None:
    table = write_table(tmp_path, [{"id": [1]}])

    report = deletion.run(table, deletion.plan(table, "id = 9"), DELETE)

    assert report.versions == ()
    assert table.version == 0


def test_deletion_sees_rows_that_were_appended_after_its_plan(tmp_path: Path) -> None:
    table = write_table(tmp_path, [{"id": [1, 2]}])
    plan = deletion.plan(table, "id >= 2")
    write_deltalake(tmp_path, pa.table({"id": [3]}), mode="append")

    deletion.run(table, plan, DELETE)

    assert ids(tmp_path) == [1]


@pytest.mark.parametrize("where", ["id ===", "nobody = 1", "id > 'x' +"])
def test_condition_that_cannot_be_read_is_told_with_an_example(tmp_path: Path, where: str) -> None:
    table = write_table(tmp_path, [{"id": [1]}])

    with pytest.raises(UsageError) as refused:
        deletion.plan(table, where)

    assert f"--where {where!r} cannot be read" in str(refused.value)
    assert " error: " not in str(refused.value)
    assert len(str(refused.value).splitlines()) == 2


def test_rows_of_an_append_only_table_are_not_taken_away(tmp_path: Path) -> None:
    table = write_table(tmp_path, [{"id": [1]}, {"id": [2]}], properties={"delta.appendOnly": "true"})

    for attempt in (lambda: deletion.plan(table, "id = 1"), lambda: restore.plan(table, 0)):
        with pytest.raises(TableError, match=r"delta.appendOnly is true.*takes rows away"):
            attempt()
