"""Which files are written again because of their deleted rows."""

from __future__ import annotations

import random

from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.log.vector import DeletionVector
from lakefeed.tables.rewrite.compact import worn_files


def file(name: str, rows: int, deleted: int) -> DataFile:
    """A file of so many rows, of which so many are deleted."""
    vector = DeletionVector("u", name, 1, 34, deleted) if deleted else None
    return DataFile(name, name, rows, rows - deleted, vector=vector)


def test_file_with_more_than_the_share_is_worn_however_large_the_table_is() -> None:
    files = [file("a", 100, 6), file("b", 100_000, 0), file("c", 100, 5)]

    assert worn_files(files, 0.05) == {"a"}


def test_table_with_half_of_the_share_gives_its_most_worn_files_until_it_has_less() -> None:
    files = [file("a", 100, 1), file("b", 100, 4), file("c", 100, 2), file("d", 100, 5)]

    # 12 of 400 rows are deleted, and 10 may be.
    assert worn_files(files, 0.05) == {"d"}
    assert worn_files(files, 0.04) == {"d"}
    assert worn_files(files, 0.03) == {"d", "b"}
    assert worn_files(files, 0.07) == set()


def test_table_without_deleted_rows_has_no_worn_file() -> None:
    assert worn_files([file("a", 100, 0)], 0.0) == set()
    assert worn_files([], 0.05) == set()


def test_file_that_does_not_say_how_many_rows_it_has_is_worn_with_the_first_deleted_one() -> None:
    unknown = DataFile("a", "a", 10, None, vector=DeletionVector("u", "a", 1, 34, 1))

    assert worn_files([unknown, file("b", 100_000, 0)], 0.05) == {"a"}


def test_files_that_wear_at_the_same_pace_are_rewritten_one_after_the_other() -> None:
    chance, deleted, rewritten = random.Random(7), dict.fromkeys("abcdefghijkl", 0), []

    for _ in range(200):
        for name in deleted:
            deleted[name] += chance.randint(50, 70)
        worn = worn_files([file(name, 10_000, count) for name, count in deleted.items()], 0.05)
        rewritten.append(len(worn))
        deleted.update(dict.fromkeys(worn, 0))

    # Each round deletes 0.6% of the rows, and a file goes with 5%: about one and a half files a round.
    assert max(rewritten[20:]) <= 4
    assert 200 * 12 * 0.006 / 0.05 * 0.8 <= sum(rewritten) <= 200 * 12 * 0.006 / 0.05 * 1.2
