"""Two tables take different topics of one source on a real broker, through kills; without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from conftest import TopicFactory
from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.reports.verify import verify
from support.forks import run_until_killed
from support.kafka import Broker
from support.ledger import assert_each_once, dead_letters, table_ids


def events(first: int, last: int) -> list[bytes]:
    return [json.dumps({"event_id": number}).encode() for number in range(first, last)]


@pytest.mark.parametrize("point", ["files_written:2", "letters_committed", "table_committed:3"])
def test_kill_between_tables_of_different_topics_loses_and_repeats_nothing(
    broker: Broker, topic: TopicFactory, tmp_path: Path, point: str
) -> None:
    orders, clicks = topic(partitions=2), topic()
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  shop: {{type: kafka, brokers: "{broker.address}", topics: [{orders}, {clicks}], format: json}}
tables:
  orders: {{path: orders, from: shop, streams: {orders}, schema: {{event_id: long}}}}
  clicks: {{path: clicks, from: shop, streams: {clicks}, schema: {{event_id: long}}}}
  all: {{path: all, from: shop, schema: {{event_id: long}}}}
flush: {{rows: 60}}
"""
    )
    broker.produce(orders, events(0, 100))
    broker.produce(clicks, [*events(1000, 1050), b"broken"])

    run_until_killed(file, point)
    broker.produce(orders, events(100, 110))
    run_inline(Pipeline.from_file(file))

    assert_each_once(range(110), table_ids(tmp_path / "orders"))
    assert_each_once(range(1000, 1050), table_ids(tmp_path / "clicks"))
    assert_each_once([*range(110), *range(1000, 1050)], table_ids(tmp_path / "all"))
    letters = dead_letters(tmp_path / "shop_dead_letters")
    assert sorted((one["table"], one["topic"]) for one in letters) == [("all", clicks), ("clicks", clicks)]
    assert verify(Pipeline.from_file(file)).sound
    assert DeltaTable(tmp_path / "orders").transaction_version(f"shop/shop/{clicks}-0") is None
