"""Deduplicate: a key is in the table once, and the first one wins."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.support.keyed_table import KeyedTable

from lakefeed.tables.write.deduplicate import DedupeRules, DeduplicateMode
from lakefeed.tables.write.keyed import KeyRules

SCHEMA = pa.schema([("id", pa.string()), ("time", pa.timestamp("us", "UTC")), ("name", pa.string())])
START = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


def shop(folder: Path, column: str | None = None, age: float = 0.0) -> KeyedTable:
    table = KeyedTable(folder / "rows", SCHEMA, KeyRules(("id",)))
    table.mode = DeduplicateMode(DedupeRules(("id",), column, age), table.target)
    return table


def row(key: str, hours: float | None, name: str) -> dict[str, Any]:
    return {"id": key, "time": None if hours is None else START + dt.timedelta(hours=hours), "name": name}


def names(table: KeyedTable) -> list[str]:
    return sorted(one["name"] for one in table.rows())


def test_rows_whose_key_is_there_are_counted_and_left_out(tmp_path: Path) -> None:
    table = shop(tmp_path)

    first = table.apply(row("a", 0, "a1"), row("b", 0, "b1"), row("a", 1, "a2"))
    second = table.apply(row("b", 2, "b2"), row("c", 2, "c1"))
    third = table.apply(row("c", 2, "c2"))

    assert names(table) == ["a1", "b1", "c1"]
    assert [one.commit_info["duplicates"] for one in (first, second, third)] == [1, 1, 1]
    assert not third.added
    assert table.table.transactions["shop/clicks/0"] == 5


def test_a_key_that_comes_again_after_the_age_is_a_new_row(tmp_path: Path) -> None:
    table = shop(tmp_path, "time", 3600.0)

    table.apply(row("a", 0, "a1"), row("a", 0.5, "again"), row("a", 1.5, "a2"), row("a", 2.4, "again"))
    table.apply(row("a", 2.5, "again"), row("a", 2.6, "a3"), row("b", None, "b1"), row("b", 9, "again"))
    late = table.apply(row("a", 0.2, "late"), row("b", None, "again"))

    assert names(table) == ["a1", "a2", "a3", "b1"]
    assert late.commit_info["duplicates"] == 2


def test_files_from_before_the_age_are_not_looked_at(tmp_path: Path) -> None:
    table = shop(tmp_path, "time", 3600.0)
    for hours in range(4):
        table.apply(row("a", 2 * hours, f"a{hours}"), row("z", 2 * hours, f"z{hours}"))

    last = table.apply(row("b", 7, "b"))

    assert last.commit_info["looked_at"] == 1
