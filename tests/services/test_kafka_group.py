"""The consumer group of a Kafka source: what lag tools see, and what nobody depends on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from conftest import TopicFactory
from lakefeed import Pipeline
from lakefeed.formats import JsonFormat
from lakefeed.reports.status import status
from lakefeed.sources import KafkaSource
from lakefeed.sources.kafka import membership
from lakefeed.sources.kafka.membership import GroupMember
from support.kafka import Broker
from support.ledger import table_ids
from support.processes import wait_until


def committed(broker: Broker, group: str, topic: str) -> dict[int, int]:
    """The group's offsets by partition, as any lag tool asks for them."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    asked = ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked])[group].result(120).topic_partitions
    return {one.partition: one.offset for one in found if one.topic == topic}


def source(broker: Broker, topic: str, group: str | None = None) -> KafkaSource:
    return KafkaSource(brokers=broker.address, topics=(topic,), format=JsonFormat(), group=group)


@pytest.mark.usefixtures("spark")
def test_the_group_is_where_the_table_is_after_a_run(
    broker: Broker, topic: TopicFactory, tmp_path: Path, pipeline_file: Callable[[str], Path]
) -> None:
    name = topic(partitions=2)
    broker.produce(name, [b'{"id": %d}' % number for number in range(10)])
    file = pipeline_file(
        f"""\
        name: shop
        sources: {{clicks: {{type: kafka, brokers: "{broker.address}", topics: [{name}], format: json}}}}
        tables: {{events: {{path: events, from: clicks}}}}
        """
    )

    Pipeline.from_file(file).run(once=True)

    assert sorted(table_ids(tmp_path / "events", "id")) == list(range(10))
    assert committed(broker, "lakefeed-shop", name) == broker.end_offsets(name)


def test_a_group_of_ones_own_is_committed_and_the_newest_position_wins(
    broker: Broker, topic: TopicFactory
) -> None:
    name = topic()
    broker.produce(name, [b"{}"] * 9)
    client = source(broker, name, "lake-tools").client("shop", "clicks")

    for position in range(1, 10):
        client.acknowledge({f"{name}-0": position})
    client.close()

    assert committed(broker, "lake-tools", name) == {0: 9}
    assert committed(broker, "lakefeed-shop", name) == {}


def test_a_group_that_somebody_else_uses_is_warned_of_once_and_harms_nothing(
    broker: Broker, topic: TopicFactory, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    broker.produce(name, [b"{}"])
    other = Consumer({"bootstrap.servers": broker.address, "group.id": f"busy-{name}"})
    other.subscribe([name])
    while not other.assignment():
        other.poll(0.1)
    client = source(broker, name, f"busy-{name}").client("shop", "clicks")

    with caplog.at_level(logging.WARNING, "lakefeed"):
        for position in (0, 1):
            client.acknowledge({f"{name}-0": position})
            client._group._hear(10)  # type: ignore[attr-defined]
        ends = client.latest()
        client.close()
    other.close()

    assert ends == {f"{name}-0": 1}
    assert caplog.text.count("could not be committed") == 1
    assert "Lag tools do not see this pipeline; its tables are not affected." in caplog.text


def test_a_partition_that_a_table_has_never_read_counts_whole_in_its_lag(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    broker.produce(name, [b"{}"] * 4)
    pipeline = Pipeline.model_validate(
        {
            "name": "shop",
            "sources": {"clicks": source(broker, name)},
            "tables": {
                "events": {"path": str(tmp_path / "events"), "from": "clicks", "schema": {"id": "long"}}
            },
        }
    )
    _read_up_to(pipeline, {f"{name}-0": 3})

    broker.add_partitions(name, 2)
    broker.produce(name, [b"{}"] * 5, partition=1)
    (table,) = status(pipeline).tables

    assert {partition: (at.next, at.end, at.lag) for partition, at in table.offsets["clicks"].items()} == {
        f"{name}-0": (3, 4, 1),
        f"{name}-1": (0, 5, 5),
    }
    assert table.lag == 6


def _read_up_to(pipeline: Pipeline, positions: dict[str, int]) -> None:
    from lakefeed.handles.tables import Tables

    handle = Tables(pipeline).handles["events"]
    columns = handle.columns()
    assert columns is not None
    handle.create(columns, {f"shop/clicks/{name}": at - 1 for name, at in positions.items()}, {})


def test_a_member_of_a_group_is_assigned_the_topics_that_the_driver_reads(
    broker: Broker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "_TOPICS_EVERY", 0.1)
    name = topic()
    for ending in ("-a", "-old", "-7", "-alike"):
        broker.create_topic(name + ending)
    # POSIX, whose patterns the client has, knows neither `(?!...)` nor `\d`.
    pattern = rf"(?!{name}-old$){name}-(a|old|\d)"
    shared = KafkaSource(brokers=broker.address, topic_pattern=pattern, format=JsonFormat(), group=name)

    def assigned() -> set[str]:
        topics = [f"{name}{ending}-0" for ending in ("-a", "-old", "-7", "-8", "-alike")]
        return set(member.own(dict.fromkeys(topics, 0)))

    with closing(GroupMember(shared, "shop", "clicks")) as member:
        member.wait(threading.Event())
        assert assigned() == {f"{name}-a-0", f"{name}-7-0"}
        broker.create_topic(f"{name}-8")
        wait_until(lambda: f"{name}-8-0" in assigned(), 120, lambda: f"assigned: {assigned()}")
        for ending in ("-a", "-7", "-8"):
            broker.delete_topic(name + ending)
        wait_until(lambda: not assigned(), 120, lambda: f"assigned: {assigned()}")
        broker.create_topic(f"{name}-7")
        wait_until(lambda: assigned() == {f"{name}-7-0"}, 120, lambda: f"assigned: {assigned()}")
