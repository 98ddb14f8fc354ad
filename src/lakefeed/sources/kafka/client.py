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
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from lakefeed.errors import DataLoss, SourceError, SourceUnavailable
from lakefeed.events import EPOCH, Offsets
from lakefeed.sources import SourceClient
from lakefeed.sources.kafka.epochs import cut_short
from lakefeed.sources.kafka.group import ConsumerGroup
from lakefeed.sources.kafka.source import OTHERS, Edge, KafkaSource, partition_name, topic_and_number
from lakefeed.text import counted

_DOWN_SECONDS = 1.5
"""How long all brokers are down before the first answer is given up: a name may have several addresses."""
_SAY_AFTER = 2.0
_LOOK_FOR_PARTITIONS_EVERY = 5.0
_LOOK_EVERY = 0.1
_NOISE = re.compile(r"^\S+/\w+: | \(after [^)]* in state \w+[^)]*\)$")
_log = logging.getLogger("lakefeed")


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

    def start(self) -> Offsets:
        """The offsets that `start` in the pipeline file means."""
        return self.start_beside({})

    def start_beside(self, held: Offsets) -> Offsets:
        """The same for partitions that are not held; offsets given for the others may be long gone."""
        self._look()
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
        return self._ends()

    def check(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        """Compare positions with what the brokers hold; see the contract."""
        self._look()
        partitions = self._partitions()
        earliest = self._list(partitions, OffsetSpec.earliest())
        ends = self._ends()
        now = self.marks()
        cut = self._cut_short(positions, marks)
        checked: Offsets = {}
        for partition in partitions:
            topic, _ = topic_and_number(partition)
            wanted = positions.get(partition)
            if wanted is None:
                checked[partition] = earliest[partition]
            elif topic in marks and marks[topic] != now[topic]:
                what = f"topic {topic!r} was deleted and created again since; its offsets start at 0 again"
                checked[partition] = self._lost(partition, wanted, earliest[partition], what)
            elif wanted < earliest[partition]:
                what = f"{counted(earliest[partition] - wanted, 'event')} lost"
                checked[partition] = self._lost(partition, wanted, earliest[partition], what)
            elif wanted > ends[partition]:
                what = f"the partition ends at {ends[partition]}: it was truncated"
                # What is left of the very topic that the table has read, it has read.
                left = ends if marks.get(topic) else earliest
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
        self._group.commit(positions)

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
        """The id of each topic, cut to 63 bits, and the epoch of each partition's leader."""
        topics = {name: _number(topic.topic_id) for name, topic in self._topics.items()}
        return topics | {partition + EPOCH: epoch for partition, epoch in self._epochs.items()}

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

    def _look(self) -> None:
        """Ask which topics and partitions there are."""
        names = list(self._source.topics) or self._matching()
        if names:
            futures = self._admin.describe_topics(TopicCollection(names), request_timeout=self.patience)
            self._topics = {name: self._answer(future, name) for name, future in futures.items()}
        self._looked_at = time.monotonic()

    def _matching(self) -> list[str]:
        pattern = re.compile(self._source.topic_pattern or "")
        names = [name for name in self._names() if pattern.fullmatch(name) and not name.startswith("__")]
        if not names:
            raise SourceUnavailable(
                f"source {self._name}: no topic on {self._source.brokers} matches {pattern.pattern!r} yet."
            )
        return names

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
        return {partition: told.offset for partition, told in found.items()}

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
        # A topic that the cluster lists has a leader that does not know of a new partition yet.
        if topic and code == KafkaError.UNKNOWN_TOPIC_OR_PART and topic not in (names := self._names()):
            near = difflib.get_close_matches(topic, names, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            return SourceError(
                f"source {self._name}: topic {topic!r} does not exist on {self._source.brokers}.{hint}\n"
                "Create the topic or correct `topics`, then start again."
            )
        refused = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
        if code in refused:
            return SourceError(
                f"source {self._name}: {self._source.brokers} refuses: {cause.str() if cause else error}"
            )
        text = self._last_error or (cause.str() if cause else str(error))
        return SourceUnavailable(f"source {self._name}: {self._source.brokers} does not answer: {text}")

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
