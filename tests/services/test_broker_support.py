from __future__ import annotations

from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError
from confluent_kafka import Consumer, TopicPartition

from support.kafka import Broker
from support.s3 import S3Server


def read(broker: Broker, topic: str, count: int, partition: int = 0, start: int = 0) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": broker.address, "group.id": "reader", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        return [message.value() for message in consumer.consume(count, timeout=20)]
    finally:
        consumer.close()


def test_produced_events_come_back_in_order(broker: Broker, topic: Callable[..., str]) -> None:
    name = topic(partitions=3)

    positions = broker.produce(name, [b"one", "two", None, b""], partition=2, key=b"k", headers=[("h", b"v")])

    assert positions == [(2, 0), (2, 1), (2, 2), (2, 3)]
    assert broker.end_offsets(name) == {0: 0, 1: 0, 2: 4}
    assert read(broker, name, 4, partition=2) == [b"one", b"two", None, b""]


def test_a_delivery_that_fails_is_told(broker: Broker, topic: Callable[..., str]) -> None:
    name = topic(config={"max.message.bytes": "1000"})

    with pytest.raises(AssertionError, match=r"1 of 1 events were not delivered; .*MSG_SIZE_TOO_LARGE"):
        broker.produce(name, [b"x" * 5000])


def test_partitions_can_be_added_and_a_deleted_topic_is_gone(
    broker: Broker, topic: Callable[..., str]
) -> None:
    name = topic()

    broker.add_partitions(name, 4)
    grown = broker.end_offsets(name)
    broker.delete_topic(name)
    broker.create_topic(name)

    assert grown == {0: 0, 1: 0, 2: 0, 3: 0}
    assert broker.end_offsets(name) == {0: 0}


def test_deleted_records_cannot_be_read_any_more(broker: Broker, topic: Callable[..., str]) -> None:
    name = topic()
    broker.produce(name, [b"0", b"1", b"2"])

    broker.delete_records(name, 0, before_offset=2)

    assert broker.start_offsets(name) == {0: 2}
    assert read(broker, name, 1, start=2) == [b"2"]


def test_an_aborted_transaction_takes_offsets_and_gives_no_events(
    broker: Broker, topic: Callable[..., str]
) -> None:
    name = topic()

    broker.transaction(name, [b"a", b"b"], commit=False)
    broker.transaction(name, [b"c"], commit=True)

    assert broker.end_offsets(name) == {0: 5}
    assert read(broker, name, 1) == [b"c"]


def test_s3_refuses_a_second_put_that_must_be_the_first(s3: S3Server) -> None:
    s3.create_bucket("conditional")
    s3.client.put_object(Bucket="conditional", Key="log/0.json", Body=b"first", IfNoneMatch="*")

    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.client.put_object(Bucket="conditional", Key="log/0.json", Body=b"second", IfNoneMatch="*")

    assert s3.keys("conditional", "log/") == ["log/0.json"]
    assert s3.client.get_object(Bucket="conditional", Key="log/0.json")["Body"].read() == b"first"
