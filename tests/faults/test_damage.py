"""A log that somebody or a lost disk has damaged: it is named, nothing is written, nothing is guessed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lakefeed.errors import TableError
from lakefeed.files import WrittenFile
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write import append as commit
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change
from support.fed_table import PARTITION, entry_file, make_table, open_table
from support.ledger import assert_each_once, assert_ranges_contiguous, table_ids

SCHEMA = pa.schema([("event_id", pa.int64())])


def fed_table(path: Path, commits: int = 5) -> LakeTable:
    """A table of so many commits of ten events each."""
    commit_info = {"pipeline": "shop", "source": "clicks", "kind": "create"}
    table = make_table(path, SCHEMA, commit_info=commit_info)
    for _ in range(commits):
        read_ten(table, path)
    return table


def read_ten(table: LakeTable, path: Path) -> int:
    """Append the ten events that come next by the table's position, as a run does."""
    start = table.transactions[PARTITION] + 1
    name = f"part-{start}-{time.monotonic_ns()}.parquet"
    pq.write_table(pa.table({"event_id": range(start, start + 10)}, schema=SCHEMA), path / name)
    file = WrittenFile(name, (path / name).stat().st_size, {}, '{"numRecords": 10}', 10)
    commit_info = {"pipeline": "shop", "source": "clicks", "kind": "rows", "rows": 10}
    commit_info |= {"ranges": {"0": [start, start + 10, 10, 0]}}
    return append(
        table, Change([file], {PARTITION: start + 9}, {PARTITION: start - 1}, commit_info), retries=1
    )


def cut(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


def without_positions(file: Path) -> None:
    file.write_bytes(file.read_bytes().partition(b'{"txn"')[0])


def checkpoint(path: Path) -> Path:
    DeltaTable(path).create_checkpoint()
    return path / "_delta_log" / f"{5:020}.checkpoint.parquet"


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (
            lambda path: cut(entry_file(path, 5), -40),
            "the log of the table is damaged: Json error: Truncated",
        ),
        (
            lambda path: cut(entry_file(path, 3), 200),
            "the log of the table is damaged: Json error: Truncated",
        ),
        (
            lambda path: entry_file(path, 5).write_bytes(b"\0" * 500),
            "the log of the table is damaged: Json error",
        ),
        (
            lambda path: without_positions(entry_file(path, 5)),
            f"version 5 of the table's log is damaged: it holds no position for {PARTITION}.\n",
        ),
        (
            lambda path: entry_file(path, 3).unlink(),
            "the log of the table is damaged: entries are missing between versions 2 and 4\n",
        ),
        (lambda path: entry_file(path, 0).unlink(), "the log of the table is damaged: No table metadata"),
        (lambda path: cut(checkpoint(path), -100), "the log of the table is damaged: Arrow error: Parquet"),
        (lambda path: checkpoint(path).write_bytes(b""), "the log of the table is damaged: Invalid Checkp"),
        (lambda path: checkpoint(path).unlink(), "the log of the table is damaged: Invalid Checkpoint"),
    ],
    ids=[
        "torn entry",
        "torn entry before the last",
        "entry of zeros",
        "entry torn at the end of a line",
        "missing entry",
        "missing first entry",
        "torn checkpoint",
        "empty checkpoint",
        "missing checkpoint",
    ],
)
def test_damaged_log_is_named_and_neither_retried_nor_guessed(
    damage: Callable[[Path], None], told: str, tmp_path: Path
) -> None:
    fed_table(tmp_path)
    damage(tmp_path)
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(TableError) as refused:
        open_table(tmp_path)

    assert str(refused.value).startswith(f"{tmp_path}: {told}")
    assert "Nothing was written. Bring" in str(refused.value)
    assert len(str(refused.value).splitlines()) <= 3
    assert not refused.value.retryable
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "damage",
    [lambda path: entry_file(path, 5).unlink(), lambda path: entry_file(path, 5).write_bytes(b"")],
    ids=["missing", "empty"],
)
def test_newest_entry_that_is_gone_takes_its_rows_and_its_position_along(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    fed_table(tmp_path)
    damage(tmp_path)

    read_ten(open_table(tmp_path), tmp_path)

    assert_each_once(range(50), table_ids(tmp_path))


def test_running_process_does_not_go_back_behind_an_entry_that_was_deleted(tmp_path: Path) -> None:
    table = fed_table(tmp_path)
    entry_file(tmp_path, 5).unlink()

    with pytest.raises(TableError, match="version 5 of its log is not the one that was read"):
        table.refresh()


def test_broken_checkpoint_may_be_deleted_as_the_message_says(tmp_path: Path) -> None:
    fed_table(tmp_path)
    cut(checkpoint(tmp_path), -100)
    checkpoint_file = tmp_path / "_delta_log" / f"{5:020}.checkpoint.parquet"

    checkpoint_file.unlink()
    (tmp_path / "_delta_log" / "_last_checkpoint").unlink()
    read_ten(open_table(tmp_path), tmp_path)

    assert_each_once(range(60), table_ids(tmp_path))


def test_hint_at_the_checkpoint_that_is_rubbish_does_not_matter(tmp_path: Path) -> None:
    fed_table(tmp_path)
    checkpoint(tmp_path)
    (tmp_path / "_delta_log" / "_last_checkpoint").write_bytes(b'{"vers')

    read_ten(open_table(tmp_path), tmp_path)

    assert_each_once(range(60), table_ids(tmp_path))


def test_clock_that_jumps_back_and_forth_changes_no_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = fed_table(tmp_path, commits=1)
    year = 365 * 24 * 3600.0

    for jump in (-10 * year, 20 * year, -30 * year, 0.0):
        monkeypatch.setattr(commit.time, "time", lambda jump=jump: 1_800_000_000 + jump)
        read_ten(table, tmp_path)
        table = open_table(tmp_path)

    assert_each_once(range(50), table_ids(tmp_path))
    assert_ranges_contiguous(tmp_path)


def test_log_that_is_cleaned_after_the_clock_jumped_keeps_every_position(tmp_path: Path) -> None:
    table = fed_table(tmp_path, commits=98)
    long_ago = time.time() - 400 * 24 * 3600
    for file in (tmp_path / "_delta_log").glob("*.json"):
        os.utime(file, (long_ago, long_ago))

    for _ in range(5):
        read_ten(table, tmp_path)
    versions = sorted(int(file.stem) for file in (tmp_path / "_delta_log").glob("*.json"))
    again = open_table(tmp_path)

    assert versions[0] > 90, "the log was not cleaned, so this test shows nothing"
    assert again.transactions == table.transactions == {PARTITION: 1029}
    assert_each_once(range(1030), table_ids(tmp_path))


def test_writer_that_slept_while_the_log_was_cleaned_finds_the_newest_positions(tmp_path: Path) -> None:
    sleeper = fed_table(tmp_path, commits=3)
    other = open_table(tmp_path)
    for _ in range(7):
        read_ten(other, tmp_path)
    DeltaTable(tmp_path).create_checkpoint()
    for version in range(8):
        entry_file(tmp_path, version).unlink()

    sleeper.refresh()

    assert sleeper.transactions == {PARTITION: 99}
    assert sleeper.version == 10
