"""A partition whose leader has lost events that were read: a disk restored, an unclean election."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakefeed import DataLoss, Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.errors import SourceUnavailable
from lakefeed.formats.json.format import JsonFormat
from lakefeed.sources.kafka import epochs
from lakefeed.sources.kafka.source import KafkaSource
from support import lakefeed
from support.drivers import Drivers
from support.kafka import Broker
from support.ledger import assert_each_once, table_ids
from support.offline import close_consumers
from support.processes import wait_until


class LossyBroker(Broker):
    """A broker whose disk can be brought back to an older state, partition by partition."""

    def keep(self, partition: str) -> None:
        self.stop()
        shutil.copytree(self._folder / "data" / partition, self._folder / f"kept-{partition}")
        self.start()

    def bring_back(self, partition: str) -> None:
        self.stop()
        shutil.rmtree(self._folder / "data" / partition)
        shutil.copytree(self._folder / f"kept-{partition}", self._folder / "data" / partition)
        self.start()


def drain(file: Path) -> None:
    """A run to the end without Spark; it keeps no consumer that would ask for the broker for ever."""
    try:
        run_inline(Pipeline.from_file(file))
    finally:
        close_consumers()


@pytest.fixture(scope="module")
def lossy() -> Iterator[LossyBroker]:
    with LossyBroker() as broker:
        yield broker


def events(first: int, count: int) -> list[bytes]:
    return [json.dumps({"event_id": number}).encode() for number in range(first, first + count)]


def pipeline(folder: Path, broker: Broker, topic: str, more: str = "") -> Path:
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  clicks: {{type: kafka, brokers: "{broker.address}", topics: {topic}, format: json{more}}}
tables:
  events: {{path: events, from: clicks, schema: {{event_id: long not null}}}}
flush: {{interval: 200ms}}
"""
    )
    return file


def test_a_partition_that_was_cut_short_and_has_grown_again_is_noticed_by_its_leader(
    lossy: LossyBroker, tmp_path: Path
) -> None:
    lossy.create_topic("regrown")
    lossy.produce("regrown", events(0, 60))
    lossy.keep("regrown-0")
    lossy.produce("regrown", events(60, 40))
    drain(pipeline(tmp_path, lossy, "regrown"))
    lossy.bring_back("regrown-0")
    lossy.produce("regrown", events(1000, 50))

    with pytest.raises(
        DataLoss, match=r"regrown-0: the next expected offset is 100.*truncated to 60 and has new events"
    ):
        drain(pipeline(tmp_path, lossy, "regrown"))
    drain(pipeline(tmp_path, lossy, "regrown", ", on_data_loss: skip"))

    assert_each_once([*range(100), *range(1000, 1050)], table_ids(tmp_path / "events"))


def test_a_leader_that_lost_nothing_is_no_loss_and_keeps_nobody_from_rewinding(
    lossy: LossyBroker, tmp_path: Path
) -> None:
    lossy.create_topic("restarted")
    lossy.produce("restarted", events(0, 10))
    file = pipeline(tmp_path, lossy, "restarted")
    drain(file)
    lossy.stop()
    lossy.start()
    lossy.produce("restarted", events(10, 10))

    drain(file)

    assert_each_once(range(20), table_ids(tmp_path / "events"))
    code, said, error = lakefeed.run("rewind", str(file), "--table", "events", "--to-version", "1")
    assert (code, error) == (0, "")
    assert "10 offsets to read again" in said


def answered(source: KafkaSource, partition: str, at: int) -> bool:
    try:
        return epochs.cut_short(source, {partition: (at, 0)}, timeout=0.3) == {}
    except SourceUnavailable:
        return False


def test_a_long_aborted_transaction_at_the_position_does_not_delay_the_answer(lossy: LossyBroker) -> None:
    lossy.create_topic("aborted")
    lossy.produce("aborted", events(0, 10))
    lossy.transaction("aborted", [b"x" * 1000] * 60_000, commit=False)
    source = KafkaSource(brokers=lossy.address, topics=("aborted",), format=JsonFormat())

    # To read over them takes longer than this each time; a slow machine may need more than one try.
    assert any(answered(source, "aborted-0", 10) for _ in range(30))


def test_a_partition_that_is_cut_short_during_a_run_stops_its_source(
    lossy: LossyBroker, drivers: Drivers, tmp_path: Path
) -> None:
    lossy.create_topic("cut")
    lossy.produce("cut", events(0, 5))
    lossy.keep("cut-0")
    lossy.produce("cut", events(5, 20))
    driver = drivers.start(pipeline(tmp_path, lossy, "cut"), once=False)
    events_table = tmp_path / "events"
    wait_until(lambda: events_table.exists() and len(table_ids(events_table)) == 25, 120, lambda: driver.said)

    lossy.bring_back("cut-0")

    ended = driver.wait()
    assert ended.code == 1
    assert "cut-0: the next expected offset is 25" in ended.said
    assert "the partition ends at 5: it was truncated" in ended.said
