"""Changes from before a source had another key: they are applied by their own key, before the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field

from lakefeed.tables.write.commit import commit
from lakefeed.tables.write.history import HistoryMode
from lakefeed.tables.write.keyed import HistoryRules, KeyRules, tombstones
from support.keyed_table import KeyedTable

COLUMNS = [("id", pa.int64()), ("name", pa.string()), ("seq", pa.int64())]
ENDS = [("valid_from", pa.int64()), ("valid_to", pa.int64())]
BY_ID, BY_NAME = {"keys": ["id"]}, {"keys": ["name"]}
FORMER = {**BY_NAME, "former": ["id"]}


def keyed_table(folder: Path, mode: str) -> KeyedTable:
    if mode == "history":
        schema = pa.schema([*COLUMNS, *ENDS])
        table = KeyedTable(folder, schema, HistoryRules((), ("seq",)), modes=HistoryMode)
    else:
        table = KeyedTable(folder, pa.schema(COLUMNS), KeyRules((), ("seq",)))
    table.mode.follows_keys = True  # type: ignore[union-attr]
    table.apply(*({"id": at, "name": f"n{at}", "seq": at, **BY_ID} for at in (1, 2, 3)))
    return table


CHANGES: list[dict[str, Any]] = [
    {"id": 1, "op": "delete", "seq": 10, **FORMER},
    {"id": 2, "name": "two", "seq": 11, **FORMER},
    {"id": 3, "name": "n2", "seq": 12, **FORMER},
    {"id": 9, "op": "delete", "seq": 13, **FORMER},
    {"name": "two", "op": "delete", "seq": 20, **BY_NAME},
    {"id": 4, "name": "n1", "seq": 21, **BY_NAME},
]


@pytest.mark.parametrize("mode", ["upsert", "history"])
@pytest.mark.parametrize("killed", [False, True])
def test_changes_by_a_former_key_are_applied_by_it(mode: str, killed: bool, tmp_path: Path) -> None:
    table = keyed_table(tmp_path / "rows", mode)
    if killed:
        # The batch is read again after an end between its two entries.
        change = table.change([one | {"offset": 100 + at} for at, one in enumerate(CHANGES)])
        for earlier, by_id in table.mode.before(change):  # type: ignore[union-attr]
            commit(table.table, earlier, by_id, retries=0)

    entry = table.apply(*(one | {"offset": 100 + at} for at, one in enumerate(CHANGES)))

    present = [row for row in table.rows() if row.get("valid_to") is None]
    assert sorted((row["id"], row["name"]) for row in present) == [(3, "n2"), (4, "n1")]
    told = entry.commit_info
    assert told["changes"] == len(CHANGES) == told["applied"] + told["stale"] + told["folded"]
    assert told["keys"] == ["name"]


@pytest.mark.parametrize("mode", ["upsert", "history"])
def test_a_truncation_counts_for_late_changes_by_a_later_key(mode: str, tmp_path: Path) -> None:
    table = keyed_table(tmp_path / "rows", mode)
    table.apply({"op": "truncate", "seq": 50})
    DeltaTable(table.path).alter.add_columns(Field("code", "long"))
    table.restart()
    table.mode.follows_keys = True  # type: ignore[union-attr]

    table.apply({"code": 7, "seq": 40, "keys": ["code"]}, {"code": 8, "seq": 60, "keys": ["code"]})

    present = [row for row in table.rows() if row.get("valid_to") is None]
    assert [row["code"] for row in present] == [8]


@pytest.mark.parametrize("mode", ["upsert", "history"])
def test_deletions_by_one_key_leave_those_by_another_alone(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tombstones, "_MOST_SEGMENTS", 3)
    table = keyed_table(tmp_path / "rows", mode)
    table.apply({"name": "n1", "op": "delete", "seq": 20, **BY_NAME})
    table.apply(*({"id": at, "op": "delete", "seq": 10, "from": "1", **FORMER} for at in (2, 3)))

    table.apply({"name": "n1", "seq": 15, **BY_NAME})
    for at in range(3):
        table.apply({"name": f"other-{at}", "op": "delete", "seq": 21, **BY_NAME})
    table.apply(*({"id": at, "name": f"n{at}", "seq": 5, "from": "1", **FORMER} for at in (2, 3)))

    assert [row for row in table.rows() if row.get("valid_to") is None] == []
