"""A topic that is deleted: events that were not read are reported as lost, and a topic read whole is not."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from lakefeed import DataLoss, Pipeline
from lakefeed.engine.flow import Flow
from lakefeed.engine.inline import InlineFlow, run_inline
from lakefeed.engine.run_events import RunEvent, SourceSeen
from lakefeed.engine.spark.local_tasks import LocalTasks
from lakefeed.engine.supervisor import Supervisor
from lakefeed.errors import SourceError, TableError
from lakefeed.handles.tables import Tables
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from support.kafka import Broker
from support.ledger import table_ids
from support.processes import wait_until


def events(first: int, count: int) -> list[bytes]:
    return [json.dumps({"event_id": number}).encode() for number in range(first, first + count)]


class Shop:
    """Topics `a` and `b` below a prefix of their own, and a pipeline file that reads them."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker, self.folder = broker, folder
        self.prefix = f"d{uuid4().hex[:8]}"
        for name in "ab":
            broker.create_topic(self.topic(name))

    def topic(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    def produce(self, name: str, first: int, count: int) -> None:
        self.broker.produce(self.topic(name), events(first, count))

    def delete(self, name: str) -> None:
        self.broker.delete_topic(self.topic(name))

    def pipeline(self, more: str = "", topics: str = "") -> Pipeline:
        file = self.folder / "shop.yaml"
        read = topics or f"topic_pattern: '{self.prefix}\\..*'"
        file.write_text(
            f"""\
name: shop
sources:
  clicks: {{type: kafka, brokers: "{self.broker.address}", {read}, format: json{more}}}
tables:
  events: {{path: events, from: clicks, schema: {{event_id: long not null}}}}
flush: {{interval: 10m}}
"""
        )
        return Pipeline.from_file(file)

    def partition(self, name: str) -> str:
        return f"{self.topic(name)}-0"

    def ids(self) -> list[int]:
        table = self.folder / "events"
        return sorted(table_ids(table, "event_id")) if DeltaTable.is_deltatable(str(table)) else []


@pytest.fixture(autouse=True)
def _soon_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefeed.sources.kafka.client._DELETED_AFTER", 0.2)


@pytest.fixture
def shop(broker: Broker, tmp_path: Path) -> Shop:
    return Shop(broker, tmp_path)


class Run:
    """A run that does not end by itself: its batches are `flush.interval` apart, and it sees every end."""

    def __init__(self, pipeline: Pipeline, folder: Path) -> None:
        self.ends: dict[str, int] = {}
        self.error: BaseException | None = None
        self.stop = threading.Event()
        self.flow: Flow = InlineFlow(
            Tables(pipeline), "clicks", LocalTasks(), folder / "s", self.watch, once=False
        )
        self._supervisor = Supervisor(pipeline, [self.flow], self.watch, self.stop)
        self.thread = threading.Thread(target=self.work, daemon=True)

    def watch(self, event: RunEvent) -> None:
        if isinstance(event, SourceSeen):
            self.ends = dict(event.ends)

    def work(self) -> None:
        try:
            self._supervisor.run()
        except BaseException as error:
            self.error = error

    def wait_for(self, condition: Callable[[], Any]) -> None:
        wait_until(
            lambda: condition() or not self.thread.is_alive(), 120, lambda: f"{self.ends} {self.error}"
        )


@contextmanager
def running(pipeline: Pipeline, folder: Path) -> Iterator[Run]:
    run = Run(pipeline, folder)
    run.thread.start()
    try:
        yield run
    finally:
        run.stop.set()
        run.thread.join(120)
        assert not run.thread.is_alive()


def test_unread_events_of_a_deleted_topic_stop_the_source(shop: Shop) -> None:
    shop.produce("a", 0, 5)
    shop.produce("b", 100, 5)

    with running(shop.pipeline(), shop.folder) as run:
        run.wait_for(lambda: shop.ids() == [*range(5), *range(100, 105)])
        shop.produce("b", 105, 7)
        run.wait_for(lambda: run.ends.get(shop.partition("b")) == 12)
        shop.delete("b")
        run.thread.join(120)

    assert isinstance(run.error, DataLoss)
    assert str(run.error) == (
        f"source clicks: topic '{shop.topic('b')}' was deleted; at least 7 events were not read: "
        f"{shop.partition('b')} from offset 5 to 11.\n"
        "Set `on_data_loss: skip` on the source to continue without them."
    )
    with pytest.raises(DataLoss, match="at least 7 events were not read"):
        run_inline(shop.pipeline())
    assert "at least 7 events were not read" in (plan_run(shop.pipeline()).tables[0].refused or "")
    assert "at least 7 events were not read" in (status(shop.pipeline()).tables[0].error or "")
    run_inline(shop.pipeline(", on_data_loss: skip"))
    run_inline(shop.pipeline())
    assert verify(shop.pipeline()).tables[0].notes == [
        f"version 3: clicks/{shop.partition('b')}: offsets 5 to 11 were gone at the source "
        "(`on_data_loss: skip`)"
    ]
    assert verify(shop.pipeline()).sound


def test_skipped_events_of_a_deleted_topic_are_recorded_and_a_topic_that_was_read_whole_is_not_mentioned(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = shop.pipeline(", on_data_loss: skip")
    shop.produce("a", 0, 5)
    shop.produce("b", 100, 5)

    with running(pipeline, shop.folder) as run:
        run.wait_for(lambda: shop.ids() == [*range(5), *range(100, 105)])
        shop.produce("b", 105, 7)
        run.wait_for(lambda: run.ends.get(shop.partition("b")) == 12)
        shop.delete("b")
        run.wait_for(lambda: "Continuing without them" in caplog.text)
        shop.delete("a")
        shop.broker.create_topic(shop.topic("c"))
        shop.produce("c", 200, 3)
        run.wait_for(lambda: shop.partition("c") in run.ends and shop.partition("a") not in run.ends)
    lines = [one for one in caplog.messages if "deleted" in one]
    assert len(lines) == 1
    assert "at least 7 events were not read" in lines[0]
    caplog.clear()
    run_inline(pipeline)
    run_inline(shop.pipeline())

    assert not [one for one in caplog.messages if "deleted" in one]
    assert status(shop.pipeline()).skipped == {}
    assert shop.ids() == [*range(5), *range(100, 105), *range(200, 203)]
    proof = verify(shop.pipeline())
    assert proof.sound
    assert proof.tables[0].notes == [
        f"version 2: clicks/{shop.partition('b')}: offsets 5 to 11 were gone at the source "
        "(`on_data_loss: skip`)"
    ]


def test_a_topic_that_was_deleted_between_two_runs_is_one_warning_of_each_start_until_the_pattern_excludes_it(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.produce("a", 0, 5)
    shop.produce("b", 100, 5)
    run_inline(shop.pipeline())
    shop.produce("b", 105, 7)
    shop.delete("b")

    run_inline(shop.pipeline())

    text = (
        f"topic '{shop.topic('b')}' was deleted while no run was reading it; {shop.partition('b')} up to "
        "offset 5 was read, and whether there were more events is not known"
    )
    remedy = "Exclude the topic in `topic_pattern` to end this warning"
    assert [one for one in caplog.messages if "deleted" in one] == [f"source clicks: {text}. {remedy}"]
    skipped = {"clicks": {shop.topic("b"): f"{text}\n{remedy}"}}
    assert plan_run(shop.pipeline()).skipped == skipped
    assert status(shop.pipeline()).skipped == skipped
    caplog.clear()
    run_inline(shop.pipeline(topics=f"topic_pattern: '(?!{shop.prefix}\\.b$){shop.prefix}\\..*'"))
    assert not [one for one in caplog.messages if "deleted" in one]


def test_a_start_without_any_topic_left_reports_those_that_were_deleted(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.produce("b", 100, 5)
    run_inline(shop.pipeline())
    shop.delete("a")
    shop.delete("b")

    run_inline(shop.pipeline())

    assert f"topic '{shop.topic('b')}' was deleted while no run was reading it" in caplog.text
    assert "no topic on" not in caplog.text


def test_a_topic_that_is_created_again_after_it_was_read_whole_and_deleted_again_counts_anew(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = shop.pipeline(", on_data_loss: skip")
    shop.produce("b", 100, 5)
    with running(pipeline, shop.folder) as run:
        run.wait_for(lambda: shop.ids() == [*range(100, 105)])
        shop.delete("b")
        run.wait_for(lambda: shop.partition("b") not in run.ends)
        shop.produce("a", 0, 1)
    run_inline(pipeline)
    shop.broker.create_topic(shop.topic("b"))
    shop.produce("b", 200, 2)
    run_inline(pipeline)
    shop.produce("b", 202, 1)
    shop.delete("b")
    caplog.clear()

    run_inline(pipeline)

    assert f"{shop.partition('b')} up to offset 2 was read" in caplog.text
    assert shop.ids() == [0, *range(100, 105), 200, 201]


def test_a_named_topic_that_is_deleted_stops_the_source_with_the_events_that_were_not_read(
    shop: Shop,
) -> None:
    topics = f"topics: [{shop.topic('a')}, {shop.topic('b')}]"
    shop.produce("b", 100, 5)
    with running(shop.pipeline(topics=topics), shop.folder) as run:
        run.wait_for(lambda: shop.ids() == [*range(100, 105)])
        shop.produce("b", 105, 7)
        run.wait_for(lambda: run.ends.get(shop.partition("b")) == 12)
        shop.delete("b")
        run.thread.join(120)

    assert isinstance(run.error, DataLoss)
    assert "at least 7 events were not read" in str(run.error)
    assert "To continue without them, remove the topic from `topics`." in str(run.error)
    with pytest.raises(DataLoss, match="at least 7 events were not read"):
        run_inline(shop.pipeline(topics=topics))
    shop.produce("a", 0, 2)
    run_inline(shop.pipeline(topics=f"topics: [{shop.topic('a')}]"))
    assert shop.ids() == [0, 1, *range(100, 105)]
    shop.delete("a")
    with pytest.raises(
        SourceError, match=r"does not exist on .* It was read up to offset 2 of .*a-0\.\nCreate"
    ):
        run_inline(shop.pipeline(topics=f"topics: [{shop.topic('a')}]"))


def test_brokers_without_topic_ids_are_one_warning_and_a_topic_that_was_created_again_is_found_by_its_end(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("lakefeed.sources.kafka.client._number", lambda topic_id: 0)
    topics = f"topics: {shop.topic('b')}"
    shop.produce("b", 100, 5)
    run_inline(shop.pipeline(topics=topics))

    text = (
        f"source clicks: {shop.broker.address} has no topic ids (Kafka before 2.8): a topic that is deleted "
        "and created again is noticed only if it ends before the table's position"
    )
    assert caplog.messages.count(text) == 1
    entries = "".join(entry.read_text() for entry in (shop.folder / "events/_delta_log").glob("*.json"))
    assert shop.partition("b") in entries
    assert f'#{shop.topic("b")}"' not in entries
    other = shop.pipeline(topics=topics).model_copy(update={"name": "other"})
    with pytest.raises(TableError, match="would write them a second time"):
        run_inline(other)
    shop.delete("b")
    shop.broker.create_topic(shop.topic("b"))
    with pytest.raises(DataLoss, match="the partition ends at 0: it was truncated"):
        run_inline(shop.pipeline(topics=topics))


def test_a_broker_that_has_got_topic_ids_is_no_loss(shop: Shop) -> None:
    client = shop.pipeline().sources["clicks"].client("shop", "clicks")
    shop.produce("b", 100, 5)

    checked = client.check({shop.partition("b"): 3}, {shop.topic("b"): 0})
    client.close()

    assert checked[shop.partition("b")] == 3


class Forgetful(AdminClient):
    """A client of a broker that has just started, and does not know one of the topics yet."""

    unknown: ClassVar[str] = ""
    answers: ClassVar[int] = 0

    def describe_topics(self, *args: Any, **more: Any) -> Any:
        found = super().describe_topics(*args, **more)
        if Forgetful.unknown in found and Forgetful.answers > 0:
            Forgetful.answers -= 1
            unknown: Future[Any] = Future()
            unknown.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
            found[Forgetful.unknown] = unknown
        return found


@pytest.mark.parametrize("named", [False, True])
def test_a_topic_that_a_broker_does_not_know_for_a_moment_is_not_deleted(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    monkeypatch.setattr("lakefeed.sources.kafka.client._DELETED_AFTER", 60)
    monkeypatch.setattr("lakefeed.sources.kafka.client.AdminClient", Forgetful)
    monkeypatch.setattr(Forgetful, "unknown", shop.topic("b"))
    topics = f"topics: [{shop.topic('a')}, {shop.topic('b')}]" if named else ""
    shop.produce("b", 100, 5)

    with running(shop.pipeline(", on_data_loss: skip", topics), shop.folder) as run:
        run.wait_for(lambda: shop.ids() == [*range(100, 105)])
        shop.produce("b", 105, 7)
        run.wait_for(lambda: run.ends.get(shop.partition("b")) == 12)
        monkeypatch.setattr(Forgetful, "answers", 4)
        run.wait_for(lambda: not Forgetful.answers)
        shop.produce("a", 0, 1)
        run.wait_for(lambda: run.ends.get(shop.partition("a")) == 1)
        assert run.error is None
    run_inline(shop.pipeline(topics=topics))

    assert shop.ids() == [0, *range(100, 112)]
