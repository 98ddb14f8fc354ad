"""verify, rewind, replay and plan with a real broker: what it has lost, and what it tells about itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from conftest import TopicFactory
from lakefeed import DataLoss, Pipeline, TableError
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.rewind import rewind
from support.kafka import Broker
from support.ledger import assert_each_once, dead_letters, table_ids
from support.offline import close_consumers, drain


def write(folder: Path, broker: Broker, topic: str, source: str = "", table: str = "") -> Path:
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  clicks: {{type: kafka, brokers: "{broker.address}", topics: [{topic}], format: json{source}}}
tables:
  events: {{path: events, from: clicks, metadata: true{table}}}
"""
    )
    return file


def payloads(first: int, last: int) -> list[bytes]:
    return [json.dumps({"event_id": number}).encode() for number in range(first, last)]


def test_events_that_the_broker_has_lost_are_a_note_in_the_proof_and_no_gap(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    file = write(tmp_path, broker, name, ", on_data_loss: skip")
    broker.produce(name, payloads(0, 20))
    drain(file)
    broker.produce(name, payloads(20, 40))
    broker.delete_records(name, 0, 30)

    drain(file)
    proof = verify(Pipeline.from_file(file), deep=True)

    assert proof.sound, proof
    (note,) = proof.tables[0].notes
    assert f"clicks/{name}-0: offsets 20 to 29 were gone at the source (`on_data_loss: skip`)" in note
    assert sorted(table_ids(tmp_path / "events")) == [*range(20), *range(30, 40)]


def test_topic_that_was_made_anew_is_a_note_in_the_proof_and_its_offsets_no_repetition(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    file = write(tmp_path, broker, name, ", on_data_loss: skip")
    broker.produce(name, payloads(0, 20))
    drain(file)
    broker.delete_topic(name)
    broker.create_topic(name)
    broker.produce(name, payloads(20, 30))

    drain(file)
    proof = verify(Pipeline.from_file(file), deep=True)

    assert proof.sound, proof
    assert (
        "the source started again from the beginning: the next expected offset was 20, reading continued at 0"
        in proof.tables[0].notes[0]
    )
    assert_each_once(range(30), table_ids(tmp_path / "events"))
    with pytest.raises(DataLoss, match=r"so nothing is rewound: .* was deleted and created again since"):
        rewind(Pipeline.from_file(file), "events", to_version=0)


def test_dead_letters_of_a_topic_before_are_none_of_a_table_that_was_made_after_it(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    file = write(tmp_path, broker, name, ", on_data_loss: skip")
    broker.produce(name, [*payloads(0, 5), b"broken", *payloads(5, 10)])
    drain(file)
    broker.delete_topic(name)
    broker.create_topic(name)
    shutil.rmtree(tmp_path / "events")
    broker.produce(name, [*payloads(20, 30), b"broken too", *payloads(30, 40)])

    drain(file)
    proof = verify(Pipeline.from_file(file), deep=True)

    assert proof.sound, proof
    assert_each_once(range(20, 40), table_ids(tmp_path / "events"))
    assert len(dead_letters(tmp_path / "shop_dead_letters")) == 2


def test_markers_of_transactions_and_aborted_events_are_no_gap(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    file = write(tmp_path, broker, name)
    broker.transaction(name, payloads(0, 10), commit=True)
    broker.transaction(name, payloads(90, 99), commit=False)
    drain(file, keep_consumers=True)
    broker.transaction(name, payloads(10, 20), commit=True)
    drain(file)

    proof = verify(Pipeline.from_file(file), deep=True)

    (partition,) = proof.tables[0].partitions
    assert proof.sound, proof
    assert partition.read == 20
    assert partition.next - partition.first > 20


@pytest.mark.parametrize("on_data_loss", ["fail", "skip"])
def test_rewind_is_refused_where_the_broker_no_longer_holds_the_events(
    broker: Broker, topic: TopicFactory, tmp_path: Path, on_data_loss: str
) -> None:
    name = topic()
    file = write(tmp_path, broker, name, f", on_data_loss: {on_data_loss}")
    broker.produce(name, payloads(0, 30))
    drain(file, batch=10)
    broker.delete_records(name, 0, 15)
    pipeline = Pipeline.from_file(file)
    table = DeltaTable(tmp_path / "events")
    versions = {json.loads(one["lakefeed"]).get("rows"): one["version"] for one in table.history()}
    newest = table.version()

    with pytest.raises(DataLoss, match=r"next (expected offset is|offset would be) 10") as refused:
        rewind(pipeline, "events", to_version=newest - 2, dry_run=True)
    rewind(pipeline, "events", to_version=newest - 1)
    drain(file)

    assert "Choose a newer version." in str(refused.value)
    assert versions
    assert_each_once(range(30), table_ids(tmp_path / "events"))
    assert verify(pipeline, deep=True).sound


def test_replayed_letters_keep_their_key_headers_and_position(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    broker.produce(name, payloads(0, 5))
    when = 1_794_736_800_000
    broker.produce(
        name,
        [b'{"event_id": 5, "at": "2026-11-15T10:00:00Z"}'],
        key=b"five",
        headers=[("h", b"1"), ("h", None)],
        timestamp=when,
    )
    drain(write(tmp_path, broker, name, table=", schema: {event_id: long, at: timestamp(ms)}"))
    file = write(tmp_path, broker, name, table=", schema: {event_id: long, at: timestamp}")

    (report,) = replay(Pipeline.from_file(file), DeadLetterFilter(topic=name))

    rows = DeltaTable(tmp_path / "events").to_pyarrow_table().to_pylist()
    (row,) = [one for one in rows if one["event_id"] == 5]
    assert report.rows == 1
    assert (row["_topic"], row["_partition"], row["_offset"], row["_key"]) == (name, 0, 5, b"five")
    assert int(row["_timestamp"].timestamp() * 1000) == when
    assert [(one["key"], one["value"]) for one in row["_headers"]] == [("h", b"1"), ("h", None)]
    assert dead_letters(tmp_path / "shop_dead_letters") == []
    assert verify(Pipeline.from_file(file), deep=True).sound


def test_plan_shows_columns_from_every_partition_and_how_long_the_broker_keeps_events(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(partitions=2, config={"retention.ms": "7200000"})
    broker.produce(name, [b'{"a": 1}'] * 3, partition=0)
    broker.produce(name, [b'{"b": "x"}'] * 4, partition=1)
    file = write(tmp_path, broker, name)

    (told,) = plan_run(Pipeline.from_file(file)).tables
    close_consumers()

    assert told.columns[:2] == ["a long", "b string"]
    assert {key: (at.next, at.lag) for key, at in told.resumes["clicks"].items()} == {
        f"{name}-0": (0, 3),
        f"{name}-1": (0, 4),
    }
    assert told.warnings == [f"clicks: {name} keeps events for 2h: an outage longer than that loses some"]
    assert not (tmp_path / "events").exists()


def renamed(file: Path, name: str, table: str = "") -> Path:
    other = file.with_name(f"{name}.yaml")
    text = file.read_text().replace("name: shop", f"name: {name}")
    other.write_text(text.replace("metadata: true", f"metadata: true{table}"))
    return other


def test_renamed_pipeline_is_refused_by_the_topic_and_a_shared_table_is_proved_with_both_names(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    file = write(tmp_path, broker, name)
    broker.produce(name, payloads(0, 20))
    drain(file)

    with pytest.raises(TableError) as refused:
        drain(renamed(file, "store"))
    drain(renamed(file, "store", ", share: true"))
    proof = verify(Pipeline.from_file(file), deep=True)

    assert str(refused.value).startswith(
        f"table events: {tmp_path}/events holds events of topic '{name}' that pipeline 'shop' has written; "
        "pipeline 'store' would write them a second time.\n"
    )
    assert proof.tables[0].pipelines == ["shop", "store"]
    both, repeated = (finding.text for finding in proof.tables[0].findings)
    assert both.startswith(
        f"pipelines shop and store both feed the table from topic {name}: "
        f"20 events of partition {name}-0 there twice, offsets 0 to 19.\n"
    )
    assert repeated == f"clicks/{name}-0: 20 events there twice, the first at 0"


def test_topic_of_the_same_name_with_another_id_may_feed_the_table_from_another_pipeline(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    file = write(tmp_path, broker, name)
    broker.produce(name, payloads(0, 20))
    drain(file)
    broker.delete_topic(name)
    broker.create_topic(name)
    broker.produce(name, payloads(20, 40))

    drain(renamed(file, "store"))

    assert_each_once(range(40), table_ids(tmp_path / "events"))
    assert verify(Pipeline.from_file(renamed(file, "store"))).sound
