"""The tables of a route together: how far all of them have come."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lakefeed import Pipeline
from lakefeed.handles.routed_tables import RoutedTables
from lakefeed.handles.tables import Tables


def test_a_route_has_passed_what_each_of_its_tables_has_and_nothing_of_a_partition_that_one_lacks(
    tmp_path: Path,
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources: {clicks: {type: generate, partitions: 2}}
tables:
  events: {route: "lake/{event_type}", from: clicks}
"""
    )
    tables = Tables(Pipeline.from_file(file))
    columns = pa.schema([("event_type", pa.string())])
    held = {"view": {"shop/clicks/0": 9, "shop/clicks/1": 7}, "cart": {"shop/clicks/0": 4}}
    for key, transactions in held.items():
        tables.routed_handle("events", (key,)).create(columns, transactions, {"kind": "create"})
    route = RoutedTables(tables, "events")
    route.find()

    assert route.passed("clicks") == {"0": 5, "1": 0}
