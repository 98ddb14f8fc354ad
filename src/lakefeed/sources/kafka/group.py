"""A consumer group's offsets, committed for those who watch Kafka's own lag; nobody reads them here."""

from __future__ import annotations

import logging
from concurrent.futures import TimeoutError as NoAnswer
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from lakefeed.events import Offsets
from lakefeed.sources.kafka.source import topic_and_number

_TIMEOUT = 10.0
_LAST_WAIT = 2.0
_log = logging.getLogger("lakefeed")
_warned: set[tuple[str, str]] = set()


class ConsumerGroup:
    """Commits offsets beside the stream: never waits while events flow, and never raises.

    One request is under way at a time, so that an older one cannot arrive after a newer one.
    """

    def __init__(self, admin: AdminClient, source: str, group: str) -> None:
        self._admin = admin
        self._source = source
        self._group = group
        self._wanted: Offsets = {}
        self._sent: Offsets = {}
        self._under_way: Any = None

    def commit(self, positions: Offsets) -> None:
        """Note the next offsets, and send them unless an answer is still awaited."""
        self._wanted = dict(positions)
        self.go_on()

    def go_on(self) -> None:
        """Send what waits, if the answer to what was sent before is there."""
        if self._under_way is not None and self._under_way.done():
            self._hear(0)
        if self._under_way is None and self._wanted != self._sent:
            self._send()

    def close(self) -> None:
        """Give the last offsets a moment to arrive."""
        if self._under_way is not None:
            self._hear(_LAST_WAIT)
        if self._under_way is None and self._wanted != self._sent:
            self._send()
            self._hear(_LAST_WAIT)

    def _send(self) -> None:
        moved = {p: at for p, at in self._wanted.items() if self._sent.get(p) != at}
        self._sent = self._wanted
        offsets = [TopicPartition(*topic_and_number(partition), at) for partition, at in moved.items()]
        try:
            asked = [ConsumerGroupTopicPartitions(self._group, offsets)]
            answers = self._admin.alter_consumer_group_offsets(asked, request_timeout=_TIMEOUT)
            self._under_way = answers[self._group]
        except (KafkaException, ValueError) as error:
            self._warn(error)

    def _hear(self, timeout: float) -> None:
        if self._under_way is None:
            return
        try:
            answered = self._under_way.result(timeout).topic_partitions
            refused = [one.error for one in answered if one.error]
            if refused:
                self._warn(KafkaException(refused[0]))
        except NoAnswer:
            return
        except Exception as error:
            self._warn(error)
        self._under_way = None

    def _warn(self, error: Exception) -> None:
        """Once for each group of a source: it does no harm, and the next batch tries again."""
        key = (self._source, self._group)
        level = logging.DEBUG if key in _warned else logging.WARNING
        _warned.add(key)
        _log.log(
            level,
            "source %s: the offsets of consumer group %s could not be committed: %s. "
            "Lag tools do not see this pipeline; its tables are not affected.",
            self._source,
            self._group,
            error.args[0].str() if isinstance(error, KafkaException) else error,
        )
