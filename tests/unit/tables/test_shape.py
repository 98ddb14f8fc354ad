"""Tables that others alter, replace or clean while they are fed: noticed before the next commit."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field

from lakefeed.errors import BatchFailed, Fenced, LakefeedError, TableError
from lakefeed.files import WrittenFile
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change
from support.fed_table import entry_file, make_cities, open_table


@pytest.fixture(params=["an entry written here", "delta-rs"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways in which a commit is made; without the other one."""
    if request.param == "delta-rs":
        monkeypatch.setattr("lakefeed.tables.table.writes_entries", lambda delta, store: False)
    return str(request.param)


def event(path: Path, offset: int, shape: Shape | None = None) -> Change:
    """The change that adds the event at an offset."""
    name = f"{offset}.parquet"
    (path / name).write_bytes(b"x")
    file = WrittenFile(name, 1, {"city": None}, '{"numRecords":1}', 1)
    return Change([file], {"shop/clicks/0": offset}, {"shop/clicks/0": offset - 1}, {"rows": 1}, shape)


def reshape(path: Path, **change: Any) -> None:
    """Commit the table's metadata with something changed, as another writer would."""
    actions = [json.loads(line) for line in entry_file(path, 0).read_text().splitlines()]
    (metadata,) = (action["metaData"] for action in actions if "metaData" in action)
    version = DeltaTable(path).version() + 1
    entry_file(path, version).write_text(json.dumps({"metaData": {**metadata, **change}}))


RESHAPED: dict[str, tuple[Callable[[Path], object], str]] = {
    "partitioned otherwise": (lambda path: reshape(path, partitionColumns=[]), "partitioned by nothing now"),
    "more columns": (
        lambda path: DeltaTable(path).alter.add_columns([Field("more", "long")]),
        "its columns have changed",
    ),
    "another id": (lambda path: reshape(path, id="other"), "it is another table"),
    "a property": (
        lambda path: reshape(path, configuration={"delta.dataSkippingNumIndexedCols": "0"}),
        "its property delta.dataSkippingNumIndexedCols has changed",
    ),
    "the protocol": (
        lambda path: entry_file(path, 1).write_text(
            '{"protocol":{"minReaderVersion":1,"minWriterVersion":4}}'
        ),
        "its protocol has changed",
    ),
}


@pytest.mark.parametrize("seen", [False, True], ids=["by nobody yet", "by another thread"])
@pytest.mark.parametrize("name", RESHAPED)
def test_files_of_an_old_shape_do_not_land_whoever_has_seen_the_change(
    name: str, seen: bool, way: str, tmp_path: Path
) -> None:
    table = make_cities(tmp_path)
    planned = event(tmp_path, 0, table.shape)
    alter, words = RESHAPED[name]
    alter(tmp_path)
    if seen:
        table.refresh()

    with pytest.raises(BatchFailed, match=words) as failed:
        append(table, planned, retries=3, sleep=lambda _: None)

    assert failed.value.retryable
    assert failed.value.untried or not seen
    assert open_table(tmp_path).transactions == {"shop/clicks/0": -1}
    assert DeltaTable(tmp_path).version() == 1


def test_properties_of_the_log_change_without_a_batch_that_runs_again(way: str, tmp_path: Path) -> None:
    table = make_cities(tmp_path)
    planned = event(tmp_path, 0, table.shape)
    reshape(tmp_path, configuration={"delta.logRetentionDuration": "interval 1 days", "mine": "x"})

    assert append(table, planned, retries=3, sleep=lambda _: None) == 2


def test_a_position_lands_in_a_table_of_another_shape_as_it_brings_no_files(way: str, tmp_path: Path) -> None:
    table = make_cities(tmp_path)
    planned = Change([], {"shop/clicks/0": 5}, {"shop/clicks/0": -1}, {}, table.shape)
    DeltaTable(tmp_path).alter.add_columns([Field("more", "long")])

    assert append(table, planned, retries=3, sleep=lambda _: None) == 2


def clean(path: Path, others: LakeTable) -> None:
    """Let a stranger commit, write a checkpoint, and delete every entry before his."""
    append(others, Change([], {"other/source/0": 1}, {}, {}), retries=3)
    others.delta.create_checkpoint()
    for version in range(others.version):
        entry_file(path, version).unlink(missing_ok=True)


def lose_answers(monkeypatch: pytest.MonkeyPatch, way: str, then: Callable[[], None]) -> None:
    """Let each commit land, `then` something happen, and no answer come."""

    def lost(commit: Callable[..., object]) -> Callable[..., None]:
        def do(*args: Any, **more: Any) -> None:
            commit(*args, **more)
            monkeypatch.undo()
            then()
            raise OSError("connection reset by peer")

        return do

    if way == "delta-rs":
        monkeypatch.setattr(DeltaTable, "create_write_transaction", lost(DeltaTable.create_write_transaction))
    else:
        monkeypatch.setattr(os, "link", lost(os.link))


def test_own_commit_is_known_again_although_its_entry_was_cleaned_away(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, change = make_cities(tmp_path), event(tmp_path, 0)
    lose_answers(monkeypatch, way, lambda: clean(tmp_path, open_table(tmp_path)))

    version = append(table, change, retries=3, sleep=lambda _: None)

    assert version == 2
    assert [Path(uri).name for uri in DeltaTable(tmp_path).file_uris()] == ["0.parquet"]


def test_own_positions_without_own_files_are_taken_for_unknown_and_nothing_is_deleted(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compacted() -> None:
        now = {"path": "0.parquet", "deletionTimestamp": 1, "dataChange": False}
        entry_file(tmp_path, 2).write_text(json.dumps({"remove": now}))
        clean(tmp_path, open_table(tmp_path))

    table, change = make_cities(tmp_path), event(tmp_path, 0)
    lose_answers(monkeypatch, way, compacted)

    with pytest.raises(
        BatchFailed, match="cleaned up before Lakefeed could check whether a commit succeeded"
    ) as told:
        append(table, change, retries=3, sleep=lambda _: None)

    assert told.value.retryable and not told.value.untried


def test_files_may_be_deleted_only_when_no_commit_was_tried_or_it_was_surely_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = make_cities(tmp_path), open_table(tmp_path)
    append(other, event(tmp_path, 0), retries=0)
    with pytest.raises(Fenced) as overtaken:
        append(table, event(tmp_path, 0), retries=0)
    with pytest.raises(Fenced) as known:
        append(table, event(tmp_path, 0), retries=0)

    def then() -> None:
        other.refresh()
        append(other, event(tmp_path, 2), retries=0)
        clean(tmp_path, other)

    lose_answers(monkeypatch, "an entry written here", then)
    with pytest.raises(LakefeedError) as lost:
        append(table, event(tmp_path, 1), retries=0)

    assert (overtaken.value.untried, known.value.untried, lost.value.untried) == (True, True, False)


def drop_and_create(path: Path, versions: int) -> None:
    shutil.rmtree(path / "_delta_log")
    table = make_cities(path)
    for number in range(versions):
        append(table, Change([], {"other/source/0": number}, {}, {}), retries=0)


def write_over(path: Path, version: int) -> None:
    """As a writer does that renames its entry into place."""
    part = path / "part.json"
    part.write_text(json.dumps({"commitInfo": {"operation": "WRITE", "engineInfo": "no compare-and-swap"}}))
    part.rename(entry_file(path, version))


REPLACED: dict[str, Callable[[Path], object]] = {
    "deleted": lambda path: shutil.rmtree(path / "_delta_log"),
    "made anew": lambda path: drop_and_create(path, 0),
    "made anew with as many versions": lambda path: drop_and_create(path, 3),
    "made anew with more versions": lambda path: drop_and_create(path, 9),
    "written over": lambda path: write_over(path, 3),
}


@pytest.mark.parametrize("how", REPLACED)
def test_a_log_that_is_another_one_stops_the_table_before_the_next_commit(
    how: str, way: str, tmp_path: Path
) -> None:
    table = make_cities(tmp_path)
    for offset in range(3):
        append(table, event(tmp_path, offset), retries=0)
    REPLACED[how](tmp_path)
    before = {path.name for path in (tmp_path / "_delta_log").glob("*.json")}

    for change in (event(tmp_path, 3), Change([], {"shop/clicks/0": 3}, {"shop/clicks/0": 2}, {})):
        with pytest.raises(TableError, match="version 3 of its log is not the one that was read") as stopped:
            append(table, change, retries=3, sleep=lambda _: None)
        assert not stopped.value.retryable
        assert stopped.value.untried

    assert {path.name for path in (tmp_path / "_delta_log").glob("*.json")} == before


def test_a_log_that_was_copied_is_still_the_same(way: str, tmp_path: Path) -> None:
    table = make_cities(tmp_path)
    append(table, event(tmp_path, 0), retries=0)
    (tmp_path / "_delta_log").rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", tmp_path / "_delta_log", copy_function=shutil.copyfile)

    assert append(table, event(tmp_path, 1), retries=0) == 2


@pytest.mark.parametrize("how", REPLACED)
def test_a_log_that_is_another_one_is_not_read_on(how: str, way: str, tmp_path: Path) -> None:
    table = make_cities(tmp_path)
    for offset in range(3):
        append(table, event(tmp_path, offset), retries=0)
    REPLACED[how](tmp_path)

    with pytest.raises(TableError, match="version 3 of its log is not the one that was read"):
        table.refresh()

    assert table.transactions == {"shop/clicks/0": 2}


def test_the_same_columns_are_the_same_shape_however_their_metadata_is_ordered(tmp_path: Path) -> None:
    make_cities(tmp_path)
    about = {f"key {number}": "x" for number in range(8)}
    columns = [{"name": name, "type": "long", "nullable": True, "metadata": about} for name in ("id", "more")]
    city = {"name": "city", "type": "string", "nullable": True, "metadata": about}
    reshape(tmp_path, schemaString=json.dumps({"type": "struct", "fields": [*columns, city]}))
    first = open_table(tmp_path).shape

    others = [open_table(tmp_path).shape for _ in range(20)]

    assert [first.difference(other) for other in others] == [None] * 20
