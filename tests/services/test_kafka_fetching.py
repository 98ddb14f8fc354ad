"""What a worker fetches from a real broker for the ranges that it is given; without Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition

from conftest import TopicFactory
from lakefeed.errors import SourceUnavailable
from lakefeed.events import OffsetRange
from lakefeed.formats.json.format import JsonFormat
from lakefeed.sources.kafka import fetch as kafka_fetch
from lakefeed.sources.kafka.source import KafkaSource
from support.kafka import Broker
from support.offline import close_consumers

PARTITIONS = 16
WAITING = 2_000


@pytest.fixture(scope="module")
def waiting(broker: Broker) -> str:
    """A topic of many partitions in which far more waits than a batch takes; it is only read."""
    name = f"events-{uuid4().hex[:12]}"
    broker.create_topic(name, PARTITIONS)
    for number in range(PARTITIONS):
        broker.produce(name, [f"{number}:{at}" for at in range(WAITING)], partition=number)
    return name


@pytest.fixture
def backlog(broker: Broker, waiting: str) -> tuple[KafkaSource, str]:
    return KafkaSource(brokers=broker.address, topics=(waiting,), format=JsonFormat()), waiting


@pytest.fixture(autouse=True)
def no_consumers_are_kept() -> Iterator[None]:
    """They are kept for the next task of a worker, which the next test is not."""
    yield
    close_consumers()


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


class Slow(Consumer):
    """Passes over events for 200 seconds, by the clock of its reader, and its statistics tell how far."""

    now: ClassVar[float] = 0.0

    def __init__(self, settings: dict[str, Any]) -> None:
        self._see, self._looks = settings["stats_cb"], 0
        self._statistics: list[str] = []
        self._found: list[Any] = []
        super().__init__({**settings, "stats_cb": self._statistics.append})

    def consume(self, *args: Any, **more: Any) -> list[Any]:
        if self._looks == 5:
            found, self._found = self._found, []
            return found or super().consume(*args, **more)
        while not self._statistics:
            self._found += super().consume(1, 0.01)
        self._looks += 1
        Slow.now += 40.0
        told = json.loads(self._statistics[-1])
        for topic in told["topics"].values():
            assert "next_offset" in topic["partitions"]["0"]
            topic["partitions"]["0"]["next_offset"] = self._looks
        self._see(json.dumps(told))
        return []


def test_a_long_stretch_of_aborted_events_is_progress_and_not_a_source_that_is_away(
    broker: Broker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    broker.transaction(name, [b"x"] * 100, commit=False)
    broker.produce(name, ["after"])
    end = broker.end_offsets(name)[0]
    monkeypatch.setattr(Slow, "now", 0.0)
    monkeypatch.setattr(kafka_fetch, "Consumer", Slow)
    monkeypatch.setattr(kafka_fetch, "time", SimpleNamespace(monotonic=lambda: Slow.now))
    monkeypatch.setattr(kafka_fetch, "_RENEW_AFTER", 600.0)
    options = {"statistics.interval.ms": "10"}
    source = KafkaSource(brokers=broker.address, topics=(name,), format=JsonFormat(), options=options)

    found = [p for events in source.read([OffsetRange(f"{name}-0", 0, end)]) for p in events.payloads]

    assert found == [b"after"]
    assert Slow.now == 200.0 > kafka_fetch._PATIENCE


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
    monkeypatch.setattr("lakefeed.sources.kafka.fetch._RENEW_AFTER", 2.0)

    found = read(*backlog, 0, 100)

    wanted = [f"{number}:{at}" for number in range(PARTITIONS) for at in range(100)]
    assert sorted(found) == sorted(wanted)
    # A third one only where the second does not get its first events within the two seconds.
    assert len(clients) >= 2


class Misled(Consumer):
    """Claims an epoch of the leader that no broker has had, so the brokers cannot find its offsets."""

    assignments = 0
    lasting = False

    def assign(self, partitions: list[TopicPartition]) -> None:
        if not Misled.assignments or Misled.lasting:
            partitions = [
                TopicPartition(one.topic, one.partition, one.offset, leader_epoch=99) for one in partitions
            ]
        Misled.assignments += 1
        super().assign(partitions)


def test_an_offset_that_the_client_refuses_and_the_broker_has_is_fetched_by_a_new_client(
    backlog: tuple[KafkaSource, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Misled, "assignments", 0)
    monkeypatch.setattr("lakefeed.sources.kafka.fetch.Consumer", Misled)

    found = read(*backlog, 50, 100)

    wanted = [f"{number}:{at}" for number in range(PARTITIONS) for at in range(50, 100)]
    assert sorted(found) == sorted(wanted)
    assert Misled.assignments > 1


def test_an_offset_that_every_client_refuses_ends_the_read(
    backlog: tuple[KafkaSource, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Misled, "assignments", 0)
    monkeypatch.setattr(Misled, "lasting", True)
    monkeypatch.setattr("lakefeed.sources.kafka.fetch.Consumer", Misled)

    with pytest.raises(SourceUnavailable, match="offset 50 cannot be fetched: "):
        read(*backlog, 50, 100)


def test_an_offset_that_retention_has_taken_is_gone(broker: Broker, topic: TopicFactory) -> None:
    name = topic()
    broker.produce(name, [str(at) for at in range(100)])
    broker.delete_records(name, 0, 80)
    source = KafkaSource(brokers=broker.address, topics=(name,), format=JsonFormat())

    with pytest.raises(SourceUnavailable, match=f"{name}-0: offset 50 is gone, the partition has 80 to 99: "):
        list(source.read([OffsetRange(f"{name}-0", 50, 90)]))


def test_an_error_about_a_topic_of_an_earlier_read_is_no_error_of_this_one(
    broker: Broker, topic: TopicFactory
) -> None:
    soon = {"topic.metadata.refresh.interval.ms": "100", "topic.metadata.propagation.max.ms": "100"}
    earlier, name = topic(), topic()
    broker.produce(earlier, ["x"] * 100)
    broker.produce(name, ["y"] * 100)

    def found(topic_name: str) -> list[bytes | None]:
        source = KafkaSource(brokers=broker.address, topics=(topic_name,), format=JsonFormat(), options=soon)
        span = OffsetRange(f"{topic_name}-0", 0, 50)
        return [payload for events in source.read([span]) for payload in events.payloads]

    assert found(earlier) == [b"x"] * 50
    broker.delete_topic(earlier)
    broker.create_topic(earlier)
    # The kept client goes on fetching where it was, and hears that the offset is out of range.
    time.sleep(2)

    assert found(name) == [b"y"] * 50
