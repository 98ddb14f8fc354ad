"""Rights that are missing for a while, as when a token or an access list is renewed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation

from lakefeed import Pipeline
from lakefeed.engine.flow import Flow
from lakefeed.engine.inline import InlineFlow
from lakefeed.engine.run_events import RunEvent, SourceTrouble
from lakefeed.engine.spark.local_tasks import LocalTasks
from lakefeed.engine.supervisor import Supervisor
from lakefeed.errors import SourceError
from lakefeed.handles.tables import Tables
from lakefeed.sources.kafka.client import KafkaClient
from lakefeed.sources.kafka.source import KafkaSource
from support.kafka import Broker
from support.ledger import assert_each_once, table_ids
from support.processes import wait_until

_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    with Broker(settings=_AUTHORIZER) as broker:
        yield broker


def events(first: int, count: int) -> list[bytes]:
    return [json.dumps({"event_id": number}).encode() for number in range(first, first + count)]


@pytest.mark.parametrize(
    "left", [AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS], ids=["read", "describe"]
)
def test_a_run_goes_on_when_a_right_that_was_missing_for_a_while_comes_back(
    guarded: Broker, tmp_path: Path, left: AclOperation
) -> None:
    topic = f"rights-{left.name.lower()}"
    guarded.create_topic(topic)
    guarded.produce(topic, events(0, 5))
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  clicks: {{type: kafka, brokers: "{guarded.address}", topics: {topic}, format: json}}
tables:
  events: {{path: events, from: clicks, schema: {{event_id: long not null}}}}
flush: {{interval: 200ms}}
"""
    )
    pipeline, stop, troubles = Pipeline.from_file(file), threading.Event(), list[str]()

    def watch(event: RunEvent) -> None:
        if isinstance(event, SourceTrouble):
            troubles.append(event.text)

    flow: Flow = InlineFlow(Tables(pipeline), "clicks", LocalTasks(), tmp_path / "s", watch, once=False)
    run = threading.Thread(target=Supervisor(pipeline, [flow], watch, stop).run, daemon=True)
    run.start()
    wait_until(lambda: flow.batches == 1, 120, lambda: f"{troubles}")
    guarded.allow(topic, left)
    produced = 5

    def is_refused() -> bool:
        nonlocal produced
        if left == AclOperation.WRITE:
            # A fetch that was under way when the right went may still bring an event.
            guarded.produce(topic, events(produced, 1))
            produced += 1
        return any("uthorization failed" in one for one in troubles)

    wait_until(is_refused, 120, lambda: f"{troubles}", every=0.3)
    guarded.allow(topic)
    expected = range(produced)
    wait_until(
        lambda: sorted(table_ids(tmp_path / "events", "event_id")) == [*expected], 120, lambda: f"{troubles}"
    )
    stop.set()
    run.join(120)

    assert not run.is_alive()
    assert_each_once(expected, table_ids(tmp_path / "events", "event_id"))


def test_a_right_that_is_missing_at_the_first_start_stops_the_source_at_once(guarded: Broker) -> None:
    guarded.create_topic("closed")
    guarded.allow("closed", AclOperation.DESCRIBE_CONFIGS)
    client = KafkaSource(brokers=guarded.address, topics=("closed",)).client("shop", "clicks")
    assert isinstance(client, KafkaClient)

    with pytest.raises(SourceError, match=r"refuses: .*authorization failed") as raised:
        client.latest()

    assert not raised.value.retryable
    client.close()
