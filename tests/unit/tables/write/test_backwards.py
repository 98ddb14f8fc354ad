from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakefeed.columns.staged import PARTITION
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.backwards import Backwards, Newest
from support.keyed_table import KeyedTable

YEAR_10000 = 253_402_300_800_000_000


@pytest.mark.parametrize(
    ("kind", "older", "newer"),
    [
        (pa.binary(), bytes.fromhex("80fe"), bytes.fromhex("80ff")),
        (pa.timestamp("us", "UTC"), 1, YEAR_10000),
        (pa.timestamp("us"), -(2**57), -(2**56)),
        (pa.date32(), 19_000, 10_000_000),
    ],
    ids=str,
)
def test_sequences_of_any_type_are_known_after_a_restart(
    kind: pa.DataType, older: Any, newer: Any, tmp_path: Path
) -> None:
    rules = KeyRules(("id",), ("at",), ties_by_position=True)
    table = KeyedTable(tmp_path / "rows", pa.schema([("id", pa.int64()), ("at", kind)]), rules)

    table.apply({"id": 1, "at": newer})
    table.restart()
    entry = table.apply({"id": 1, "at": older})

    assert entry.commit_info["stale"] == 1
    assert entry.commit_info["sequences"]["backwards"] == ["0"]


def test_sequences_of_another_type_are_forgotten() -> None:
    told = {"by": ["at"], "newest": {"p": ["2024-01-01 00:00:00Z"], "q": ["7"]}, "backwards": []}
    known = Newest.of(json.loads(json.dumps(told)))
    judge = Backwards("shop", ("at",))
    judge._known["orders"] = known
    changes = pa.table({PARTITION: ["p"], "at": [5]})

    newest = judge.judge(None, "orders", changes, {"stale": 0, "applied": 1})  # type: ignore[arg-type]

    assert newest.by_partition == {"q": ("7",), "p": ("5",)}
    assert newest.backwards == ()
