"""A Kafka broker in memory, and the two clients of librdkafka that the product asks: no socket, no thread.

The product's own source code runs above them: positions, ends, ranges, gaps of transactions, lost events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from confluent_kafka import KafkaError, TopicPartition, Uuid
from confluent_kafka.admin import OffsetSpec

EARLIEST, LATEST = OffsetSpec.earliest()._value, OffsetSpec.latest()._value
CREATE_TIME = 1


@dataclass(frozen=True)
class Message:
    """A message as librdkafka hands it over, or the end of a partition."""

    at_topic: str
    number: int
    at: int
    payload: bytes | None = None
    at_key: bytes | None = None
    milliseconds: int = 0
    named: tuple[tuple[str, bytes | None], ...] | None = None
    refusal: KafkaError | None = None

    def topic(self) -> str:
        return self.at_topic

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes | None:
        return self.payload

    def key(self) -> bytes | None:
        return self.at_key

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return None if self.named is None else list(self.named)

    def timestamp(self) -> tuple[int, int]:
        return CREATE_TIME, self.milliseconds

    def error(self) -> KafkaError | None:
        return self.refusal

    def __len__(self) -> int:
        return len(self.payload or b"")


@dataclass
class Partition:
    """The log of one partition: messages by offset, with gaps where a transaction has its markers."""

    messages: list[Message] = field(default_factory=list)
    first: int = 0
    end: int = 0


class Broker:
    """Topics and their partitions."""

    def __init__(self) -> None:
        self.topics: dict[str, list[Partition]] = {}

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic, or give it more partitions."""
        known = self.topics.setdefault(topic, [])
        known.extend(Partition() for _ in range(partitions - len(known)))

    def produce(
        self,
        topic: str,
        number: int,
        payload: bytes | None,
        *,
        key: bytes | None = None,
        milliseconds: int = 0,
        headers: tuple[tuple[str, bytes | None], ...] | None = None,
        gap: int = 0,
    ) -> int:
        """Append a message after so many offsets that no reader gets; returns its offset."""
        partition = self.topics[topic][number]
        at = partition.end + gap
        partition.messages.append(Message(topic, number, at, payload, key, milliseconds, headers))
        partition.end = at + 1
        return at

    def end_transaction(self, topic: str, number: int) -> None:
        """A marker, which has an offset and is no message."""
        self.topics[topic][number].end += 1

    def clients(self) -> _Clients:
        """Stand-ins for the classes of `confluent_kafka` that answer from this broker."""
        return _Clients(self)


class _Clients:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the product's Kafka source talk to this broker."""
        from lakefeed.sources.kafka import fetch

        with (
            patch("lakefeed.sources.kafka.client.AdminClient", self.admin),
            patch("lakefeed.sources.kafka.fetch.Consumer", self.consumer),
            patch("lakefeed.sources.kafka.epochs.Consumer", self.consumer),
        ):
            try:
                yield
            finally:
                fetch._kept.clear()

    def admin(self, settings: dict[str, Any], **_: Any) -> _Admin:
        return _Admin(self._broker)

    def consumer(self, settings: dict[str, Any]) -> _Consumer:
        return _Consumer(self._broker)


class _Admin:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics=dict.fromkeys(self._broker.topics))

    def describe_topics(self, asked: Any, request_timeout: float) -> dict[str, Future[Any]]:
        return {
            name: _answer(
                SimpleNamespace(
                    topic_id=Uuid(1, sum(name.encode()) + 1),
                    partitions=[SimpleNamespace(id=at) for at in range(len(self._broker.topics[name]))],
                )
            )
            for name in asked.topic_names
        }

    def list_offsets(self, asked: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[Any]]:
        found = {}
        for at, spec in asked.items():
            partition = self._broker.topics[at.topic][at.partition]
            offset = {EARLIEST: partition.first, LATEST: partition.end}[spec._value]
            found[at] = _answer(SimpleNamespace(offset=offset, leader_epoch=0))
        return found

    def alter_consumer_group_offsets(self, asked: Any, request_timeout: float) -> dict[str, Future[Any]]:
        return {asked[0].group_id: _answer(SimpleNamespace(topic_partitions=[]))}

    def poll(self, timeout: float) -> None:
        """Nothing to tell."""


class _Consumer:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._next: dict[tuple[str, int], int] = {}
        self._ended: set[tuple[str, int]] = set()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._next = {(one.topic, one.partition): one.offset for one in partitions}
        self._ended = set()

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        for one in partitions:
            self._next.pop((one.topic, one.partition), None)

    def consume(self, most: int, timeout: float) -> list[Message]:
        found: list[Message] = []
        for (topic, number), at in self._next.items():
            partition = self._broker.topics[topic][number]
            own = [one for one in partition.messages if one.at >= at][: most - len(found)]
            found += own
            if own:
                self._next[topic, number] = own[-1].at + 1
                self._ended.discard((topic, number))
            elif len(found) < most and (topic, number) not in self._ended:
                self._ended.add((topic, number))
                eof = KafkaError(KafkaError._PARTITION_EOF)
                found.append(Message(topic, number, partition.end, refusal=eof))
        return found

    def get_watermark_offsets(self, at: TopicPartition, timeout: float) -> tuple[int, int]:
        partition = self._broker.topics[at.topic][at.partition]
        return partition.first, partition.end

    def close(self) -> None:
        self._next = {}


def _answer(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


__all__ = ["Broker", "Message", "Sequence"]
