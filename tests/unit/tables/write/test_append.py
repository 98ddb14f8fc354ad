from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lakefeed.errors import Fenced, StoreUnavailable
from lakefeed.files import WrittenFile
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change
from support.fed_table import IDS, entry_file, make_table, open_table


def rows(path: Path, first: int, last: int) -> Change:
    """The change that adds the ids `first` to `last`, as the events at these offsets."""
    name = f"{first}-{last}.parquet"
    pq.write_table(pa.table({"id": list(range(first, last + 1))}, schema=IDS), path / name)
    file = WrittenFile(
        name, (path / name).stat().st_size, {}, json.dumps({"numRecords": last - first + 1}), last - first + 1
    )
    return Change([file], {"shop/clicks/0": last}, {"shop/clicks/0": first - 1}, {"rows": last - first + 1})


def ids(path: Path) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table()["id"].to_pylist())


def test_commit_holds_files_and_position_together(tmp_path: Path, way: str) -> None:
    table = make_table(tmp_path)

    version = append(table, rows(tmp_path, 0, 9), retries=0)

    assert version == 1
    assert ids(tmp_path) == list(range(10))
    assert DeltaTable(tmp_path).transaction_version("shop/clicks/0") == 9
    assert open_table(tmp_path).transactions == {"shop/clicks/0": 9}


def test_second_instance_that_read_the_same_events_is_fenced(tmp_path: Path, way: str) -> None:
    first = make_table(tmp_path)
    second = open_table(tmp_path)
    append(first, rows(tmp_path, 0, 9), retries=5)

    with pytest.raises(Fenced, match="another instance of this pipeline has written"):
        append(second, rows(tmp_path, 0, 4), retries=5)

    assert ids(tmp_path) == list(range(10))


def test_second_instance_is_fenced_also_after_a_stranger_has_committed_in_between(
    tmp_path: Path, way: str
) -> None:
    first = make_table(tmp_path)
    second = open_table(tmp_path)
    append(first, rows(tmp_path, 0, 9), retries=5)
    append(second, Change([], {"other/source/0": 1}, {"other/source/0": None}, {}), retries=5)

    with pytest.raises(Fenced):
        append(second, rows(tmp_path, 0, 4), retries=5)

    assert ids(tmp_path) == list(range(10))


@pytest.fixture(params=["an entry written here", "delta-rs"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways in which a commit is made; without the other one."""
    if request.param == "delta-rs":
        monkeypatch.setattr("lakefeed.tables.table.writes_entries", lambda delta, store: False)
    return str(request.param)


def in_place_of_commits(
    monkeypatch: pytest.MonkeyPatch, way: str, do: Callable[[Callable[[], object]], None]
) -> None:
    """Let `do` decide what becomes of each commit; it is given what would make it."""
    if way == "delta-rs":
        commit = DeltaTable.create_write_transaction
        monkeypatch.setattr(
            DeltaTable, "create_write_transaction", lambda *args, **more: do(lambda: commit(*args, **more))
        )
    else:
        link = os.link
        monkeypatch.setattr(os, "link", lambda *args: do(lambda: link(*args)))


def test_commit_whose_answer_is_lost_is_found_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    table = make_table(tmp_path)
    calls = []

    def lose_the_answer(commit: Callable[[], object]) -> None:
        calls.append(1)
        commit()
        raise OSError("connection reset by peer")

    in_place_of_commits(monkeypatch, way, lose_the_answer)

    version = append(table, rows(tmp_path, 0, 9), retries=5)

    assert (version, len(calls)) == (1, 1)
    assert ids(tmp_path) == list(range(10))


def test_commit_that_never_lands_waits_longer_each_time_and_then_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    table = make_table(tmp_path)
    waits: list[float] = []

    def refuse(commit: Callable[[], object]) -> None:
        raise OSError("connection refused")

    in_place_of_commits(monkeypatch, way, refuse)

    with pytest.raises(StoreUnavailable, match=r"the commit failed 4 times, last with:.*connection refused"):
        append(table, rows(tmp_path, 0, 9), retries=3, sleep=waits.append)

    assert waits == pytest.approx([0.1, 0.2, 0.4], rel=0.21)


def test_two_pipelines_that_append_at_once_both_land(tmp_path: Path, way: str) -> None:
    make_table(tmp_path)

    def fill(pipeline: str) -> None:
        table = open_table(tmp_path)
        for number in range(20):
            name = f"{pipeline}/source/0"
            append(table, Change([], {name: number}, {name: number - 1 if number else None}, {}), retries=5)

    threads = [threading.Thread(target=fill, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = open_table(tmp_path).transactions
    assert (found["one/source/0"], found["two/source/0"]) == (19, 19)


def test_positions_are_found_behind_checkpoints_of_the_log(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    for number in range(3):
        append(table, Change([], {f"shop/clicks/{number + 1}": number}, {}, {}), retries=0)
    table.delta.create_checkpoint()
    append(table, Change([], {"shop/clicks/9": 9}, {}, {}), retries=0)
    for version in range(3):
        entry_file(tmp_path, version).unlink()

    found = open_table(tmp_path).transactions

    assert found == {
        "shop/clicks/0": -1,
        "shop/clicks/1": 0,
        "shop/clicks/2": 1,
        "shop/clicks/3": 2,
        "shop/clicks/9": 9,
    }
