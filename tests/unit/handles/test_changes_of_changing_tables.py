"""Tables of changes that change themselves: new columns, other keys, and events that say little."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from lakefeed import Pipeline
from lakefeed.reports.verify import verify
from lakefeed.rows import Rows
from lakefeed.rows.select import Select
from lakefeed.sql.expression import Column
from lakefeed.sql.projection import Item, Projection
from lakefeed.tables.write.history import HistoryMode
from lakefeed.tables.write.keyed import HistoryRules, KeyRules
from lakefeed.testing import Sample, run_samples
from support.keyed_table import KeyedTable

FILE = """\
name: shop
sources:
  orders: {{type: kafka, brokers: localhost:9092, topics: [orders], format: debezium}}
tables:
  orders: {{path: {path}, from: orders, mode: {mode}}}
flush: {{rows: 1}}
"""


def change(op: str, lsn: int, row: dict[str, Any]) -> Sample:
    side = "before" if op == "d" else "after"
    key = json.dumps({"id": row["id"]}).encode() if row else None
    return Sample(json={"op": op, "ts_ms": 5, "source": {"lsn": lsn}, side: row or None}, key=key)


def rows_of(folder: Path, mode: str, *events: Sample) -> tuple[list[dict[str, Any]], int]:
    (folder / "shop.yaml").write_text(FILE.format(path="lake/orders", mode=mode))
    found = run_samples(Pipeline.from_file(folder / "shop.yaml"), {"orders": list(events)}, folder / "made")
    return found.rows("orders"), len(found.dead_letters("orders"))


def test_history_takes_a_new_column_in_the_middle_of_a_run(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("seq", pa.int64()),
            ("v", pa.string()),
            ("valid_from", pa.int64()),
            ("valid_to", pa.int64()),
        ]
    )
    table = KeyedTable(tmp_path, schema, HistoryRules(("id",), ("seq",)), modes=HistoryMode)
    table.apply({"id": 1, "seq": 1, "v": "a"})
    DeltaTable(tmp_path).alter.add_columns(Schema.from_arrow(pa.schema([("x", pa.int64())])).fields)
    table.table.refresh()

    table.apply({"id": 1, "seq": 2, "v": "b", "x": 4})

    assert [(row["v"], row["x"]) for row in sorted(table.rows(), key=lambda row: row["seq"])] == [
        ("a", None),
        ("b", 4),
    ]


def test_tombstones_of_another_key_stand_for_no_row(tmp_path: Path) -> None:
    schema = pa.schema([("tenant", pa.string()), ("id", pa.int64()), ("seq", pa.int64()), ("v", pa.string())])
    table = KeyedTable(tmp_path, schema, KeyRules(("id",), ("seq",)))
    table.apply({"tenant": "a", "id": 1, "seq": 100, "v": "x"})
    table.apply({"op": "delete", "id": 1, "seq": 200})
    table.rules = KeyRules(("tenant", "id"), ("seq",))
    table.restart()

    table.apply({"tenant": "b", "id": 7, "seq": 150, "v": "new"})

    assert [row["id"] for row in table.rows()] == [7]


def test_a_truncation_without_a_key_empties_the_table(tmp_path: Path) -> None:
    rows, dead = rows_of(
        tmp_path,
        "upsert",
        change("c", 1, {"id": 1, "name": "a"}),
        change("t", 2, {}),
        change("c", 3, {"id": 2, "name": "b"}),
    )

    assert ([row["id"] for row in rows], dead) == ([2], 0)


def test_a_batch_whose_rows_are_all_refused_needs_no_key(tmp_path: Path) -> None:
    rows, dead = rows_of(
        tmp_path,
        "upsert, partition_by: [c]",
        change("c", 1, {"id": 1, "c": "a"}),
        change("c", 2, {"id": 2, "c": "b" * 400}),
        change("c", 3, {"id": 3, "c": "c"}),
    )

    assert (sorted(row["id"] for row in rows), dead) == ([1, 3], 1)


def test_what_a_change_says_nothing_about_may_be_required(tmp_path: Path) -> None:
    rows, dead = rows_of(
        tmp_path,
        'upsert, schema: {id: long, name: string, big: "string not null"}',
        change("c", 1, {"id": 1, "name": "a", "big": "X"}),
        change("u", 2, {"id": 1, "name": "b", "big": "__debezium_unavailable_value"}),
    )

    assert [(row["name"], row["big"]) for row in rows] == [("b", "X")]
    assert dead == 0


def test_a_column_that_select_renames_is_as_silent_as_the_one_it_is_made_of() -> None:
    batch = pa.record_batch({"id": [1, 2], "body": pa.array([None, "x"])})
    items = (
        Item("id", "id", Column(pa.int64(), "id")),
        Item("text", "body AS text", Column(pa.string(), "body")),
    )
    table = pa.schema([("id", pa.int64()), ("text", pa.string())])
    projection = Projection(batch.schema, table, None, None, items, (), None)
    events: Any = None
    rows = Rows(batch, events, np.arange(2), unchanged=pa.array([["body"], None], pa.list_(pa.string())))

    made = Select(projection, table, lambda _, given: (list(given.batch.columns), {}))(rows)

    assert made.rows.unchanged is not None
    assert made.rows.unchanged.to_pylist() == [["text"], None]


@pytest.mark.parametrize("mode", ["upsert", "history"])
def test_verify_knows_the_keys_that_events_have_brought(mode: str, tmp_path: Path) -> None:
    rows_of(tmp_path, mode, change("c", 1, {"id": 1, "name": "a"}))
    (path,) = (one.parent for one in (tmp_path / "made").rglob("orders/_delta_log"))
    (tmp_path / "shop.yaml").write_text(FILE.format(path=path, mode=mode))

    found = verify(Pipeline.from_file(tmp_path / "shop.yaml"), deep=True)

    assert [one.findings for one in found.tables] == [[]]
