from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lakefeed import Pipeline
from lakefeed.sources.kafka.source import KafkaEvents, KafkaSource

_NOT_AVAILABLE, _CREATED = 0, 1


@dataclass
class Message:
    """What librdkafka's message answers; one cannot be made without a broker."""

    moment: tuple[int, int]

    def __getattr__(self, name: str) -> Any:
        answers = {
            "value": b"{}",
            "topic": "clicks",
            "partition": 0,
            "offset": 7,
            "key": None,
            "headers": None,
        }
        return lambda: answers[name]

    def timestamp(self) -> tuple[int, int]:
        return self.moment


@pytest.mark.parametrize(
    ("moment", "microseconds"),
    [
        ((_CREATED, 1_700_000_000_123), 1_700_000_000_123_000),
        ((_CREATED, 1_700_000_000_123_456_789), None),
        ((_CREATED, 1_700_000_000_123_456), None),
        ((_NOT_AVAILABLE, -1), None),
    ],
    ids=["milliseconds", "nanoseconds", "microseconds", "none"],
)
def test_timestamp_that_no_calendar_holds_is_null_and_stops_nothing(
    moment: tuple[int, int], microseconds: int | None
) -> None:
    events = KafkaEvents([Message(moment)], "clicks-0")

    origin = events.origin()
    newest = events.newest()

    assert origin.column("timestamp").cast("int64").to_pylist() == [microseconds]
    assert newest == (None if microseconds is None else microseconds / 1_000_000)


def test_broker_without_a_port_has_that_of_kafka() -> None:
    source = KafkaSource(brokers="localhost, other:9093,[::1]", topics=("orders",), format="json")

    assert source.brokers == "localhost:9092,other:9093,[::1]:9092"


def test_type_brokers_topics_and_a_path_are_enough(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "name: shop\n"
        "sources: {clicks: {type: kafka, brokers: localhost, topics: clicks}}\n"
        "tables: {clicks: {path: lake, from: clicks}}\n"
    )

    source = Pipeline.from_file(file).sources["clicks"]

    assert source.payload_format is not None
    assert source.payload_format.type == "json"
