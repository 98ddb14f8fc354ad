"""Which files are compacted together where rows are deleted in deletion vectors."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakefeed.tables.data_files import data_files
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.rewrite.tiers import Due, due_for_compaction
from lakefeed.upkeep.file_writer import file_writer
from support.delta_tables import open_any
from support.vectors import allow, mark

ROWS = 4000
INFO = {"kind": "compact", "by": "test"}
chance = random.Random(7)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table of two large files that may have deletion vectors."""
    add(tmp_path, ROWS)
    allow(tmp_path)
    add(tmp_path, ROWS)
    return tmp_path


def add(path: Path, rows: int) -> None:
    """One more file, about as many times larger as it has more rows."""
    values = pa.array([chance.getrandbits(62) for _ in range(rows)], pa.int64())
    write_deltalake(path, pa.table({"id": values}), mode="append")


def wear(path: Path, *shares: float) -> None:
    """Delete a share of the rows of each large file, in the order in which they were added."""
    mark(
        path,
        lambda table: {
            file.path: range(round(share * ROWS))
            for file, share in zip(
                [one for one in data_files(table) if one.rows == ROWS], shares, strict=True
            )
            if share
        },
    )


def some_rows(file: DataFile) -> list[int]:
    """A sixtieth of its rows, by chance."""
    assert file.rows is not None
    return chance.sample(range(file.rows), file.rows // 60)


def due(path: Path) -> list[Due]:
    table = open_any(path)
    large = max(file.size for file in data_files(table))
    return due_for_compaction(
        table, target_size=int(large * 1.1), min_files=8, where=None, cold_before=0, max_deleted=0.05
    )


def rows_of(found: list[Due]) -> list[list[int]]:
    """The rows of the files of each step, deleted ones as well."""
    return [[(file.rows or 0) + file.deleted for file in step.files] for _, step in found]


def test_worn_file_takes_small_files_along_and_is_not_cut_into_files_of_a_smaller_tier(path: Path) -> None:
    wear(path, 0.2, 0)
    add(path, 50)
    add(path, 60)

    found = due(path)

    assert rows_of(found) == [[50, 60, ROWS]]
    ((plan, step),) = found
    assert plan.target_size > max(file.size for file in step.files)


def test_most_worn_files_go_first_and_two_in_a_step(path: Path) -> None:
    add(path, ROWS)
    wear(path, 0.1, 0.3, 0.2)
    add(path, 50)

    found = due(path)

    assert rows_of(found) == [[50, ROWS, ROWS], [ROWS]]
    shares = [[file.deleted / ROWS for file in step.files] for _, step in found]
    assert shares == [[0, 0.3, 0.2], [0.1]]


def test_small_files_that_make_a_whole_file_do_not_wait_for_a_worn_one(path: Path) -> None:
    wear(path, 0.1, 0)
    for _ in range(4):
        add(path, ROWS // 3)

    assert rows_of(due(path)) == [[ROWS // 3] * 4, [ROWS]]


def test_small_file_that_is_worn_is_written_again_alone(path: Path) -> None:
    add(path, ROWS // 3)
    mark(path, lambda table: {f.path: range(400) for f in data_files(table) if f.rows == ROWS // 3})

    assert rows_of(due(path)) == [[ROWS // 3]]


def test_small_file_that_is_left_over_alone_stays_as_it_is(path: Path) -> None:
    for _ in range(4):
        add(path, ROWS // 3)
    mark(path, lambda table: {f.path: range(400) for f in data_files(table) if f.rows == ROWS // 3})
    add(path, 50)

    assert rows_of(due(path)) == [[ROWS // 3] * 4]


def test_table_whose_rows_change_all_the_time_keeps_the_number_of_its_files(path: Path) -> None:
    for _ in range(4):
        add(path, ROWS)
    table = open_any(path)
    target, counts = max(file.size for file in data_files(table)), []

    for _ in range(60):
        mark(path, lambda table: {file.path: some_rows(file) for file in data_files(table)})
        add(path, 6 * ROWS // 60)
        table.refresh()
        found = due_for_compaction(
            table, target_size=target, min_files=8, where=None, cold_before=0, max_deleted=0.05
        )
        for plan, step in found[:1]:
            plan.run_step(table, step, INFO, file_writer)
        counts.append(len(data_files(table)))

    assert max(counts) <= 12
    assert sum(counts[-20:]) <= sum(counts[10:30]) * 1.2
