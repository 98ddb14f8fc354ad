"""Fetching ranges of Kafka offsets on a worker, through one consumer that the worker keeps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from lakefeed.errors import SourceError, SourceUnavailable
from lakefeed.events import OffsetRange
from lakefeed.sources.kafka.source import KafkaEvents, KafkaSource, topic_and_number

_CHUNK = 50_000
_LARGE = 10_000
_CHUNK_BYTES = 16 * 2**20
"""Payload bytes that are decoded together; a single event may be larger."""
_FIRST_GUESS = 16 * 1024
"""Bytes of an event, until some have shown how large they are."""
_WAIT = 0.1
_RENEW_AFTER = 10.0
"""Seconds without progress after which the client is replaced: one that was kept over a broker's restart may
never fetch again. The driver has seen that the events are there."""
_PATIENCE = 60.0
"""Seconds without a single event or any progress after which the task gives the range back."""
_ANSWER = 10.0
"""Seconds within which a broker says which offsets a partition has."""

_SETTINGS = {
    "group.id": "lakefeed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    # Control records and aborted transactions are not delivered: only this tells that a partition ends there.
    "enable.partition.eof": True,
    # One second by default, for which fetching stalls whenever the queue has been full.
    "fetch.queue.backoff.ms": 5,
    # What is fetched beyond the end of a range is thrown away, so little is fetched ahead: with 64 MB, as by
    # default, a range of some MB costs half as much CPU again.
    "queued.max.messages.kbytes": 4_096,
    "fetch.message.max.bytes": 524_288,
    "fetch.wait.max.ms": 100,
    # How far the client has come, every so many milliseconds: events of aborted transactions are passed over
    # in silence, however many they are.
    "statistics.interval.ms": 5_000,
    # The largest answer of a broker, 100 MB by default: an event as large as that would never arrive.
    "receive.message.max.bytes": 1_000_000_000,
}

# The driver then compares positions with what the brokers hold, and tells of lost events.
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE)
_PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE)

TopicAndNumber = tuple[str, int]
Message = Any
"""A message of librdkafka. Its own type says that everything may be missing, which is true of errors only."""
_kept: dict[str, _Reader] = {}


def fetch(source: KafkaSource, ranges: Sequence[OffsetRange]) -> Iterator[KafkaEvents]:
    """Yield every event of the ranges, each once, in the order of each partition."""
    settings = {**_SETTINGS, **source.settings()}
    key = repr(sorted(settings.items()))
    reader = _kept.pop(key, None) or _Reader(settings)
    try:
        yield from reader.read(ranges)
    except BaseException:
        reader.close()
        raise
    _kept[key] = reader


class _Reader:
    """A consumer and where it stands. Kept between tasks: a new connection costs more than a small batch."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._stands: dict[TopicAndNumber, int] = {}
        self._settings = settings
        self._consumer = self._connect()
        self._strayed = True
        self._refused: set[TopicAndNumber] = set()
        """Partitions of this read whose offset the client has once called gone although the broker has it."""
        self._let_go_of: set[TopicAndNumber] = set()
        self._bytes_per_event = float(_FIRST_GUESS)
        self._quiet_since = 0.0
        self._fetched_to: dict[TopicAndNumber, int] = {}

    def _connect(self) -> Consumer:
        try:
            return Consumer({**self._settings, "stats_cb": self._see})
        except (KafkaException, ValueError) as error:
            raise SourceError(f"the Kafka client refuses its options: {error}") from error

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[KafkaEvents]:
        """Small ranges together, as a round trip for each would cost more than they.

        Large ones one by one.
        """
        small = [span for span in ranges if len(span) < _LARGE]
        if small:
            yield from self._read_together(small)
        for span in ranges:
            if len(span) >= _LARGE:
                yield from self._read_together([span])

    def close(self) -> None:
        self._consumer.close()

    def _read_together(self, spans: Sequence[OffsetRange]) -> Iterator[KafkaEvents]:
        self._go_to({topic_and_number(span.partition): span.start for span in spans})
        ends = {topic_and_number(span.partition): span.end for span in spans}
        only = spans[0].partition if len(spans) == 1 else None
        sort_out = self._sort_out_one if only else self._sort_out_many
        self._refused = set()
        self._quiet_since = time.monotonic()
        renewed_at = self._quiet_since
        waiting: list[Message] = []
        size = 0
        while left := self._left(ends):
            # What is asked for at once may all be of one partition, and lie behind its end.
            messages = self._consumer.consume(min(max(left), self._at_once()), _WAIT)
            good = [message for message in messages if message.error() is None]
            inside = sort_out(good, ends)
            # After the events: an end that comes with them lies behind them, beyond a transaction's marker.
            if len(good) < len(messages):
                refused = len(self._refused)
                self._hear([message for message in messages if message.error() is not None], ends)
                if len(self._refused) > refused:
                    self._renew(ends)
                    renewed_at = time.monotonic()
            if inside:
                waiting += inside
                self._quiet_since = time.monotonic()
                size += self._learn(inside)
                if len(waiting) >= _LARGE or size >= _CHUNK_BYTES:
                    yield from _chunks(waiting, size, only)
                    waiting, size = [], 0
            elif time.monotonic() - self._quiet_since > _PATIENCE:
                where = ", ".join(f"{topic}-{number} at {at}" for (topic, number), at in self._stands.items())
                raise SourceUnavailable(f"no event came from {where} for {_PATIENCE:.0f} s")
            elif time.monotonic() - max(self._quiet_since, renewed_at) > _RENEW_AFTER:
                self._renew(ends)
                renewed_at = time.monotonic()
        if waiting:
            yield from _chunks(waiting, size, only)

    def _at_once(self) -> int:
        """How many events to ask for, so that what comes is about as much as is decoded together."""
        return max(1, min(_CHUNK, int(_CHUNK_BYTES / self._bytes_per_event)))

    def _learn(self, messages: list[Message]) -> int:
        """Note how large events are; returns the bytes of these."""
        size = sum(map(len, messages))
        self._bytes_per_event = max(1.0, size / len(messages))
        return size

    def _see(self, statistics: str) -> None:
        """Note whether the client has come further, be it without an event to hand over."""
        fetched_to = {
            (topic, int(number)): told["next_offset"]
            for topic, about in orjson.loads(statistics)["topics"].items()
            for number, told in about["partitions"].items()
            if (topic, int(number)) in self._stands
        }
        if fetched_to != self._fetched_to:
            self._fetched_to, self._quiet_since = fetched_to, time.monotonic()

    def _left(self, ends: dict[TopicAndNumber, int]) -> list[int]:
        """How many events are missing of each partition that is not complete."""
        return [ends[partition] - at for partition, at in self._stands.items() if at < ends[partition]]

    def _renew(self, ends: dict[TopicAndNumber, int]) -> None:
        """Go on with a new client, from where the old one stood."""
        self._consumer.close()
        self._consumer = self._connect()
        left = {partition: at for partition, at in self._stands.items() if at < ends[partition]}
        self._consumer.assign([TopicPartition(topic, number, at) for (topic, number), at in left.items()])
        self._let_go_of = set(self._stands) - set(left)

    def _go_to(self, starts: dict[TopicAndNumber, int]) -> None:
        if self._strayed or starts != self._stands:
            # Assigning throws away what was fetched ahead, so it is done only when the consumer stands
            # elsewhere.
            self._consumer.assign(
                [TopicPartition(topic, number, at) for (topic, number), at in starts.items()]
            )
            self._let_go_of = set()
        self._stands, self._strayed = starts, False

    def _sort_out_one(self, messages: list[Message], ends: dict[TopicAndNumber, int]) -> list[Message]:
        """The messages inside the one range; moves on where the consumer stands."""
        if not messages:
            return messages
        ((partition, end),) = ends.items()
        if messages[-1].offset() >= end:
            messages = [message for message in messages if message.offset() < end]
            self._stands[partition], self._strayed = end, True
        else:
            self._stands[partition] = messages[-1].offset() + 1
        return messages

    def _sort_out_many(self, messages: list[Message], ends: dict[TopicAndNumber, int]) -> list[Message]:
        inside = []
        beyond: set[TopicAndNumber] = set()
        for message in messages:
            partition, offset = (message.topic(), message.partition()), message.offset()
            if offset < ends[partition]:
                inside.append(message)
                self._stands[partition] = offset + 1
            else:
                self._stands[partition], self._strayed = ends[partition], True
                beyond.add(partition)
        self._let_go(beyond)
        return inside

    def _let_go(self, partitions: set[TopicAndNumber]) -> None:
        """Fetch no more of partitions that are complete; they would be fetched until the others are, too."""
        if new := partitions - self._let_go_of:
            self._consumer.incremental_unassign([TopicPartition(*partition) for partition in new])
            self._let_go_of |= new

    def _hear(self, errors: list[Message], ends: dict[TopicAndNumber, int]) -> None:
        """Note ends of partitions; raise what the client will not get over by itself."""
        for message in errors:
            error = message.error()
            partition = (message.topic(), message.partition())
            where = f"{partition[0]}-{partition[1]}"
            if message.topic() is not None and partition not in ends:
                # Of what was fetched ahead after a read before this one; the topic may be gone by now.
                continue
            if error.code() == KafkaError._PARTITION_EOF:
                if message.offset() >= ends[partition]:
                    self._stands[partition] = ends[partition]
            elif error.code() in _GONE:
                self._refuse(partition, ends, error.str())
            elif error.fatal() or error.code() == KafkaError._SSL:
                raise SourceError(f"{where}: {error.str()}")
            elif error.code() not in _PASSING:
                # Also a refused login or a missing right: a token may be renewed, a right may come back.
                raise SourceUnavailable(f"{where}: {error.str()}")

    def _refuse(self, partition: TopicAndNumber, ends: dict[TopicAndNumber, int], reason: str) -> None:
        """Raise SourceUnavailable if the broker does not have the offset, or the client refuses it again.

        Otherwise, note that a new client is to fetch it: after a change of the leader, a kept client may
        compare epochs of which the broker knows nothing. Whether the log was truncated, the driver decides
        before it commits.
        """
        offset = self._stands[partition]
        if offset >= ends[partition]:
            # The client fetches no more of it.
            self._strayed = True
            return
        where = f"{partition[0]}-{partition[1]}"
        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(*partition), _ANSWER)
        except KafkaException as error:
            raise SourceUnavailable(f"{where}: {error.args[0].str()}") from error
        if not low <= offset <= high:
            raise SourceUnavailable(
                f"{where}: offset {offset} is gone, the partition has {low} to {high - 1}: {reason}"
            )
        if partition in self._refused:
            raise SourceUnavailable(f"{where}: offset {offset} cannot be fetched: {reason}")
        self._refused.add(partition)


def _chunks(messages: list[Message], size: int, partition: str | None) -> Iterator[KafkaEvents]:
    """Events that are decoded together: all of them, unless they are far larger than those before."""
    if size <= 2 * _CHUNK_BYTES:
        yield KafkaEvents(messages, partition)
        return
    first = held = 0
    for at, message in enumerate(messages):
        if held and held + len(message) > _CHUNK_BYTES:
            yield KafkaEvents(messages[first:at], partition)
            first, held = at, 0
        held += len(message)
    yield KafkaEvents(messages[first:], partition)
