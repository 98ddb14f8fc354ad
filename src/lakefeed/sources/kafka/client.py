"""Kafka as the driver sees it.

Which partitions exist, where they begin and end, which topic is behind a name.
"""

from __future__ import annotations

import datetime as dt
import difflib
import logging
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from lakefeed.errors import DataLoss, SourceError, SourceUnavailable
from lakefeed.events import DELETED_END, EPOCH, Offsets
from lakefeed.sources import Finding, SourceClient
from lakefeed.sources.kafka.deleted import Deleted, findings, skip_unread
from lakefeed.sources.kafka.epochs import cut_short
from lakefeed.sources.kafka.group import ConsumerGroup
from lakefeed.sources.kafka.source import OTHERS, Edge, KafkaSource, partition_name, topic_and_number
from lakefeed.text import counted

_DOWN_SECONDS = 1.5
"""How long all brokers are down before the first answer is given up: a name may have several addresses."""
_SAY_AFTER = 2.0
_LOOK_FOR_PARTITIONS_EVERY = 5.0
_LOOK_EVERY = 0.1
_DELETED_AFTER = 5.0
"""Seconds for which the brokers must not know a topic before a run takes it for deleted: one that has just
started may not know all topics yet."""
_LOOK_AGAIN = 0.5
_CREATE = "Create the topic or correct `topics`, then start again."
_NOISE = re.compile(r"^\S+/\w+: | \(after [^)]* in state \w+[^)]*\)$")
_log = logging.getLogger("lakefeed")


class TopicGone(SourceUnavailable):
    """A topic that was there before is gone; `check` says what of it was not read."""


class KafkaClient(SourceClient):
    """Asks the brokers.

    Every question is bounded in time and raises SourceUnavailable when nobody answers.
    """

    def __init__(self, source: KafkaSource, pipeline: str, name: str) -> None:
        self._source = source
        self._name = name
        self._last_error = ""
        self._answered = False
        self._down_since: float | None = None
        settings: dict[str, Any] = {**source.settings(), "error_cb": self._remember}
        del settings["isolation.level"]
        try:
            self._admin = AdminClient(settings, logger=IgnoredLog())
        except KafkaException as error:
            raise SourceError(
                f"source {name}: the client refuses its options: {error.args[0].str()}"
            ) from error
        self._group = ConsumerGroup(self._admin, name, source.group or f"lakefeed-{pipeline}")
        self._topics: dict[str, Any] = {}
        self._epochs: dict[str, int] = {}
        self._whole: dict[tuple[str, int], int] = {}
        """Up to which position a partition is known to be what it was under a leader, by its epoch."""
        self._looked_at = 0.0
        self.ends_seen = {}
        self._runs = False
        self._read: set[str] = set()
        """Topics that were there before, or that a table has read: they may be deleted."""
        self._ends_unknown: Offsets = {}
        """Positions in partitions that were deleted while no run saw their end."""
        self._created_again: set[str] = set()
        """Partitions that a table's log has the end of, from a deleted topic of that name."""

    def begin(self) -> None:
        """A run is going to read, which must not take a topic for deleted too soon."""
        self._runs = True

    def start(self) -> Offsets:
        """The offsets that `start` in the pipeline file means."""
        return self.start_beside({})

    def start_beside(self, held: Offsets) -> Offsets:
        """The same for partitions that are not held; offsets given for the others may be long gone."""
        self._look()
        for topic in self._source.topics:
            if topic not in self._topics:
                raise SourceError(f"{self._missing(topic, self._names())}\n{_CREATE}")
        start = self._source.start
        ends = self._ends()
        if start == "latest":
            found = ends
        elif isinstance(start, dt.datetime):
            moment = int(start.timestamp() * 1000)
            found = self._list(self._partitions(), OffsetSpec.for_timestamp(moment))
            found = {partition: ends[partition] if at < 0 else at for partition, at in found.items()}
        else:
            found = self._list(self._partitions(), OffsetSpec.earliest())
            if isinstance(start, dict):
                found |= self._given(start, found, ends, held)
        return {partition: at for partition, at in found.items() if partition not in held}

    def latest(self) -> Offsets:
        """The end of every partition.

        Up to the last stable offset, so that open transactions are waited for.
        """
        if time.monotonic() - self._looked_at > _LOOK_FOR_PARTITIONS_EVERY:
            self._look()
        self._group.go_on()
        try:
            return self._ends()
        except TopicGone:
            self._look()
            return self._ends()

    def check(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        """Compare positions with what the brokers hold; see the contract."""
        self._look(positions)
        self._wait_for_topics(positions, marks)
        checked = self._without_deleted(positions, marks)
        partitions = self._partitions()
        earliest = self._list(partitions, OffsetSpec.earliest())
        ends = self._ends()
        now = self.marks()
        cut = self._cut_short(positions, marks)
        for partition in partitions:
            topic, _ = topic_and_number(partition)
            wanted, topic_id = positions.get(partition), marks.get(topic)
            if marks.get(partition + DELETED_END, -1) >= 0:
                self._created_again.add(partition)
            if wanted is None:
                checked[partition] = earliest[partition]
            elif topic_id and topic in now and topic_id != now[topic]:
                what = f"topic {topic!r} was deleted and created again since; its offsets start at 0 again"
                checked[partition] = self._lost(partition, wanted, earliest[partition], what)
            elif wanted < earliest[partition]:
                what = f"{counted(earliest[partition] - wanted, 'event')} lost"
                checked[partition] = self._lost(partition, wanted, earliest[partition], what)
            elif wanted > ends[partition]:
                what = f"the partition ends at {ends[partition]}: it was truncated"
                # What is left of the very topic that the table has read, it has read.
                left = ends if topic_id else earliest
                checked[partition] = self._lost(partition, wanted, earliest[partition], what, left[partition])
            elif partition in cut:
                what = f"the partition was truncated to {cut[partition]} and has new events since"
                checked[partition] = self._lost(partition, wanted, earliest[partition], what, cut[partition])
            else:
                checked[partition] = wanted
        return checked

    def close(self) -> None:
        """Let go of the connections and their threads."""
        self._group.close()
        # They live as long as the client, which lives as long as its callback, which is a part of this.
        del self._admin, self._group

    def acknowledge(self, positions: Offsets) -> None:
        """Commit the consumer group's offsets, beside the stream."""
        gone = self._read - self._topics.keys()
        self._group.commit({p: at for p, at in positions.items() if topic_and_number(p)[0] not in gone})

    def confirm(self) -> None:
        """Raise when a topic was made anew, or a partition got another leader, while a batch was read."""
        before = self.marks()
        self._look()
        self._ends()
        changed = [name for name, number in self.marks().items() if before.get(name, number) != number]
        if changed:
            partition = changed[0].removesuffix(EPOCH)
            what = (
                f"topic {partition!r} was created again"
                if partition == changed[0]
                else f"partition {partition} got another leader"
            )
            raise SourceUnavailable(
                f"source {self._name}: {what} while a batch was read; the batch is read again"
            )

    def marks(self) -> dict[str, int]:
        """The id of each topic, cut to 63 bits, and the epoch of each partition's leader.

        Brokers before Kafka 2.8 have no ids. Also the end of each partition that was deleted during the run,
        and -1 where a table has an end of one that exists again.
        """
        numbers = {name: _number(topic.topic_id) for name, topic in self._topics.items()}
        topics = {name: number for name, number in numbers.items() if number}
        epochs = {partition + EPOCH: epoch for partition, epoch in self._epochs.items()}
        deleted = self.ends_seen.keys() - self._partitions() if self._looked_at else ()
        ends = dict.fromkeys(self._created_again, -1) | {name: self.ends_seen[name] for name in deleted}
        return topics | epochs | {name + DELETED_END: end for name, end in ends.items()}

    def left_out(self) -> dict[str, Finding]:
        """The topics that were deleted while no run saw their end."""
        return findings(self._ends_unknown)

    def warnings(self) -> list[str]:
        """Deleted topics, and brokers that have no topic ids."""
        texts = [f"{one.text}\n{one.remedy}" for one in self.left_out().values()]
        if any(not _number(topic.topic_id) for topic in self._topics.values()):
            texts.append(
                f"{self._source.brokers} has no topic ids (Kafka before 2.8): a topic that is deleted and "
                "created again is noticed only if it ends before the table's position"
            )
        return texts

    def retention(self) -> dict[str, float]:
        """What the brokers say of each topic that they delete from; nothing where they refuse to tell."""
        self._look()
        asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in self._topics]
        found = {}
        for resource, future in self._admin.describe_configs(asked, request_timeout=self.patience).items():
            try:
                told = {name: entry.value for name, entry in future.result(self.patience + 5).items()}
            except (KafkaException, TimeoutError):
                continue
            kept = int(told.get("retention.ms") or -1)
            if kept >= 0 and "delete" in (told.get("cleanup.policy") or "delete"):
                found[resource.name] = kept / 1000
        return found

    def _lost(
        self, partition: str, wanted: int, earliest: int, what: str, going_on: int | None = None
    ) -> int:
        next_one = earliest if going_on is None else going_on
        text = (
            f"source {self._name}: {partition}: the next expected offset is {wanted}, "
            f"the earliest is {earliest}: {what}."
        )
        if self._source.on_data_loss == "skip":
            _log.warning("%s Continuing at offset %d (`on_data_loss: skip`).", text, next_one)
            return next_one
        raise DataLoss(f"{text}\nSet `on_data_loss: skip` on the source to continue at offset {next_one}.")

    def _wait_for_topics(self, positions: Offsets, marks: Mapping[str, int]) -> None:
        """Look again for topics whose deletion would stop the source, or skip events."""
        deadline = time.monotonic() + _DELETED_AFTER
        while self._runs and time.monotonic() < deadline:
            if not any(one.unread or self._source.topics for one in self._deleted(positions, marks)):
                return
            time.sleep(_LOOK_AGAIN)
            self._look(positions)

    def _deleted(self, positions: Offsets, marks: Mapping[str, int]) -> list[Deleted]:
        """The partitions that a table has positions of and that do not exist any more."""
        there = set(self._partitions())
        found = []
        for partition, at in positions.items():
            if partition not in there and self._source.means(topic_and_number(partition)[0]):
                end = self.ends_seen.get(partition, marks.get(partition + DELETED_END, -1))
                found.append(Deleted(partition, at, None if end < 0 else end))
        return found

    def _without_deleted(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        """The new positions in partitions that are gone with events that were not read."""
        gone = self._deleted(positions, marks)
        moved = skip_unread(self._source, self._name, gone)
        for one in gone:
            if one.topic in self._source.topics and one.topic not in self._topics:
                read = f"It was read up to offset {one.position} of {one.partition}."
                raise SourceError(f"{self._missing(one.topic, self._names())} {read}\n{_CREATE}")
            if one.end is None:
                known = self._ends_unknown.get(one.partition, one.position)
                self._ends_unknown[one.partition] = min(one.position, known)
        return moved

    def _cut_short(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        """Where partitions that got another leader hold other events than were read, and from where on."""
        asked = {}
        for partition, epoch in self._epochs.items():
            at, read_under = positions.get(partition, 0), marks.get(partition + EPOCH)
            known = self._whole.get((partition, read_under or 0), 0)
            if read_under is not None and read_under != epoch and at > known:
                asked[partition] = at, read_under
        if not asked:
            return {}
        found = cut_short(self._source, asked, self.patience)
        for partition, (at, read_under) in asked.items():
            if partition not in found:
                self._whole[partition, read_under] = at
        return {partition: asked[partition][0] if at is None else at for partition, at in found.items()}

    def _given(
        self, start: dict[str, dict[str, int | Edge]], known: Offsets, ends: Offsets, held: Offsets
    ) -> Offsets:
        edges = {"earliest": known, "latest": ends}
        given: Offsets = {}
        for partition in known:
            topic, number = topic_and_number(partition)
            at = start.get(topic, {}).get(str(number), start.get(topic, {}).get(OTHERS))
            if isinstance(at, str):
                given[partition] = edges[at][partition]
        given |= {
            partition_name(t, int(n)): offset
            for t, numbers in start.items()
            for n, offset in numbers.items()
            if isinstance(offset, int) and n != OTHERS
        }
        for partition in given:
            if partition not in known:
                raise SourceError(
                    f"source {self._name}: `start` names {partition}, which does not exist. "
                    f"There are: {', '.join(sorted(known))}."
                )
        for partition, wanted in given.items():
            if partition not in held and not known[partition] <= wanted <= ends[partition]:
                raise SourceError(
                    f"source {self._name}: `start` says {wanted} for {partition}, which holds "
                    f"offsets from {known[partition]} up to {ends[partition]}."
                )
        return given

    def _partitions(self) -> list[str]:
        return [
            partition_name(name, partition.id)
            for name, topic in self._topics.items()
            for partition in topic.partitions
        ]

    def _look(self, held: Iterable[str] = ()) -> None:
        """Ask which topics and partitions there are, given the partitions that a table has positions of.

        Topics that were there before may be gone. Those of `held` are asked for by name: a list of all
        topics lacks those that the user has lost the right to see.
        """
        known = {topic_and_number(partition)[0] for partition in (*held, *self.ends_seen)}
        known = {topic for topic in known if self._source.means(topic)}
        self._read |= known
        names = self._source.topics or [name for name in self._names() if self._source.means(name)]
        if not names and not known:
            raise SourceUnavailable(
                f"source {self._name}: no topic on {self._source.brokers} matches "
                f"{self._source.topic_pattern!r} yet."
            )
        asked = TopicCollection(sorted({*names, *known}))
        topics: dict[str, Any] = {}
        for name, future in self._admin.describe_topics(asked, request_timeout=self.patience).items():
            with suppress(TopicGone):
                topics[name] = self._answer(future, name)
        self._topics = topics
        self._read |= topics.keys()
        self._looked_at = time.monotonic()

    def _names(self) -> list[str]:
        try:
            return sorted(self._admin.list_topics(timeout=self.patience).topics)
        except KafkaException as error:
            raise self._translated(error, None) from error

    def _ends(self) -> Offsets:
        """The end of every partition; notes which leader has told it."""
        found = self._ask(self._partitions(), OffsetSpec.latest())
        self._epochs = {
            partition: told.leader_epoch
            for partition, told in found.items()
            if told.leader_epoch is not None and told.leader_epoch >= 0
        }
        ends = {partition: told.offset for partition, told in found.items()}
        self.ends_seen |= ends
        return ends

    def _list(self, partitions: Iterable[str], spec: OffsetSpec) -> Offsets:
        return {partition: told.offset for partition, told in self._ask(partitions, spec).items()}

    def _ask(self, partitions: Iterable[str], spec: OffsetSpec) -> dict[str, Any]:
        asked = {TopicPartition(*topic_and_number(partition)): spec for partition in partitions}
        futures = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self.patience
        )
        return {
            partition_name(at.topic, at.partition): self._answer(future, at.topic)
            for at, future in futures.items()
        }

    def _answer(self, future: Any, topic: str) -> Any:
        try:
            return self._waited(future)
        except (KafkaException, TimeoutError) as error:
            raise self._translated(error, topic) from error

    def _waited(self, future: Any) -> Any:
        """The answer, looking now and then why there is none yet; raises TimeoutError when it is too late.

        Before the first answer, brokers that are all down are given up soon: whoever waits for them wants
        to hear of it. Later on, the client mends broken connections by itself.
        """
        began, said = time.monotonic(), self._answered
        while True:
            try:
                answer = future.result(_LOOK_EVERY)
            except TimeoutError:
                # Only here the client tells of its troubles.
                self._admin.poll(0)
            else:
                self._answered, self._down_since = True, None
                return answer
            waited = time.monotonic() - began
            down = self._down_since and time.monotonic() - self._down_since > _DOWN_SECONDS
            if waited > self.patience + 5 or (down and not self._answered):
                raise TimeoutError("no answer")
            if waited > _SAY_AFTER and not said:
                said = True
                _log.info("source %s: waiting for %s to answer", self._name, self._source.brokers)

    def _translated(self, error: Exception, topic: str | None) -> SourceError:
        cause = error.args[0] if error.args and isinstance(error.args[0], KafkaError) else None
        code = cause.code() if cause else None
        if topic in self._read and code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return TopicGone(
                f"source {self._name}: topic {topic!r} was deleted, or has moved to another broker"
            )
        # A topic that the cluster lists has a leader that does not know of a new partition yet.
        if topic and code == KafkaError.UNKNOWN_TOPIC_OR_PART and topic not in (names := self._names()):
            return SourceError(f"{self._missing(topic, names)}\n{_CREATE}")
        refused = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
        if code in refused:
            # The right to a topic that was read may come back, as when a token is renewed.
            kind = SourceUnavailable if self.goes_on or topic in self._read else SourceError
            return kind(
                f"source {self._name}: {self._source.brokers} refuses: {cause.str() if cause else error}"
            )
        text = self._last_error or (cause.str() if cause else str(error))
        return SourceUnavailable(f"source {self._name}: {self._source.brokers} does not answer: {text}")

    def _missing(self, topic: str, names: list[str]) -> str:
        near = difflib.get_close_matches(topic, names, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return f"source {self._name}: topic {topic!r} does not exist on {self._source.brokers}.{hint}"

    def _remember(self, error: KafkaError) -> None:
        """What the client tells of itself while it is polled."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._down_since = self._down_since or time.monotonic()
        else:
            self._last_error = _NOISE.sub("", str(error.str()))


class IgnoredLog:
    """Takes what the client has to say of each connection: what matters, its errors tell."""

    def log(self, level: int, *words: Any) -> None:
        """A line for `--debug`, whatever level the client gives it."""
        logging.getLogger("lakefeed.kafka").debug(*words)


def _number(topic_id: Any) -> int:
    high, low = int(topic_id.get_most_significant_bits()), int(topic_id.get_least_significant_bits())
    return (high ^ (low << 1)) & (2**63 - 1)
