"""Rows that move to another key keep what the change says nothing about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakefeed.errors import UnknownValues
from lakefeed.tables.write.history import HistoryMode
from lakefeed.tables.write.keyed import HistoryRules, KeyRules
from support.keyed_table import KeyedTable

COLUMNS = [("id", pa.int64()), ("seq", pa.int64()), ("v", pa.string()), ("note", pa.string())]
SILENT = ["note"]


@pytest.fixture
def table(tmp_path: Path) -> KeyedTable:
    return KeyedTable(tmp_path / "rows", pa.schema(COLUMNS), KeyRules(("id",), ("seq",)))


def at(seq: int, **change: Any) -> dict[str, Any]:
    """A change at a position: its ordinal goes with its sequence."""
    return {"seq": seq, "ordinal": seq, "offset": 7, **change}


def moved(seq: int, old: int, new: int, v: str = "moved") -> list[dict[str, Any]]:
    return [
        at(seq, id=old, op="delete"),
        at(seq + 1, id=new, v=v, op="moved", unchanged=SILENT),
    ]


def notes(table: KeyedTable) -> dict[int, str | None]:
    return {row["id"]: row["note"] for row in table.rows()}


def test_from_the_row_of_the_table(table: KeyedTable) -> None:
    table.apply(at(1, id=1, v="a", note="one"), at(2, id=2, v="b", note="two"))
    table.apply(*moved(10, 1, 3))

    assert notes(table) == {2: "two", 3: "one"}


def test_from_a_change_of_the_same_batch_and_through_several_moves(table: KeyedTable) -> None:
    table.apply(at(1, id=1, v="a", note="one"), at(2, id=2, v="b", note="two"))
    table.apply(
        at(10, id=1, v="b", note="uno"),
        at(12, id=1, v="c", unchanged=SILENT),
        *moved(14, 1, 3),
        at(16, id=3, v="d", unchanged=SILENT),
        *moved(18, 3, 4),
        *moved(20, 2, 1),
        at(22, id=2, v="new", note="dos"),
        *moved(24, 2, 3),
    )

    assert notes(table) == {1: "two", 3: "dos", 4: "uno"}
    assert {row["id"]: row["v"] for row in table.rows()} == {1: "moved", 3: "moved", 4: "moved"}


def test_keys_that_rows_exchange(table: KeyedTable) -> None:
    table.apply(at(1, id=1, v="a", note="one"), at(2, id=2, v="b", note="two"))
    table.apply(*moved(10, 1, 0), *moved(12, 2, 1), *moved(14, 0, 2))

    assert notes(table) == {1: "two", 2: "one"}


def test_a_row_that_is_not_known_is_reported_and_nothing_is_committed(table: KeyedTable) -> None:
    table.apply(at(1, id=2, v="b", note="two"))
    with pytest.raises(UnknownValues) as caught:
        table.apply(*moved(10, 1, 3), at(12, id=2, v="c", unchanged=SILENT))

    assert notes(table) == {2: "two"}
    assert caught.value.changes == {("0", 7, 11)}


def test_the_history_of_a_row_that_moves_has_its_values(tmp_path: Path) -> None:
    rules = HistoryRules(("id",), ("seq",))
    ends = [("valid_from", pa.int64()), ("valid_to", pa.int64())]
    table = KeyedTable(tmp_path / "rows", pa.schema([*COLUMNS, *ends]), rules, modes=HistoryMode)
    table.apply(at(1, id=1, v="a", note="one"))
    table.apply(at(4, id=1, v="b", note="uno"), *moved(10, 1, 3), at(12, id=3, v="c", unchanged=SILENT))
    table.apply(*moved(20, 3, 1))

    found = [(row["id"], row["valid_from"], row["valid_to"], row["note"]) for row in table.rows()]
    assert sorted(found) == [
        (1, 1, 4, "one"), (1, 4, 10, "uno"), (1, 21, None, "uno"), (3, 11, 12, "uno"), (3, 12, 20, "uno"),
    ]  # fmt: skip
