"""Routes into tables whose rows change: each table has the rows of its own events, whatever the mode."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.reports.verify import verify
from lakefeed.testing import Sample, run_samples

Row = dict[str, Any]
FILE = """\
name: shop
sources: {{clicks: {{type: generate, rows: {rows}, partitions: 3, bad_ratio: 0.01}}}}
tables:
  plain: {{path: plain, from: clicks, schema: &columns {{event_id: long, event_type: string, user_id: long}}}}
  latest:
    route: lake/latest_{{event_type}}
    from: clicks
    keys: user_id
    schema: *columns
    {mode}
flush: {{rows: 200}}
"""


def newest(rows: list[Row]) -> list[Row]:
    return list({row["user_id"]: row for row in rows}.values())


def states(rows: list[Row]) -> list[Row]:
    following: dict[int, int] = {}
    found = []
    for row in reversed(rows):
        end = following.get(row["user_id"])
        following[row["user_id"]] = row["event_id"]
        found.append(row | {"valid_from": row["event_id"], "valid_to": end})
    return found


MODES: dict[str, tuple[str, Callable[[list[Row]], list[Row]]]] = {
    "upsert": ("mode: upsert\n    sequence_by: event_id", newest),
    "merge_on_read": ("mode: upsert\n    sequence_by: event_id\n    updates: merge_on_read", newest),
    "history": ("mode: history\n    sequence_by: event_id\n    track: event_id", states),
}


def content(path: Path) -> list[Row]:
    found: list[Row] = pa.RecordBatchReader.from_stream(DeltaTable(path).scan()).read_all().to_pylist()
    return found


def rows_of(path: Path) -> list[Row]:
    return sorted(content(path), key=lambda row: row["event_id"])


@pytest.mark.parametrize("mode", MODES)
def test_every_table_of_a_route_has_what_its_mode_makes_of_its_own_events(mode: str, tmp_path: Path) -> None:
    written, expected = MODES[mode]
    file = tmp_path / "shop.yaml"

    for rows in (700, 1500):
        file.write_text(FILE.format(rows=rows, mode=written))
        run_inline(Pipeline.from_file(file))

    every = rows_of(tmp_path / "plain")
    for kind in ("view", "cart", "purchase"):
        own = expected([row for row in every if row["event_type"] == kind])
        assert rows_of(tmp_path / "lake" / f"latest_{kind}") == sorted(own, key=lambda row: row["event_id"])
    assert verify(Pipeline.from_file(file), deep=True).sound


def test_a_route_keeps_the_first_row_of_each_key(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(FILE.format(rows=1500, mode="mode: deduplicate"))

    run_inline(Pipeline.from_file(file))

    every = rows_of(tmp_path / "plain")
    for kind in ("view", "cart", "purchase"):
        users = {row["user_id"] for row in every if row["event_type"] == kind}
        found = [row["user_id"] for row in rows_of(tmp_path / "lake" / f"latest_{kind}")]
        assert sorted(found) == sorted(users)
    assert verify(Pipeline.from_file(file), deep=True).sound


@pytest.mark.parametrize("mode", ["upsert", "history"])
def test_change_events_of_a_database_delete_from_the_table_of_their_route(mode: str, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(
        f"""\
name: shop
sources: {{orders: {{type: kafka, brokers: "localhost:9", topics: [orders], format: debezium}}}}
tables: {{orders: {{route: "lake/orders_{{site}}", from: orders, mode: {mode}}}}}
flush: {{rows: 2}}
"""
    )

    def change(op: str, lsn: int, **row: Any) -> Sample:
        event = {"op": op, "source": {"lsn": lsn}, "before" if op == "d" else "after": row}
        return Sample(json=event, key=json.dumps({"id": row["id"]}).encode())

    events = [
        change("c", 1, id=1, site="de"),
        change("c", 2, id=1, site="fr"),
        change("d", 3, id=1, site="fr"),
        change("u", 2, id=1, site="fr"),
    ]

    run_samples(Pipeline.from_file(tmp_path / "shop.yaml"), {"orders": events}, tmp_path / "run")

    (german,) = [path.parent for path in (tmp_path / "run").rglob("orders_de/_delta_log")]
    assert [row["id"] for row in content(german)] == [1]
    french = content(german.parent / "orders_fr")
    assert [row.get("valid_to") is not None for row in french] == ([True] if mode == "history" else [])
