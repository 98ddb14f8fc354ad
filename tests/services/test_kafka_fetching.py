"""What a worker fetches from a real broker for the ranges that it is given; without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

from conftest import TopicFactory
from lakefeed.events import OffsetRange
from lakefeed.formats.json.format import JsonFormat
from lakefeed.sources.kafka import fetch as kafka_fetch
from lakefeed.sources.kafka.source import KafkaSource
from support.kafka import Broker

PARTITIONS = 16
WAITING = 2_000


@pytest.fixture
def backlog(broker: Broker, topic: TopicFactory) -> Iterator[tuple[KafkaSource, str]]:
    """A topic of many partitions in which far more waits than a batch takes."""
    name = topic(PARTITIONS)
    for number in range(PARTITIONS):
        broker.produce(name, [f"{number}:{at}" for at in range(WAITING)], partition=number)
    yield KafkaSource(brokers=broker.address, topics=(name,), format=JsonFormat()), name
    # Kept for the next task of a worker, which this is not.
    while kafka_fetch._kept:
        kafka_fetch._kept.popitem()[1].close()


def read(source: KafkaSource, topic: str, start: int, end: int) -> list[str]:
    ranges = [OffsetRange(f"{topic}-{number}", start, end) for number in range(PARTITIONS)]
    return [payload.decode() for events in source.read(ranges) for payload in events.payloads if payload]


def test_ranges_of_many_partitions_are_read_whole_and_without_all_that_lies_behind_them(
    backlog: tuple[KafkaSource, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_over = 0

    class Counting(Consumer):
        def consume(self, *args: Any, **more: Any) -> list[Any]:
            nonlocal handed_over
            found = super().consume(*args, **more)
            handed_over += len(found)
            return found

    monkeypatch.setattr("lakefeed.sources.kafka.fetch.Consumer", Counting)

    batches = [read(*backlog, start, start + 50) for start in (0, 50, 100)]

    for batch, start in zip(batches, (0, 50, 100), strict=True):
        wanted = [f"{number}:{at}" for number in range(PARTITIONS) for at in range(start, start + 50)]
        assert sorted(batch) == sorted(wanted)
    assert handed_over <= 3 * 3 * PARTITIONS * 50


def test_the_last_events_of_many_partitions_are_read_to_their_end(
    backlog: tuple[KafkaSource, str],
) -> None:
    found = read(*backlog, WAITING - 300, WAITING)

    assert len(found) == len(set(found)) == 300 * PARTITIONS


def test_a_long_stretch_of_aborted_events_is_progress_and_not_a_source_that_is_away(
    broker: Broker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    aborted = [b"x" * 1000] * 4_000
    broker.transaction(name, aborted, commit=False)
    broker.produce(name, ["after"])
    end = broker.end_offsets(name)[0]
    monkeypatch.setattr("lakefeed.sources.kafka.fetch._PATIENCE", 0.5)
    # One event at a time, so that passing over them takes longer than the patience.
    slow = {"fetch.message.max.bytes": "1000", "statistics.interval.ms": "100"}
    source = KafkaSource(brokers=broker.address, topics=(name,), format=JsonFormat(), options=slow)

    found = [p for events in source.read([OffsetRange(f"{name}-0", 0, end)]) for p in events.payloads]

    assert found == [b"after"]


def test_events_are_handed_over_in_chunks_of_bounded_bytes(
    broker: Broker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakefeed.sources.kafka.fetch._CHUNK_BYTES", 100_000)
    name = topic()
    sizes = [10] * 500 + [60_000] * 20 + [400_000] + [10] * 500
    broker.produce(name, [b"x" * size for size in sizes], partition=0)
    source = KafkaSource(brokers=broker.address, topics=(name,), format=JsonFormat())

    chunks = [list(events.payloads) for events in source.read([OffsetRange(f"{name}-0", 0, len(sizes))])]

    assert [len(payload) for chunk in chunks for payload in chunk if payload] == sizes
    assert all(len(chunk) == 1 or sum(map(len, filter(None, chunk))) <= 200_000 for chunk in chunks)


def test_a_client_that_fetches_no_more_is_replaced(
    backlog: tuple[KafkaSource, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clients: list[Consumer] = []

    class Deaf(Consumer):
        """The first one hears its first events, and nothing after them."""

        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.heard = 0
            clients.append(self)

        def consume(self, *args: Any, **more: Any) -> list[Any]:
            if self is clients[0] and self.heard:
                time.sleep(0.05)
                return []
            found = super().consume(*args, **more)
            self.heard += len(found)
            return found

    monkeypatch.setattr("lakefeed.sources.kafka.fetch.Consumer", Deaf)
    monkeypatch.setattr("lakefeed.sources.kafka.fetch._RENEW_AFTER", 0.5)
    while kafka_fetch._kept:
        kafka_fetch._kept.popitem()[1].close()

    found = read(*backlog, 0, 100)

    wanted = [f"{number}:{at}" for number in range(PARTITIONS) for at in range(100)]
    assert sorted(found) == sorted(wanted)
    assert len(clients) == 2
