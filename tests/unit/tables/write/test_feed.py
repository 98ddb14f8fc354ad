"""The change data feed of tables whose rows change: the states before and after, and no copied row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefeed.tables.operations.changes import changes
from lakefeed.tables.write.history import HistoryMode
from lakefeed.tables.write.keyed import HistoryRules, KeyRules
from lakefeed.tables.write.upsert import UpsertMode
from support.delta_tables import open_any
from support.keyed_table import KeyedTable
from support.vectors import allow
from unit.tables.write.test_history import LAYOUTS

SCHEMA = pa.schema([("id", pa.int64()), ("seq", pa.int64()), ("v", pa.string()), ("day", pa.string())])
SPAN = [pa.field("valid_from", pa.int64()), pa.field("valid_to", pa.int64())]


def fed(folder: Path, layout: str, rules: KeyRules) -> KeyedTable:
    history = isinstance(rules, HistoryRules)
    table = KeyedTable(
        folder,
        pa.schema([*SCHEMA, *(SPAN if history else [])]),
        rules,
        partition_by=["day"],
        layout=LAYOUTS[layout](),
        modes=HistoryMode if history else UpsertMode,
    )
    DeltaTable(folder).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    if layout == "merge_on_read":
        allow(folder)
    table.restart()
    return table


def told(table: KeyedTable, *columns: str) -> list[tuple[Any, ...]]:
    """What the last version changed, by our reader and by delta-rs."""
    lake = open_any(table.path)
    names = ("_change_type", *columns)
    ours = [row for batch in changes(lake, lake.version, lake.version).batches for row in batch.to_pylist()]
    theirs = pa.RecordBatchReader.from_stream(
        DeltaTable(table.path).load_cdf(lake.version, lake.version)
    ).read_all()
    found = sorted((tuple(row[name] for name in names) for row in ours), key=repr)
    assert found == sorted((tuple(row[name] for name in names) for row in theirs.to_pylist()), key=repr)
    return found


def up(id: int, seq: int, v: str, day: str = "mon") -> dict[str, Any]:
    return {"id": id, "seq": seq, "v": v, "day": day}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_upserts_tell_states_before_and_after(layout: str, tmp_path: Path) -> None:
    table = fed(tmp_path, layout, KeyRules(("id",), ("seq",)))
    table.apply(up(1, 1, "a"), up(2, 1, "b"), up(3, 1, "c"))
    assert told(table, "id", "v") == [("insert", 1, "a"), ("insert", 2, "b"), ("insert", 3, "c")]

    table.apply(up(1, 2, "A"), {"op": "delete", "id": 2, "seq": 2}, up(4, 2, "d"), up(3, 0, "old"))

    assert told(table, "id", "v") == [
        ("delete", 2, "b"),
        ("insert", 4, "d"),
        ("update_postimage", 1, "A"),
        ("update_preimage", 1, "a"),
    ]
    table.apply(up(1, 3, "A", "tue"))
    assert told(table, "day") == [("update_postimage", "tue"), ("update_preimage", "mon")]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_history_tells_how_an_interval_is_closed(layout: str, tmp_path: Path) -> None:
    table = fed(tmp_path, layout, HistoryRules(("id",), ("seq",)))
    table.apply(up(1, 10, "a"))

    table.apply(up(1, 20, "b"))

    assert told(table, "v", "valid_from", "valid_to") == [
        ("insert", "b", 20, None),
        ("update_postimage", "a", 10, 20),
        ("update_preimage", "a", 10, None),
    ]


def test_nothing_is_told_of_changes_that_change_nothing(tmp_path: Path) -> None:
    table = fed(tmp_path, "copy_on_write", KeyRules(("id",), ("seq",)))
    table.apply(up(1, 2, "a"))

    table.apply(up(1, 1, "old"))

    assert told(table, "id") == []
