"""Rewriting beside other writers: every row stays there once, whatever lands in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from lakefeed.errors import Conflict
from lakefeed.files.parquet import TableWriter
from lakefeed.tables.data_files import data_files
from lakefeed.tables.log.entry import DamagedEntry
from lakefeed.tables.log.write import write_entry
from lakefeed.tables.operations.operation import operation_info
from lakefeed.tables.rewrite import compact as compaction
from lakefeed.tables.table import LakeTable
from lakefeed.upkeep.file_writer import file_writer
from support.delta_tables import ids, open_any, write_table

INFO = operation_info("compact", by="test")


class Interrupted(Exception):
    """Somebody pulled the plug."""


def beside(happens: Callable[[], object]) -> Callable[[LakeTable, str, int], TableWriter]:
    """A writer that lets something happen when its files are written and nothing is committed yet."""

    def open_writer(table: LakeTable, codec: str, target: int) -> TableWriter:
        writer = file_writer(table, codec, target)
        close = writer.close

        def closed() -> object:
            made = close()
            happens()
            return made

        writer.close = closed  # type: ignore[method-assign,assignment]
        return writer

    return open_writer


@pytest.fixture(params=["written here", "by delta-rs"])
def table(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> LakeTable:
    if request.param == "by delta-rs":
        monkeypatch.setattr("lakefeed.tables.table.writes_entries", lambda delta, store: False)
    return write_table(tmp_path, [{"id": [number]} for number in range(4)], positions="shop/clicks/0")


def files_in_store(path: Path) -> set[str]:
    return {file.name for file in path.glob("*.parquet")}


CONFLICTS: dict[str, Callable[[DeltaTable], object]] = {
    "a delete": lambda delta: delta.delete("id = 2"),
    "delta-rs's optimize": lambda delta: delta.optimize.compact(),
    "a restore": lambda delta: delta.restore(2),
    "an overwrite": lambda delta: write_deltalake(delta, pa.table({"id": [7]}), mode="overwrite"),
    "an update": lambda delta: delta.update(updates={"id": "id + 100"}, predicate="id = 1"),
    "a new column": lambda delta: delta.alter.add_columns([Field("late", PrimitiveType("string"))]),
}


@pytest.mark.parametrize("kind", CONFLICTS)
def test_rewrite_gives_way_to_whoever_changes_its_files_and_leaves_nothing_behind(
    kind: str, table: LakeTable, tmp_path: Path
) -> None:
    after: list[list[int]] = []

    def happens() -> None:
        CONFLICTS[kind](DeltaTable(tmp_path))
        after.append(ids(tmp_path))

    with pytest.raises(
        Conflict, match=r"while files were rewritten; nothing was committed\.\nRun it again\."
    ):
        compaction.run(table, compaction.plan(table), INFO, beside(happens))

    assert [ids(tmp_path)] == after
    named = {uri.rpartition("/")[2] for version in range(DeltaTable(tmp_path).version() + 1)
             for uri in DeltaTable(tmp_path, version=version).file_uris()}  # fmt: skip
    assert files_in_store(tmp_path) <= named


def test_appends_that_land_meanwhile_are_no_conflict(table: LakeTable, tmp_path: Path) -> None:
    def happens() -> None:
        for number in (100, 101, 102):
            write_deltalake(tmp_path, pa.table({"id": [number]}), mode="append")

    report = compaction.run(table, compaction.plan(table), INFO, beside(happens))

    assert ids(tmp_path) == [0, 1, 2, 3, 100, 101, 102]
    assert (report.versions, report.after.files) == ((7,), 4)
    assert open_any(tmp_path).transactions == {"shop/clicks/0": 3}


def test_commit_whose_answer_is_lost_is_found_and_not_repeated(
    table: LakeTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def losing(commit: Callable[..., object]) -> Callable[..., None]:
        def lose_the_answer(*args: Any, **kwargs: Any) -> None:
            calls.append(1)
            commit(*args, **kwargs)
            raise OSError("connection reset by peer")

        return lose_the_answer

    by_delta = DeltaTable.create_write_transaction
    monkeypatch.setattr(DeltaTable, "create_write_transaction", losing(by_delta))
    monkeypatch.setattr("lakefeed.tables.table.write_entry", losing(write_entry))

    report = compaction.run(table, compaction.plan(table), INFO, file_writer)

    assert (report.versions, len(calls)) == ((4,), 1)
    assert ids(tmp_path) == [0, 1, 2, 3]


def test_failure_before_the_commit_leaves_table_and_store_as_they_were(
    table: LakeTable, tmp_path: Path
) -> None:
    before = files_in_store(tmp_path)

    def happens() -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        compaction.run(table, compaction.plan(table), INFO, beside(happens))

    assert files_in_store(tmp_path) == before
    assert (DeltaTable(tmp_path).version(), ids(tmp_path)) == (3, [0, 1, 2, 3])


def test_kill_between_partitions_leaves_a_table_that_the_next_run_finishes(tmp_path: Path) -> None:
    batches = [{"id": [n, n + 10, n + 20], "day": ["a", "b", "c"]} for n in range(3)]
    table = write_table(tmp_path, batches, partition_by=["day"])
    opened: list[TableWriter] = []

    def killed(table: LakeTable, codec: str, target: int) -> TableWriter:
        if len(opened) == 2:
            raise Interrupted
        opened.append(file_writer(table, codec, target))
        return opened[-1]

    with pytest.raises(Interrupted):
        compaction.run(table, compaction.plan(table), INFO, killed)
    left = compaction.plan(open_any(tmp_path))

    assert [dict(step.partition) for step in left.steps] == [{"day": "c"}]
    assert len(data_files(open_any(tmp_path))) == 5
    assert ids(tmp_path) == sorted(n + more for n in range(3) for more in (0, 10, 20))


def test_old_files_without_a_later_column_are_filled_with_null(tmp_path: Path) -> None:
    first = pa.table({"id": [1], "s": [{"a": 1}]})
    second = pa.table({"id": [2], "s": [{"a": 2, "b": "x"}], "late": ["y"]})
    for rows in (first, second):
        write_deltalake(tmp_path, rows, mode="append", schema_mode="merge")
    table = open_any(tmp_path)

    compaction.run(table, compaction.plan(table), INFO, file_writer)

    assert DeltaTable(tmp_path).to_pyarrow_table().sort_by("id").to_pylist() == [
        {"id": 1, "s": {"a": 1, "b": None}, "late": None},
        {"id": 2, "s": {"a": 2, "b": "x"}, "late": "y"},
    ]


def test_rows_are_read_file_by_file_not_all_at_once(table: LakeTable) -> None:
    opened: list[int] = []
    rows: Iterator[pa.RecordBatch] = compaction.read_rows(table, data_files(table))

    for batch in rows:
        opened.append(batch.num_rows)

    assert opened == [1, 1, 1, 1]


def test_an_error_after_the_commit_leaves_the_files_that_the_table_now_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_table(tmp_path, [{"id": [number]} for number in range(4)])
    behind = tmp_path / "_delta_log" / f"{table.version + 2:020d}.json"
    put = LakeTable.put

    def put_with_damage_behind(self: LakeTable, actions: Any) -> FileExistsError | None:
        result = put(self, actions)
        behind.write_text("half an ent")
        return result

    monkeypatch.setattr(LakeTable, "put", put_with_damage_behind)
    with pytest.raises(DamagedEntry, match=f"version {table.version + 2} of the table's log is damaged"):
        compaction.run(table, compaction.plan(table), INFO, file_writer)

    behind.unlink()
    assert DeltaTable(tmp_path).version() == table.version
    assert len(DeltaTable(tmp_path).file_uris()) == 1
    assert ids(tmp_path) == [0, 1, 2, 3]
