"""Commits that write their entry of the log themselves: the same as delta-rs makes, and as safe."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field

from lakefeed.errors import BatchFailed, Fenced, TableError
from lakefeed.files import WrittenFile
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change
from support.fed_table import entry_file, make_cities, open_table

STRANGE = ["a b", "100%", "a#b?c", "Zürich", "東京", "it's", "x=y&z", "a+b", "~tilde", "[b]{c}|\\^`", "a:b"]


def put(path: Path, files: Iterable[WrittenFile]) -> None:
    for file in files:
        (path / file.path).parent.mkdir(parents=True, exist_ok=True)
        (path / file.path).write_bytes(b"x" * file.size)


def event(path: Path, offset: int, name: str = "") -> Change:
    """The change that adds the event at an offset; of its file, only the size is looked at."""
    file = WrittenFile(name or f"{offset}.parquet", 1, {"city": None}, '{"numRecords":1}', 1)
    put(path, [file])
    return Change([file], {"shop/clicks/0": offset}, {"shop/clicks/0": offset - 1}, {"rows": 1})


def actions(path: Path, version: int) -> dict[str, list[Any]]:
    """The actions of an entry by kind; what says nothing, or when, left out."""
    found: dict[str, list[Any]] = {}
    for line in entry_file(path, version).read_text().splitlines():
        ((kind, action),) = json.loads(line).items()
        telling = {key: value for key, value in action.items() if value is not None}
        telling = {
            key: value for key, value in telling.items() if key not in ("modificationTime", "timestamp")
        }
        found.setdefault(kind, []).append(telling)
    return found


def forget_entries(path: Path, first: int, last: int) -> None:
    for version in range(first, last + 1):
        entry_file(path, version).unlink()


def test_an_entry_says_what_delta_rs_would_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [
        WrittenFile(
            f"city={name}/{name}.parquet", 7, {"city": name}, json.dumps({"maxValues": {"city": name}}), 1
        )
        for name in STRANGE
    ]
    change = Change(
        [*files, WrittenFile("none.parquet", 1, {"city": None}, "{}", 1)],
        {"shop/clicks/0": 9, "shop/clicks/#Zürich": 2**62},
        {"shop/clicks/0": -1},
        {"kind": "other", "rows": 1, "text": 'a "quoted" \\ text'},
    )
    put(tmp_path / "here", change.files)
    put(tmp_path / "there", change.files)
    append(make_cities(tmp_path / "here"), change, retries=0)
    monkeypatch.setattr("lakefeed.tables.table.writes_entries", lambda delta, store: False)

    append(make_cities(tmp_path / "there"), change, retries=0)

    here, there = actions(tmp_path / "here", 1), actions(tmp_path / "there", 1)
    assert (here["add"], here["txn"]) == (there["add"], there["txn"])
    (ours,), (theirs,) = here["commitInfo"], there["commitInfo"]
    assert ours.pop("engineInfo").startswith("lakefeed:")
    assert ours["isBlindAppend"] is True
    assert ours == {key: value for key, value in theirs.items() if key not in ("engineInfo", "clientVersion")}
    assert DeltaTable(tmp_path / "here").file_uris() != []


def test_appending_never_goes_through_the_files_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_cities(tmp_path)
    calls = []
    for name in ("update_incremental", "load_as_version", "create_write_transaction"):
        monkeypatch.setattr(DeltaTable, name, lambda *args, name=name, **more: calls.append(name))

    for offset in range(20):
        append(table, event(tmp_path, offset), retries=0)

    assert calls == []
    assert (table.version, table.transactions) == (20, {"shop/clicks/0": 19})


def test_files_that_were_appended_are_there_for_whoever_asks(tmp_path: Path) -> None:
    table = make_cities(tmp_path)
    for offset in range(3):
        append(table, event(tmp_path, offset), retries=0)

    found = [Path(uri).name for uri in table.delta.file_uris()]

    assert sorted(found) == ["0.parquet", "1.parquet", "2.parquet"]
    assert table.delta.version() == table.version == 3


@pytest.mark.parametrize("way", ["an entry written here", "delta-rs"])
def test_checkpoints_are_written_and_old_entries_deleted_as_the_table_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "delta-rs":
        monkeypatch.setattr("lakefeed.tables.table.writes_entries", lambda delta, store: False)
    short = {"delta.checkpointInterval": "5", "delta.logRetentionDuration": "interval 0 seconds"}
    table = make_cities(tmp_path, short)

    for offset in range(11):
        append(table, event(tmp_path, offset), retries=0)

    names = {path.name for path in (tmp_path / "_delta_log").iterdir()}
    assert f"{9:020d}.checkpoint.parquet" in names
    assert f"{3:020d}.json" not in names
    assert f"{11:020d}.json" in names
    assert open_table(tmp_path).transactions == {"shop/clicks/0": 10}
    assert len(DeltaTable(tmp_path).file_uris()) == 11


@pytest.mark.parametrize("forgotten", [(0, 9), (2, 9)], ids=["all that is old", "all but what it stands on"])
def test_an_instance_that_slept_while_the_log_was_cleaned_does_not_write_into_the_hole(
    tmp_path: Path, forgotten: tuple[int, int]
) -> None:
    awake = make_cities(tmp_path)
    append(awake, event(tmp_path, 0), retries=0)
    asleep = open_table(tmp_path)
    for offset in range(1, 10):
        append(awake, event(tmp_path, offset), retries=0)
    awake.delta.create_checkpoint()
    append(awake, event(tmp_path, 10), retries=0)
    forget_entries(tmp_path, *forgotten)

    with pytest.raises(Fenced, match="up to 10, this one expected 0"):
        append(asleep, event(tmp_path, 1, "twice.parquet"), retries=3)

    assert DeltaTable(tmp_path).version() == 11
    assert "twice.parquet" not in {Path(uri).name for uri in DeltaTable(tmp_path).file_uris()}


def test_an_append_behind_a_cleaned_log_lands_at_its_end(tmp_path: Path) -> None:
    stranger = make_cities(tmp_path)
    table = open_table(tmp_path)
    for number in range(5):
        append(stranger, Change([], {"other/source/0": number}, {}, {}), retries=0)
    stranger.delta.create_checkpoint()
    forget_entries(tmp_path, 1, 4)

    version = append(table, event(tmp_path, 0), retries=3)

    assert version == 6
    assert DeltaTable(tmp_path).transaction_version("shop/clicks/0") == 0


def test_columns_that_another_adds_are_seen_and_end_the_batch(tmp_path: Path) -> None:
    table = make_cities(tmp_path)
    append(table, event(tmp_path, 0), retries=0)
    DeltaTable(tmp_path).alter.add_columns([Field("more", "long")])

    with pytest.raises(
        BatchFailed, match="changed by another writer while a batch was being written: its columns"
    ):
        append(table, event(tmp_path, 1), retries=3)

    assert table.schema.names == ["id", "city", "more"]
    assert DeltaTable(tmp_path).transaction_version("shop/clicks/0") == 0


def test_a_table_made_anew_at_the_same_path_is_not_written_behind_its_end(tmp_path: Path) -> None:
    table = make_cities(tmp_path)
    for offset in range(5):
        append(table, event(tmp_path, offset), retries=0)
    for path in (tmp_path / "_delta_log").iterdir():
        path.unlink()
    make_cities(tmp_path)

    with pytest.raises(TableError):
        append(table, event(tmp_path, 5), retries=0)

    assert not entry_file(tmp_path, 6).exists()


def test_a_commit_that_others_overtake_again_and_again_lands_without_a_wait(tmp_path: Path) -> None:
    table, other = make_cities(tmp_path), open_table(tmp_path)
    for number in range(30):
        append(other, Change([], {"other/source/0": number}, {}, {}), retries=0)
    waits: list[float] = []

    version = append(table, event(tmp_path, 0), retries=0, sleep=waits.append)

    assert (version, waits) == (31, [])


def test_a_hint_at_a_checkpoint_that_does_not_exist_stops_no_commit(tmp_path: Path) -> None:
    table = make_cities(tmp_path)
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text('{"version": 999, "size": 1}')

    versions = [append(table, event(tmp_path, offset), retries=0) for offset in range(3)]

    assert versions == [1, 2, 3]
