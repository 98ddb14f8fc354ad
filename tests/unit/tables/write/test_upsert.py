"""Upsert: newer wins, whatever order changes come in, and files that hold no changed row stay."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lakefeed.tables.write.keyed import KeyRules
from support.keyed_table import KeyedTable

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("name", pa.string())])
RULES = KeyRules(("id",), ("at",))


def shop(folder: Path, rules: KeyRules = RULES, schema: pa.Schema = SCHEMA, **more: object) -> KeyedTable:
    return KeyedTable(folder / "rows", schema, rules, **more)  # type: ignore[arg-type]


def test_the_newest_change_of_a_key_is_its_row(tmp_path: Path) -> None:
    table = shop(tmp_path)

    first = table.apply({"id": 1, "at": 1, "name": "a"}, {"id": 2, "at": 1, "name": "b"})
    second = table.apply({"id": 1, "at": 3, "name": "c"}, {"id": 1, "at": 2, "name": "x"})

    assert table.rows() == [{"id": 1, "at": 3, "name": "c"}, {"id": 2, "at": 1, "name": "b"}]
    assert (first.commit_info["applied"], first.commit_info["folded"]) == (2, 0)
    assert (second.commit_info["applied"], second.commit_info["folded"]) == (1, 1)


def test_an_older_change_is_counted_and_changes_nothing(tmp_path: Path) -> None:
    table = shop(tmp_path)
    table.apply({"id": 1, "at": 5, "name": "new"})

    late = table.apply({"id": 1, "at": 4, "name": "old"})

    assert table.rows() == [{"id": 1, "at": 5, "name": "new"}]
    assert late.commit_info["stale"] == 1
    assert not late.added
    assert not late.removed
    assert table.table.transactions["shop/clicks/0"] == 1


def test_a_late_change_does_not_bring_a_deleted_row_back(tmp_path: Path) -> None:
    table = shop(tmp_path)
    table.apply({"id": 1, "at": 5, "name": "a"})
    table.apply({"id": 1, "at": 7, "op": "delete"}, {"id": 2, "at": 7, "op": "delete"})

    late = table.apply({"id": 1, "at": 6, "name": "b"}, {"id": 2, "at": 7, "name": "b"})
    assert table.rows() == []
    assert late.commit_info["stale"] == 2

    table.apply({"id": 1, "at": 8, "name": "back"})
    assert table.rows() == [{"id": 1, "at": 8, "name": "back"}]
