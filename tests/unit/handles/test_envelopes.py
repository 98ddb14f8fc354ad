"""Change events of Debezium bring the key, the order and deletions: `mode: upsert` alone is enough."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakefeed import Pipeline
from lakefeed.formats.debezium.sequence import sequence
from lakefeed.testing import Sample, run_samples

FILE = """\
name: shop
sources:
  orders: {type: kafka, brokers: localhost:9092, topics: [orders], format: debezium}
tables:
  orders: {path: lake/orders, from: orders, mode: upsert}
"""


def change(op: str, lsn: int, row: dict[str, Any], schema: dict[str, Any] | None = None) -> Sample:
    side = "before" if op == "d" else "after"
    event = {"op": op, "ts_ms": 5, "source": {"lsn": lsn}, side: row or None}
    value: Any = event if schema is None else {"schema": schema, "payload": event}
    return Sample(json=value, key=json.dumps({"id": row.get("id")}).encode())


def fields(*named: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"field": name, "type": kind, "optional": True} for name, kind in named]


ROW = {"type": "struct", "optional": True, "fields": fields(("id", "int64"), ("name", "string"))}
CONNECT = {
    "type": "struct",
    "fields": [
        {**ROW, "field": "before"},
        {**ROW, "field": "after"},
        {"type": "struct", "field": "source", "fields": fields(("lsn", "int64"))},
        *fields(("op", "string"), ("ts_ms", "int64")),
    ],
}


@pytest.mark.parametrize("schema", [None, CONNECT])
def test_rows_follow_the_log_of_the_database(schema: dict[str, Any] | None, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(FILE)
    events = [
        change("r", 10, {"id": 9, "name": "emptied"}, schema),
        change("t", 50, {}, schema),
        change("c", 100, {"id": 1, "name": "a"}, schema),
        change("c", 100, {"id": 2, "name": "b"}, schema),
        change("u", 1000, {"id": 1, "name": "c"}, schema),
        change("u", 999, {"id": 1, "name": "late"}, schema),
        change("d", 1001, {"id": 2, "name": None}, schema),
        Sample(key=b'{"id": 2}'),
        change("u", 200, {"id": 2, "name": "back"}, schema),
    ]

    landed = run_samples(Pipeline.from_file(tmp_path / "shop.yaml"), {"orders": events}, tmp_path / "landed")

    assert [(row["id"], row["name"]) for row in landed.rows("orders")] == [(1, "c")]
    assert landed.dead_letters("orders") == []


def test_a_value_that_the_log_does_not_have_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(FILE + "flush: {rows: 1}\n")
    events = [
        change("c", 1, {"id": 1, "name": "a", "big": "text", "tags": ["x"]}),
        change(
            "u",
            2,
            {
                "id": 1,
                "name": "b",
                "big": "__debezium_unavailable_value",
                "tags": ["__debezium_unavailable_value"],
            },
        ),
        change("u", 3, {"id": 2, "name": "c", "big": "__debezium_unavailable_value", "tags": []}),
    ]

    landed = run_samples(Pipeline.from_file(tmp_path / "shop.yaml"), {"orders": events}, tmp_path / "landed")

    kept = [(row["name"], row["big"], row["tags"]) for row in landed.rows("orders")]
    assert sorted(kept) == [("b", "text", ["x"]), ("c", None, [])]


def test_places_in_the_log_of_every_database_grow_with_their_texts() -> None:
    growing = [
        [{"lsn": 99}, {"lsn": 100}, {"lsn": 10**15}],
        [{"file": "mysql-bin.000009", "pos": 500}, {"file": "mysql-bin.000010", "pos": 4, "row": 0}],
        [{"file": "b.000010", "pos": 4, "row": 0}, {"file": "b.000010", "pos": 4, "row": 1}],
        [{"scn": "999"}, {"scn": "1000"}],
        [{"commit_lsn": "00000027:00000758:0003"}, {"change_lsn": "00000027:00000758:0005"}],
        [{"ts_ms": 999}, {"ts_ms": 1000, "ord": 1}, {"ts_ms": 1000, "ord": 2}],
    ]

    for places in growing:
        texts = [sequence(place, None) for place in places]
        assert texts == sorted(texts, key=str)
        assert len(set(texts)) == len(texts)
    assert sequence(None, None) is None


def test_history_has_every_state_that_the_log_of_the_database_tells(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(FILE.replace("mode: upsert", "mode: history"))
    events = [
        change("c", 100, {"id": 1, "name": "a"}),
        change("u", 300, {"id": 1, "name": "c"}),
        change("u", 150, {"id": 1, "name": "a"}),
        change("u", 200, {"id": 1, "name": "late"}),
        change("d", 400, {"id": 1, "name": None}),
    ]

    landed = run_samples(Pipeline.from_file(tmp_path / "shop.yaml"), {"orders": events}, tmp_path / "landed")

    rows = sorted(landed.rows("orders"), key=lambda row: str(row["valid_from"]))
    assert [row["name"] for row in rows] == ["a", "late", "c"]
    ends = [
        (sequence({"lsn": begin}, None), sequence({"lsn": end}, None))
        for begin, end in ((100, 200), (200, 300), (300, 400))
    ]
    assert [(row["valid_from"], row["valid_to"]) for row in rows] == ends
