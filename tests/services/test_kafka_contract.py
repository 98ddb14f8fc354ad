"""Kafka keeps the contract of every source, on a real broker and without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import TopicFactory
from support.kafka import Broker
from support.source_contract import SourceCase, SourceContract


class TestKafka(SourceContract):
    @pytest.fixture
    def case(self, broker: Broker, topic: TopicFactory, tmp_path: Path) -> SourceCase:
        """Every twentieth message is cut off."""
        name, sent = topic(partitions=2), [0]

        def options(count: int) -> str:
            texts = [json.dumps({"event_id": number}).encode() for number in range(sent[0], count)]
            if texts:
                whole = [text[:-1] if at % 20 == 3 else text for at, text in enumerate(texts)]
                broker.produce(name, whole)
                sent[0] = count
            return f'brokers: "{broker.address}", topics: [{name}], format: json'

        return SourceCase("kafka", tmp_path, options)
