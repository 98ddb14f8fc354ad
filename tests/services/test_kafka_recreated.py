"""A topic that is deleted and created again has its old offsets once more, for other events."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import TopicFactory
from lakefeed import Pipeline
from support.kafka import Broker
from support.ledger import assert_each_once, dead_letters, table_ids

pytestmark = pytest.mark.usefixtures("spark")


def events(first: int, count: int) -> list[bytes]:
    return [json.dumps({"event_id": number}).encode() for number in range(first, first + count)]


def test_events_at_offsets_that_were_dead_letters_of_the_topic_before_become_rows(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  clicks: {{type: kafka, brokers: "{broker.address}", topics: {name}, format: json, on_data_loss: skip}}
tables:
  events: {{path: events, from: clicks, schema: {{event_id: long not null}}}}
"""
    )
    broker.produce(name, [*events(0, 5), *[b"broken"] * 5])
    Pipeline.from_file(file).run(once=True)
    broker.delete_topic(name)
    broker.create_topic(name)

    broker.produce(name, events(100, 5))
    Pipeline.from_file(file).run(once=True)
    broker.produce(name, [*events(105, 5), b"broken"])
    Pipeline.from_file(file).run(once=True)

    assert_each_once([*range(5), *range(100, 110)], sorted(table_ids(tmp_path / "events")))
    letters = dead_letters(tmp_path / "shop_dead_letters")
    assert sorted(one["offset"] for one in letters) == [5, 6, 7, 8, 9, 10]
