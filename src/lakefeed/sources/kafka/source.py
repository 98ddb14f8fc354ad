"""Kafka: topics read by librdkafka, ranges of offsets in the workers, ends of partitions on the driver."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from threading import Event
from typing import Annotated, Any, Literal, Self

import pyarrow as pa
from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeInt,
    StringConstraints,
    field_validator,
    model_validator,
)

from lakefeed.errors import SourceUnavailable
from lakefeed.events import ORIGIN, Events, OffsetRange
from lakefeed.pipeline.connectors import Connector, FormatField
from lakefeed.pipeline.options.client_options import Options
from lakefeed.pipeline.options.event_key import KeyFormatField
from lakefeed.pipeline.section import NAMES, UtcTime, as_list
from lakefeed.sources import Membership, Source, SourceClient

_PORT = re.compile(r":\d+$")
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
PartitionNumber = Annotated[str, StringConstraints(pattern=r"^([0-9]+|\*)$")]
Edge = Literal["earliest", "latest"]
Start = Edge | UtcTime | dict[str, dict[PartitionNumber, NonNegativeInt | Edge]]
OTHERS = "*"
"""In `start`: every partition of a topic that is not named."""


class KafkaSource(Source):
    """Topics of a Kafka cluster. A partition is named `topic-number`, as Kafka itself does.

    An item is a message of a committed transaction or of none. Partitions are read in parallel, and ranges of
    a large one too. It guarantees each message once and in the order of its partition, and it notices
    messages that retention, a truncated log or a topic made anew has taken away.
    """

    type: Literal["kafka"] = "kafka"
    format: FormatField = Field("json", validate_default=True, description="How a payload becomes columns.")
    key: KeyFormatField | None = Field(
        default=None,
        description="How a message's key becomes columns. With it, a message without a value deletes the row "
        "of its key, in tables with `mode: upsert` and `history`. Left out: such a message is refused.",
        examples=["json", {"type": "avro", "registry": "http://localhost:8081"}],
    )
    brokers: str = Field(
        description="Bootstrap brokers, separated by commas; without a port, 9092.",
        examples=["localhost:9092"],
    )
    topics: Annotated[tuple[str, ...], BeforeValidator(as_list), NAMES] = Field(
        (),
        description="The topics to read. Give either this or `topic_pattern`.",
        examples=[["ecomm.v1.clickstream"]],
    )
    topic_pattern: str | None = Field(
        None,
        description="A regular expression; all topics with a matching full name are read, also new ones.",
        examples=["ecomm\\..*"],
    )
    start: Start = Field(
        "earliest",
        description="Where a table without a position begins: `earliest`, `latest`, a timestamp (in UTC "
        "unless it names a zone), or offsets by topic and partition (partitions that are not "
        "named begin at the earliest, or where `*` says: `earliest` or `latest`).",
        examples=["latest", "2026-11-01T00:00:00Z", {"clicks": {"0": 123}}],
    )
    on_data_loss: Literal["fail", "skip"] = Field(
        "fail",
        description="What to do when the source has lost the offsets that a table needs next: `fail` stops "
        "and names them, `skip` continues with the earliest event that is left and logs how "
        "many were lost.",
    )
    group: str | None = Field(
        default=None,
        min_length=1,
        description="The consumer group whose offsets are committed after each batch, for lag tools; "
        "Lakefeed never reads them. Left out: `lakefeed-` and the pipeline's name.",
        examples=["shop-lake"],
    )
    assignment: Literal["all", "group"] = Field(
        "all",
        description="Which partitions a process reads: `all`, or with `group` those that the brokers assign "
        "to it. Then several processes run the same pipeline, members of one `group`, and share the "
        "partitions.",
    )
    options: Options = Field(
        default={},
        description="Passed to the client (librdkafka).",
        examples=[{"security.protocol": "SASL_SSL", "sasl.password": "${KAFKA_PASSWORD}"}],
    )

    @field_validator("brokers")
    @classmethod
    def _port_of_kafka(cls, value: str) -> str:
        """Add the port that a client would take in silence, so that messages name it."""
        brokers = [one.strip() for one in value.split(",")]
        return ",".join(one if not one or _PORT.search(one) else f"{one}:9092" for one in brokers)

    @field_validator("start")
    @classmethod
    def _others_begin_at_an_edge(cls, value: Start) -> Start:
        for topic, numbers in value.items() if isinstance(value, dict) else ():
            if isinstance(at := numbers.get(OTHERS), int):
                raise ValueError(
                    f"{topic}: `*` is {at}, which would be another event in each partition; "
                    "give `earliest` or `latest`, or name the partitions"
                )
        return value

    @field_validator("options")
    @classmethod
    def _options_that_are_ours(cls, value: dict[str, str]) -> dict[str, str]:
        for name in (
            "bootstrap.servers",
            "enable.auto.commit",
            "enable.auto.offset.store",
            "auto.offset.reset",
            "enable.partition.eof",
        ):
            if name in value:
                raise ValueError(f"{name} is set by Lakefeed: exactly-once depends on it")
        if "group.id" in value:
            raise ValueError("group.id is set by `group` of the source")
        return value

    @model_validator(mode="after")
    def _topics_or_pattern(self) -> Self:
        if bool(self.topics) == bool(self.topic_pattern):
            raise ValueError("give either topics or topic_pattern")
        return self

    @model_validator(mode="after")
    def _group_as_it_is_joined(self) -> Self:
        for name in ("group.protocol", "partition.assignment.strategy"):
            if self.assignment == "group" and name in self.options:
                raise ValueError(
                    f"{name} is set by Lakefeed with `assignment: group`; remove it from options"
                )
        return self

    @property
    def key_format(self) -> Connector | None:
        """A message without a value deletes by its key."""
        return self.key

    def client(self, pipeline: str, name: str) -> SourceClient:
        """Connect, on the driver."""
        from lakefeed.sources.kafka.client import KafkaClient

        return KafkaClient(self, pipeline, name)

    @property
    def shares_partitions(self) -> bool:
        """Whether processes share the partitions."""
        return self.assignment == "group"

    def join(self, pipeline: str, name: str, stop: Event) -> Membership | None:
        """Become a member of the group, where it assigns the partitions."""
        if not self.shares_partitions:
            return None
        from lakefeed.sources.kafka.membership import GroupMember

        member = GroupMember(self, pipeline, name)
        try:
            member.wait(stop)
        except SourceUnavailable:
            member.close()
            raise
        return member

    def means(self, topic: str) -> bool:
        """Whether the file means a topic, whether or not the topic exists."""
        if self.topics:
            return topic in self.topics
        return not topic.startswith("__") and bool(re.fullmatch(self.topic_pattern or "", topic))

    def known_streams(self) -> tuple[str, ...] | None:
        """The topics, unless there is a pattern for them."""
        return self.topics or None

    def partition_of(self, stream: str | None, number: int) -> str:
        """The name of a partition."""
        return partition_name(stream or "", number)

    def number_of(self, partition: str) -> int:
        """The number in its topic."""
        return topic_and_number(partition)[1]

    def stream_of(self, partition: str) -> str | None:
        """The topic."""
        return topic_and_number(partition)[0]

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Events]:
        """Yield every event of the ranges. Runs on a worker."""
        from lakefeed.sources.kafka.fetch import fetch

        return fetch(self, ranges)

    def settings(self) -> dict[str, Any]:
        """Client settings that driver and workers share."""
        return {
            "socket.keepalive.enable": True,
            "client.id": "lakefeed",
            "isolation.level": "read_committed",
            **self.options,
            "bootstrap.servers": self.brokers,
        }


def partition_name(topic: str, number: int) -> str:
    """The name of a partition, as Kafka writes it."""
    return f"{topic}-{number}"


def topic_and_number(partition: str) -> tuple[str, int]:
    """The topic and the number of a partition from its name."""
    topic, _, number = partition.rpartition("-")
    return topic, int(number)


class KafkaEvents(Events):
    """Messages as librdkafka gives them."""

    def __init__(self, messages: list[Any], partition: str | None) -> None:
        self._messages = messages
        self._partition = partition
        self.payloads = [message.value() for message in messages]

    def origin(self, rows: Sequence[int] | None = None) -> pa.RecordBatch:
        """`ORIGIN` columns; headers keep their order and their repetitions."""
        messages = self._chosen(rows)
        columns = [
            [message.topic() for message in messages],
            [message.partition() for message in messages],
            [message.offset() for message in messages],
            [_moment(message) for message in messages],
            [message.key() for message in messages],
            [_headers(message) for message in messages],
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, ORIGIN, strict=True)]
        return pa.record_batch(arrays, schema=ORIGIN)

    def timestamp_types(self, rows: Sequence[int] | None = None) -> Sequence[int]:
        """Who gave each message its time: the client counts from 0, Kafka from -1."""
        return [message.timestamp()[0] - 1 for message in self._chosen(rows)]

    def counts(self, rows: Sequence[int] | None = None) -> Mapping[str, int]:
        """How many messages of each partition."""
        if self._partition:
            return {self._partition: len(self._messages if rows is None else rows)}
        return Counter(self.partitions(rows).to_pylist())

    def partitions(self, rows: Sequence[int] | None = None) -> pa.Array:
        """The partition of each message."""
        chosen = self._chosen(rows)
        if self._partition:
            return pa.repeat(pa.scalar(self._partition), len(chosen))
        return pa.array(
            [partition_name(message.topic(), message.partition()) for message in chosen], pa.string()
        )

    def _chosen(self, rows: Sequence[int] | None) -> list[Any]:
        return self._messages if rows is None else [self._messages[row] for row in rows]


def _moment(message: Any) -> int | None:
    """Microseconds; None where there is no timestamp, or one of another unit, outside the years 1 to 9999."""
    kind, milliseconds = message.timestamp()
    return milliseconds * 1000 if kind and _FIRST_MS <= milliseconds <= _LAST_MS else None


def _headers(message: Any) -> list[dict[str, Any]] | None:
    headers = message.headers()
    if headers is None:
        return None
    return [{"key": key, "value": value if value is None else bytes(value)} for key, value in headers]
