"""Whether a partition was cut short behind a change of its leader, asked by the leader's epoch.

A leader that has lost events takes new ones at the offsets of the old. Offsets alone do not show that: the
end of the partition may soon lie behind a table's position again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from lakefeed.errors import SourceUnavailable
from lakefeed.sources.kafka.source import KafkaSource, partition_name, topic_and_number

_SETTINGS = {
    "group.id": "lakefeed",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    # Only the first event of each partition is looked at.
    "queued.max.messages.kbytes": 64,
    "fetch.message.max.bytes": 4_096,
    "receive.message.max.bytes": 1_000_000_000,
    "log_level": 0,
}
_ALWAYS = {
    "enable.partition.eof": True,
    # Any event is an answer. Those of aborted transactions would be passed over, however many they are.
    "isolation.level": "read_uncommitted",
}
_CUT = (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE)
_END = re.compile(r"broker end offset is (-?\d+)")

Asked = tuple[int, int]
"""A position, and the epoch of the leader that it was read from."""


def cut_short(source: KafkaSource, asked: Mapping[str, Asked], timeout: float) -> dict[str, int | None]:
    """The partitions whose events before the position are not those that were read, and where that begins.

    None where the brokers do not tell. Raises SourceUnavailable when they do not answer in time.
    """
    consumer = Consumer({**_SETTINGS, **source.settings(), **_ALWAYS})
    try:
        consumer.assign(
            [
                TopicPartition(*topic_and_number(partition), at, leader_epoch=epoch)
                for partition, (at, epoch) in asked.items()
            ]
        )
        return _answers(consumer, set(asked), time.monotonic() + timeout)
    finally:
        consumer.close()


def _answers(consumer: Consumer, waiting: set[str], deadline: float) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    while waiting:
        if time.monotonic() > deadline:
            raise SourceUnavailable(
                f"{min(waiting)}: no answer about its leader; the brokers are asked again"
            )
        # One by one: what else lies in a partition is of no interest, and may be large.
        message: Any = consumer.poll(0.1)
        if message is None or message.topic() is None:
            continue
        partition = partition_name(message.topic(), message.partition())
        error = message.error()
        if error is not None and error.code() in _CUT:
            told = _END.search(error.str())
            found[partition] = int(told[1]) if told and int(told[1]) >= 0 else None
        elif error is not None and error.code() != KafkaError._PARTITION_EOF:
            continue
        if partition in waiting:
            waiting.discard(partition)
            consumer.incremental_unassign([TopicPartition(message.topic(), message.partition())])
    return found
