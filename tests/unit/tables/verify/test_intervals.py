"""Intervals of a history table that are not whole are found in its data."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakefeed.tables.data_files import data_files
from lakefeed.tables.verify.intervals import interval_problems
from lakefeed.tables.write.keyed import HistoryRules
from support.delta_tables import open_any
from support.vectors import allow, mark_everywhere

Span = tuple[int, int, int | None]


def problems(path: Path, *spans: Span) -> list[str]:
    names = ("id", "valid_from", "valid_to")
    columns = [pa.array(values, pa.int64()) for values in zip(*spans, strict=True)]
    write_deltalake(path, pa.table(columns, names=names))
    return found(path)


def found(path: Path) -> list[str]:
    table = open_any(path)
    return list(interval_problems(table, data_files(table), HistoryRules(("id",), ("valid_from",))))


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(1, 10, 20), (1, 20, None), (2, 15, 16), (2, 18, None)], []),
        ([(1, 10, None), (1, 20, None)], ["1 row that are open though another row of their key is"]),
        ([(1, 10, 25), (1, 20, None)], ["1 row that overlap another row of their key"]),
        ([(1, 10, None), (1, 20, 30)], ["1 row that overlap another row of their key"]),
        ([(1, 10, 10)], ["1 row that end before they begin"]),
    ],
)
def test_intervals_that_are_not_whole_are_told(
    spans: list[Span], expected: list[str], tmp_path: Path
) -> None:
    told = problems(tmp_path, *spans)

    assert [text.partition(", such as")[0] for text in told] == expected


def test_deleted_rows_do_not_count(tmp_path: Path) -> None:
    assert problems(tmp_path, (1, 10, None), (1, 20, None))
    allow(tmp_path)
    mark_everywhere(tmp_path, [0])

    assert found(tmp_path) == []
