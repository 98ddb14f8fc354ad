"""A real Kafka broker of one node, on loopback, in a folder of its own."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from support.jars import BROKER, BROKER_LOG, fetch, java
from support.offline import close_consumers
from support.processes import free_port, spawn, tail, wait_until
from support.servers import RestartableServer

START_SECONDS = 180
ANSWER_SECONDS = 120
MAX_MESSAGE_BYTES = 2 * 1024 * 1024

Payload = bytes | str | None
Position = tuple[int, int]
"""A partition and an offset in it."""

_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=4000
auto.create.topics.enable=false
message.max.bytes={max_message_bytes}
socket.request.max.bytes={max_request_bytes}
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.initial.task.delay.ms=500
log.retention.check.interval.ms=500
log.segment.delete.delay.ms=100
"""

_LOGGING = """
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %m (%c{1})%n%xEx{20}
rootLogger.level=WARN
rootLogger.appenderRef.console.ref=console
"""

_ADVICE_OF_CLIENTS = {
    # A broker that a test starts again should be found at once, not after librdkafka's ten seconds.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    # librdkafka would write every lost connection to stderr, in the middle of pytest's output.
    "log_level": 0,
}

_FORMATTED = tempfile.TemporaryDirectory(prefix="lakefeed-kafka-formatted-")


class Broker(RestartableServer):
    """A broker whose data and port outlive `stop` and `kill`, until `close`.

    `start` returns when the broker answers. It dies with the test process, whatever ends that. One that is
    `lasting` compiles its code as well as Java can, which costs more at its start than a test would gain.
    """

    def __init__(
        self,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        *,
        lasting: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="lakefeed-kafka-"))
        self.max_message_bytes = max_message_bytes
        self._lasting = lasting
        self._port = free_port()
        text = _SETTINGS.format(
            port=self._port,
            controller_port=free_port(),
            folder=self._folder,
            max_message_bytes=max_message_bytes,
            max_request_bytes=2 * max_message_bytes,
        )
        text += "".join(f"{key}={value}\n" for key, value in (settings or {}).items())
        (self._folder / "server.properties").write_text(text)
        (self._folder / "log4j2.properties").write_text(_LOGGING)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def log(self) -> Path:
        return self._folder / "broker.log"

    def start(self) -> None:
        assert self._process is None, "the broker is running already"
        if not (self._folder / "data").exists():
            self._copy_format()
        self._process = spawn(
            self._java("kafka.Kafka", str(self._settings)), stdout=self.log, cwd=self._folder
        )
        try:
            wait_until(self._answers, START_SECONDS, lambda: f"the broker does not answer:\n{tail(self.log)}")
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut down in order, as for an upgrade."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: what was acknowledged is kept, nothing is tidied up."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP: the port is open, and nobody answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill the broker and delete its data."""
        close_consumers()
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic; it takes events when this returns."""
        admin = self._admin()
        topic = NewTopic(name, partitions, replication_factor=1, config=dict(config or {}))
        _done(admin, admin.create_topics([topic]))
        self._wait_for_partitions(name, partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; its name is free when this returns."""
        admin = self._admin()
        _done(admin, admin.delete_topics([name]))
        wait_until(
            lambda: name not in admin.list_topics(timeout=ANSWER_SECONDS).topics,
            ANSWER_SECONDS,
            lambda: f"topic {name} is still there {ANSWER_SECONDS} s after it was deleted",
        )

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to so many partitions in all."""
        admin = self._admin()
        _done(admin, admin.create_partitions([NewPartitions(name, total)]))
        self._wait_for_partitions(name, total)

    def allow(self, topic: str, *operations: AclOperation) -> None:
        """Allow these operations on a topic and no others, or all; for a broker with an authorizer."""
        admin = self._admin()
        _done(admin, admin.delete_acls([_acl(AclBindingFilter, topic, AclOperation.ANY)]))
        if operations:
            _done(admin, admin.create_acls([_acl(AclBinding, topic, one) for one in operations]))

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Lose the oldest events, as retention does."""
        admin = self._admin()
        _done(admin, admin.delete_records([TopicPartition(topic, partition, before_offset)]))

    def start_offsets(self, topic: str) -> dict[int, int]:
        """The first offset that can still be read, by partition."""
        return self._offsets(topic, OffsetSpec.earliest())

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The offset that the next event gets, by partition; transaction markers count."""
        return self._offsets(topic, OffsetSpec.latest())

    def produce(
        self,
        topic: str,
        payloads: Iterable[Payload],
        partition: int | None = None,
        key: Payload = None,
        headers: list[tuple[str, bytes | None]] | None = None,
        timestamp: int | None = None,
    ) -> list[Position]:
        """Send events and wait until the broker has them; where each went, in their order.

        Without a partition, the key decides; without either, they are spread. `timestamp` is in milliseconds.
        """
        producer = self._producer()
        sent = _send(producer, topic, payloads, partition, key=key, headers=headers, timestamp=timestamp or 0)
        return _delivered(producer, sent)

    def transaction(
        self, topic: str, payloads: Iterable[Payload], commit: bool, partition: int | None = None
    ) -> list[Position]:
        """Send events in one transaction and commit or abort it; where each went, aborted ones too."""
        producer = self._producer({"transactional.id": uuid4().hex})
        producer.init_transactions(ANSWER_SECONDS)
        producer.begin_transaction()
        # Flushed before the end: aborting would otherwise throw away events that have not left yet.
        positions = _delivered(producer, _send(producer, topic, payloads, partition))
        if commit:
            producer.commit_transaction(ANSWER_SECONDS)
        else:
            producer.abort_transaction(ANSWER_SECONDS)
        return positions

    @property
    def _settings(self) -> Path:
        return self._folder / "server.properties"

    def _java(self, main: str, *arguments: str) -> list[str]:
        classpath = f"{fetch(BROKER)}/*:{fetch(BROKER_LOG)}/*"
        options = [
            f"-Xmx{512 + 6 * self.max_message_bytes // 2**20}m",
            *([] if self._lasting else ["-XX:TieredStopAtLevel=1"]),
            "-XX:+UseSerialGC",
            f"-Dlog4j2.configurationFile={self._folder}/log4j2.properties",
        ]
        return [java(), *options, "-cp", classpath, main, *arguments]

    def _copy_format(self) -> None:
        """Begin with an empty storage: the first one is kept for all others, as formatting takes a JVM."""
        kept = Path(_FORMATTED.name)
        if not any(kept.iterdir()):
            self._format()
            shutil.copytree(self._folder / "data", kept, dirs_exist_ok=True)
        else:
            shutil.copytree(kept, self._folder / "data")

    def _format(self) -> None:
        # Sixteen bytes in base64; the tool takes a random one that begins with "-" for an option.
        cluster = "lakefeedTestBrokerAAAA"
        command = self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._settings))
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS)
        if done.returncode != 0:
            shutil.rmtree(self._folder / "data", ignore_errors=True)
            raise AssertionError(f"the broker's storage could not be formatted:\n{done.stdout}{done.stderr}")

    def _answers(self) -> bool:
        assert self._process is not None
        code = self._process.poll()
        assert code is None, f"the broker ended with code {code} while starting:\n{tail(self.log)}"
        try:
            return bool(self._admin().list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address, **_ADVICE_OF_CLIENTS})

    def _producer(self, options: Mapping[str, Any] | None = None) -> Producer:
        settings = {
            "bootstrap.servers": self.address,
            "message.max.bytes": self.max_message_bytes,
            "linger.ms": 5,
            "delivery.timeout.ms": ANSWER_SECONDS * 1000,
            "transaction.timeout.ms": ANSWER_SECONDS * 1000,
        }
        return Producer({**settings, **_ADVICE_OF_CLIENTS, **(options or {})})

    def _offsets(self, topic: str, spec: OffsetSpec) -> dict[int, int]:
        admin = self._admin()
        found = admin.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
        wanted = {TopicPartition(topic, partition): spec for partition in found.partitions}
        found_offsets: dict[int, int] = {}

        def answered() -> bool:
            answers = admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED)
            try:
                found_offsets.update(
                    {at.partition: answer.result(ANSWER_SECONDS).offset for at, answer in answers.items()}
                )
            except KafkaException as error:
                # The metadata names the leader of a new partition a moment before that leader knows.
                if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                    raise
                return False
            return True

        wait_until(answered, ANSWER_SECONDS, lambda: f"no broker leads every partition of topic {topic}")
        return found_offsets

    def _wait_for_partitions(self, topic: str, count: int) -> None:
        admin = self._admin()

        def led() -> bool:
            found = admin.list_topics(timeout=ANSWER_SECONDS).topics.get(topic)
            partitions = found.partitions.values() if found else ()
            return len(partitions) == count and all(partition.leader == 1 for partition in partitions)

        wait_until(led, ANSWER_SECONDS, lambda: f"topic {topic} has no {count} partitions that take events")


def _acl(kind: type[AclBinding], topic: str, operation: AclOperation) -> AclBinding:
    everybody = ("User:*", "*", operation, AclPermissionType.ALLOW)
    return kind(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, *everybody)


def _done(admin: AdminClient, answers: Mapping[Any, Future[Any]]) -> None:
    # The client comes along only to stay alive: when it is collected, its answers fail.
    for answer in answers.values():
        answer.result(ANSWER_SECONDS)


def _send(
    producer: Producer, topic: str, payloads: Iterable[Payload], partition: int | None, **fields: Any
) -> list[Position | KafkaException | None]:
    """Queue events; the list fills with where each went, or why not, while the producer is polled."""
    sent: list[Position | KafkaException | None] = []
    if partition is not None:
        fields["partition"] = partition
    for index, payload in enumerate(payloads):
        sent.append(None)

        def answer(error: Any, message: Message, index: int = index) -> None:
            sent[index] = KafkaException(error) if error else _position(message)

        while True:
            try:
                producer.produce(topic, payload, on_delivery=answer, **fields)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    return sent


def _position(message: Message) -> Position:
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    return partition, offset


def _delivered(producer: Producer, sent: list[Position | KafkaException | None]) -> list[Position]:
    producer.flush(ANSWER_SECONDS)
    failed = [answer for answer in sent if not isinstance(answer, tuple)]
    assert not failed, f"{len(failed)} of {len(sent)} events were not delivered; the first: {failed[0]}"
    return [answer for answer in sent if isinstance(answer, tuple)]
