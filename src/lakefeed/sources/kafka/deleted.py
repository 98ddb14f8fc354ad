"""Deleted topics that a table has read: which of their events were not read, as far as that is known."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lakefeed.errors import TopicDeleted
from lakefeed.events import Offsets
from lakefeed.sources import Finding
from lakefeed.sources.kafka.source import KafkaSource, topic_and_number
from lakefeed.text import counted, few

_log = logging.getLogger("lakefeed")


@dataclass(frozen=True)
class Deleted:
    """A partition that does not exist any more: the position of a table, and the last end that was seen."""

    partition: str
    position: int
    end: int | None

    @property
    def topic(self) -> str:
        """The topic."""
        return topic_and_number(self.partition)[0]

    @property
    def unread(self) -> int:
        """How many events the table certainly lacks."""
        return max(0, (self.end or 0) - self.position)


def skip_unread(source: KafkaSource, name: str, partitions: Iterable[Deleted]) -> Offsets:
    """The ends of partitions with unread events; raises TopicDeleted unless these may be skipped."""
    unread = [one for one in partitions if one.unread]
    ends = {one.partition: one.position + one.unread for one in unread}
    for topic in dict.fromkeys(one.topic for one in unread):
        parts = [one for one in unread if one.topic == topic]
        spans = few(
            f"{one.partition} from offset {one.position} to {one.position + one.unread - 1}" for one in parts
        )
        count = sum(one.unread for one in parts)
        text = (
            f"source {name}: topic {topic!r} was deleted; at least {counted(count, 'event')} "
            f"{'was' if count == 1 else 'were'} not read: {spans}."
        )
        if source.topics:
            # The topic is named, so that the run stops in any case.
            raise TopicDeleted(f"{text}\nTo continue without them, remove the topic from `topics`.", ends)
        if source.on_data_loss != "skip":
            remedy = "Set `on_data_loss: skip` on the source to continue without them."
            raise TopicDeleted(f"{text}\n{remedy}", ends)
        _log.warning("%s Continuing without them (`on_data_loss: skip`).", text)
    return ends


def findings(positions: Mapping[str, int]) -> dict[str, Finding]:
    """By topic: that it is deleted, and was read to these positions, with an unknown end."""
    topics: dict[str, list[str]] = {}
    for partition, at in sorted(positions.items()):
        topics.setdefault(topic_and_number(partition)[0], []).append(f"{partition} up to offset {at}")
    return {
        topic: Finding(
            "warn",
            f"topic {topic!r} was deleted while no run was reading it; {few(parts)} was read, and whether "
            "there were more events is not known",
            "Exclude the topic in `topic_pattern` to end this warning",
            topic,
        )
        for topic, parts in topics.items()
    }
