"""A member of a consumer group that reads nothing: it learns which partitions this process is to read."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from lakefeed.errors import SourceError, SourceUnavailable
from lakefeed.events import Offsets
from lakefeed.sources import Membership
from lakefeed.sources.kafka.source import KafkaSource, partition_name, topic_and_number

_PATIENCE = 60.0
_POLL = 0.1
_TOPICS_EVERY = 5.0
"""Seconds between two looks for the topics of a pattern, as the driver looks for them."""
_TOPICS_TIMEOUT = 5.0
_log = logging.getLogger("lakefeed")


class GroupMember(Membership):
    """Holds the membership in a thread of its own, so that a long batch does not cost it.

    Events are fetched by ranges as ever: every partition that is assigned is paused here at once. Topics are
    subscribed to by name: the client's own patterns are POSIX's, which match other topics than those that the
    driver reads, or none.
    """

    def __init__(self, source: KafkaSource, pipeline: str, name: str) -> None:
        self._name, self._source = name, source
        self._group = source.group or f"lakefeed-{pipeline}"
        self._lock = threading.Lock()
        self._own: frozenset[str] = frozenset()
        self._generation = 0
        self._wanted: Offsets = {}
        self._trouble = ""
        self._failure: Exception | None = None
        self._settled = False
        self._subscribed: frozenset[str] = frozenset()
        self._looked_at: float | None = None
        self._assigned, self._closing = threading.Event(), threading.Event()
        settings = {
            **source.settings(),
            "group.id": self._group,
            "enable.auto.commit": False,
            # `_assign` and `_revoke` are given everything that is assigned, not what has changed of it.
            "group.protocol": "classic",
            "partition.assignment.strategy": "range,roundrobin",
            "error_cb": self._remember,
        }
        try:
            self._consumer = Consumer({**settings, "log_level": 0})
            if source.topics:
                self._subscribe(frozenset(source.topics))
        except KafkaException as error:
            raise SourceError(
                f"source {name}: the client refuses its options: {error.args[0].str()}"
            ) from error
        self._thread = threading.Thread(target=self._live, name=f"{name}-group", daemon=True)
        self._thread.start()

    def wait(self, stop: threading.Event) -> None:
        """Wait for the first assignment. Raises SourceUnavailable when there is none for long."""
        until = time.monotonic() + _PATIENCE
        while not self._assigned.wait(_POLL) and not stop.is_set():
            self._check()
            if time.monotonic() > until:
                why = f": {self._trouble}" if self._trouble else ""
                raise SourceUnavailable(
                    f"source {self._name}: group {self._group} has assigned nothing to this process in "
                    f"{_PATIENCE:.0f} seconds{why}"
                )

    @property
    def generation(self) -> int:
        """Grows whenever the group is rebalanced."""
        self._check()
        with self._lock:
            return self._generation

    @property
    def is_settled(self) -> bool:
        """False from a revocation to the next assignment."""
        with self._lock:
            return self._settled

    @property
    def has_ended(self) -> bool:
        """Whether its thread has failed."""
        return self._failure is not None

    def own(self, offsets: Offsets) -> Offsets:
        """What of it is about partitions that the group has assigned to this process."""
        self._check()
        return self._among_own(offsets)

    def acknowledge(self, positions: Offsets) -> None:
        """Let the member's own thread commit the group's offsets; while it polls, nobody else may."""
        with self._lock:
            self._wanted = dict(positions)

    def close(self) -> None:
        """Leave the group, so that the others get the partitions at once."""
        self._closing.set()
        self._thread.join(10.0)

    def _check(self) -> None:
        """Raise what has ended the thread: a member that polls no more owns nothing."""
        if self._failure is not None:
            raise SourceUnavailable(
                f"source {self._name}: the membership in group {self._group} has failed: {self._failure}"
            ) from self._failure

    def _among_own(self, offsets: Offsets) -> Offsets:
        with self._lock:
            return {name: at for name, at in offsets.items() if name in self._own}

    def _live(self) -> None:
        try:
            while not self._closing.is_set():
                if not self._source.topics:
                    self._look_for_topics()
                message = self._consumer.poll(_POLL)
                # All partitions are paused: it can only be an error.
                if message is not None and (error := message.error()) is not None:
                    self._remember(error)
                self._commit()
            self._commit()
        except Exception as error:
            self._failure = error
        with suppress(KafkaException, RuntimeError):
            self._consumer.close()

    def _look_for_topics(self) -> None:
        """Subscribe to the topics that the pattern means, as they come and go."""
        now = time.monotonic()
        if self._looked_at is not None and now - self._looked_at < _TOPICS_EVERY:
            return
        self._looked_at = now
        try:
            topics = self._consumer.list_topics(timeout=_TOPICS_TIMEOUT).topics
        except KafkaException as error:
            self._remember(error.args[0])
            return
        found = frozenset(topic for topic in topics if self._source.means(topic))
        if found != self._subscribed:
            self._subscribe(found)

    def _subscribe(self, topics: frozenset[str]) -> None:
        self._subscribed = topics
        if not topics:
            self._consumer.unsubscribe()
            return
        self._consumer.subscribe(
            sorted(topics), on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke
        )

    def _commit(self) -> None:
        """Commit what has moved, for lag tools; nobody here reads it."""
        with self._lock:
            wanted, self._wanted = self._wanted, {}
        moved = [TopicPartition(*topic_and_number(name), at) for name, at in self._among_own(wanted).items()]
        # A member that was just replaced may not commit, which does no harm: its successor does.
        with suppress(KafkaException):
            if moved:
                self._consumer.commit(offsets=moved, asynchronous=True)

    def _assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        consumer.assign(partitions)
        consumer.pause(partitions)
        names = sorted(partition_name(one.topic, one.partition) for one in partitions)
        _log.info("source %s: group %s: reads %s", self._name, self._group, ", ".join(names) or "nothing")
        self._change(frozenset(names), settled=True)
        self._assigned.set()

    def _revoke(self, consumer: Any, _: list[TopicPartition]) -> None:
        self._change(frozenset(), settled=False)
        with suppress(KafkaException):
            consumer.unassign()

    def _change(self, names: frozenset[str], *, settled: bool) -> None:
        with self._lock:
            self._settled = settled
            self._own, self._generation = names, self._generation + 1

    def _remember(self, error: Any) -> None:
        self._trouble = str(error.str())
