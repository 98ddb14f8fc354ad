"""What is read from a real broker: where it starts, what a payload may be, what changes under way.

On Spark where its checkpoint matters; the others by the same flows, one task after the other in this process.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from conftest import TopicFactory
from lakefeed import DataLoss, SourceError
from support.kafka import Broker
from support.ledger import assert_each_once, assert_versions_contiguous, dead_letters, table_ids
from support.shop import Shop


def event(number: int) -> bytes:
    return json.dumps({"event_id": number, "name": f"event {number}"}).encode()


def events(count: int, first: int = 0) -> list[bytes]:
    return [event(number) for number in range(first, first + count)]


class KafkaShop(Shop):
    """A pipeline of one topic and one table in a folder of its own."""

    def __init__(self, broker: Broker, folder: Path, topic: str, source: str = "", table: str = "") -> None:
        super().__init__(folder)
        read = source if "topic_pattern" in source else f"topics: [{topic}], {source}"
        kafka = f"type: kafka, brokers: '{broker.address}', format: json, {read}"
        self.save(kafka, f"schema: {{event_id: long not null, name: string}}\n{table}")

    def rows(self) -> list[dict[str, Any]]:
        return sorted(DeltaTable(self.table).to_pyarrow_table().to_pylist(), key=lambda row: row["event_id"])


@pytest.mark.usefixtures("spark")
def test_earliest_reads_everything_and_a_second_run_only_what_is_new(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(partitions=3)
    shop = KafkaShop(broker, tmp_path, name)
    broker.produce(name, events(1000))

    shop.run()
    broker.produce(name, events(500, first=1000))
    shop.run()

    assert_each_once(range(1500), shop.ids())
    assert_versions_contiguous(shop.table)


def test_latest_begins_with_what_comes_after_the_first_start(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    shop = KafkaShop(broker, tmp_path, name, source="start: latest")
    broker.produce(name, events(100))

    shop.read()
    broker.produce(name, events(10, first=100))
    shop.read()

    assert shop.ids() == list(range(100, 110))


def test_a_timestamp_begins_with_the_first_event_at_or_after_it(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    hour = dt.datetime.now(dt.UTC).replace(minute=0, second=0, microsecond=0)
    moment = int(hour.timestamp() * 1000)
    broker.produce(name, events(10), timestamp=moment - 1)
    broker.produce(name, events(10, first=10), timestamp=moment)
    shop = KafkaShop(broker, tmp_path, name, source=f"start: {hour:%Y-%m-%dT%H:%M:%SZ}")

    shop.read()

    assert shop.ids() == list(range(10, 20))


def test_given_offsets_begin_there_and_other_partitions_at_the_earliest(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    broker.produce(name, events(10), partition=0)
    broker.produce(name, events(10, first=10), partition=1)
    shop = KafkaShop(broker, tmp_path, name, source=f'start: {{"{name}": {{"0": 7}}}}')

    shop.read()

    assert shop.ids() == [7, 8, 9, *range(10, 20)]


def test_a_pattern_reads_every_topic_that_matches_and_finds_new_ones(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    mark = f"pattern{time.time_ns()}"
    for suffix in ("a", "b"):
        broker.create_topic(f"{mark}.{suffix}")
    broker.create_topic(f"other.{mark}.a")
    broker.produce(f"other.{mark}.a", events(5, first=900))
    broker.produce(f"{mark}.a", events(5))
    broker.produce(f"{mark}.b", events(5, first=5))
    shop = KafkaShop(broker, tmp_path, "", source=f'topic_pattern: "{mark}\\\\..*"')

    shop.read()
    broker.create_topic(f"{mark}.c")
    broker.produce(f"{mark}.c", events(5, first=10))
    shop.read()

    assert_each_once(range(15), shop.ids())


def test_a_partition_added_between_runs_is_read_from_its_beginning_even_with_latest(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(partitions=3)
    shop = KafkaShop(broker, tmp_path, name, source="start: latest")
    shop.read()

    broker.add_partitions(name, 4)
    broker.produce(name, events(10), partition=3)
    shop.read()

    assert shop.ids() == list(range(10))


def test_aborted_transactions_are_not_read_and_leave_no_gap(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    shop = KafkaShop(broker, tmp_path, name)
    broker.transaction(name, events(10), commit=True)
    broker.transaction(name, events(10, first=900), commit=False)

    shop.read()
    broker.transaction(name, events(10, first=10), commit=True)
    shop.read()

    assert_each_once(range(20), shop.ids())
    assert (
        DeltaTable(shop.table).transaction_version(f"shop/clicks/{name}-0") == broker.end_offsets(name)[0] - 1
    )


def test_a_topic_of_nothing_but_an_aborted_transaction_ends(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    shop = KafkaShop(broker, tmp_path, name)
    broker.transaction(name, events(10), commit=False)

    shop.read()

    assert shop.ids() == []


def test_null_empty_and_broken_payloads_are_dead_letters_with_their_bytes_and_reason(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    shop = KafkaShop(broker, tmp_path, name)
    broker.produce(name, [event(0)])
    broker.produce(name, [None], key=b"gone", headers=[("h", b"1"), ("h", None)])
    broker.produce(
        name, [b"", b'{"event_id": 3, "name', b'{"event_id": "4"}', b'{"name": "no id"}', event(6)]
    )

    shop.read()
    shop.read()

    letters = dead_letters(shop.letters)
    assert shop.ids() == [0, 6]
    assert [(one["offset"], one["stage"], one["code"], one["payload"]) for one in letters] == [
        (1, "decode", "null_payload", None),
        (2, "decode", "empty_payload", b""),
        (3, "decode", "bad_json", b'{"event_id": 3, "name'),
        (4, "schema", "wrong_type", b'{"event_id": "4"}'),
        (5, "schema", "missing_value", b'{"name": "no id"}'),
    ]
    assert letters[0]["key"] == b"gone"
    assert letters[0]["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert {(one["pipeline"], one["source"], one["table"], one["topic"]) for one in letters} == {
        ("shop", "clicks", "events", name)
    }
    assert "event_id: expected long" in letters[3]["error"]


def test_metadata_columns_say_where_each_row_came_from(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    moment = int(time.time() * 1000)
    shop = KafkaShop(broker, tmp_path, name, table="metadata: true")
    broker.produce(name, [event(0)], partition=1, key=b"k", headers=[("a", b"x")], timestamp=moment)
    broker.produce(name, [b"broken", event(1)], partition=0)

    shop.read()

    first, second = shop.rows()
    assert (first["_topic"], first["_partition"], first["_offset"], first["_key"]) == (name, 1, 0, b"k")
    assert first["_timestamp"] == dt.datetime.fromtimestamp(moment / 1000, dt.UTC)
    assert first["_headers"] == [{"key": "a", "value": b"x"}]
    assert (second["_partition"], second["_offset"], second["_key"], second["_headers"]) == (0, 1, None, None)


def test_a_record_of_900_kilobytes_arrives_whole(broker: Broker, topic: TopicFactory, tmp_path: Path) -> None:
    name = topic()
    shop = KafkaShop(broker, tmp_path, name)
    long = "x" * 900_000
    broker.produce(name, [event(0), json.dumps({"event_id": 1, "name": long}).encode(), event(2)])

    shop.read()

    assert [len(row["name"]) for row in shop.rows()] == [7, 900_000, 7]


def test_offsets_lost_to_retention_stop_the_source_and_are_named(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    shop = KafkaShop(broker, tmp_path, name)
    broker.produce(name, events(10))
    shop.read()
    broker.produce(name, events(20, first=10))
    broker.delete_records(name, 0, 15)

    with pytest.raises(DataLoss) as caught:
        shop.read()

    assert f"{name}-0: the next expected offset is 10, the earliest is 15: 5 events lost" in str(caught.value)
    assert "on_data_loss: skip" in str(caught.value)
    assert shop.ids() == list(range(10))


def test_offsets_lost_to_retention_are_skipped_when_the_file_says_so(
    broker: Broker, topic: TopicFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    shop = KafkaShop(broker, tmp_path, name, source="on_data_loss: skip")
    broker.produce(name, events(10))
    shop.read()
    broker.produce(name, events(20, first=10))
    broker.delete_records(name, 0, 15)

    shop.read()

    assert shop.ids() == [*range(10), *range(15, 30)]
    assert "5 events lost" in caplog.text


def test_a_topic_deleted_and_created_again_is_noticed_though_its_offsets_fit(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    shop = KafkaShop(broker, tmp_path, name)
    broker.produce(name, events(10))
    shop.read()
    broker.delete_topic(name)
    broker.create_topic(name)
    broker.produce(name, [b"broken", *events(20, first=100)])

    with pytest.raises(DataLoss, match="was deleted and created again"):
        shop.read()
    skipping = KafkaShop(broker, tmp_path, name, source="on_data_loss: skip")
    skipping.read()
    skipping.read()

    assert_each_once([*range(10), *range(100, 120)], shop.ids())
    assert [one["offset"] for one in dead_letters(shop.letters)] == [0]


def test_a_topic_that_does_not_exist_is_named_with_the_nearest_one(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    shop = KafkaShop(broker, tmp_path, name + "x")

    with pytest.raises(SourceError, match=f"topic '{name}x' does not exist on .* Did you mean '{name}'"):
        shop.read()


def test_once_ends_on_an_empty_and_on_a_quiet_topic(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    shop = KafkaShop(broker, tmp_path, name)

    shop.read()
    broker.produce(name, events(3))
    shop.read()
    versions = assert_versions_contiguous(shop.table)
    shop.read()

    assert shop.ids() == [0, 1, 2]
    assert assert_versions_contiguous(shop.table) == versions


def test_schema_is_inferred_from_the_first_batch_and_new_columns_are_added(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    shop = KafkaShop(broker, tmp_path, name)
    text = shop.file.read_text()
    shop.file.write_text(text.replace("schema: {event_id: long not null, name: string}", ""))
    broker.produce(
        name, [b'{"event_id": 1, "at": "2026-11-15T10:00:00Z", "tags": ["a"]}', b'{"event_id": 2, "x": 1.5}']
    )

    shop.read()
    broker.produce(name, [b'{"event_id": 3, "more": {"a": 1}}', b'{"event_id": 4, "more": {"b": "two"}}'])
    shop.read()

    rows = {row["event_id"]: row for row in shop.rows()}
    assert sorted(rows) == [1, 2, 3, 4]
    assert rows[1]["at"] == dt.datetime(2026, 11, 15, 10, tzinfo=dt.UTC)
    assert rows[1]["tags"] == ["a"]
    assert rows[2]["x"] == 1.5
    assert rows[3]["more"] == {"a": 1, "b": None}
    assert rows[4]["more"] == {"a": None, "b": "two"}
    assert rows[1]["more"] is None


@pytest.mark.usefixtures("spark")
def test_deleting_the_checkpoint_directory_changes_nothing(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    import shutil

    name = topic(partitions=3)
    shop = KafkaShop(broker, tmp_path, name)
    broker.produce(name, events(100))
    shop.run()

    shutil.rmtree(tmp_path / ".lakefeed")
    broker.produce(name, events(100, first=100))
    shop.run()

    assert_each_once(range(200), shop.ids())


def test_one_source_feeds_two_tables_and_a_table_added_later_catches_up(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    shop = KafkaShop(broker, tmp_path, name)
    broker.produce(name, [*events(100), b"broken"])
    shop.read()
    shop.file.write_text(
        shop.file.read_text() + "  copy:\n    path: copy\n    from: clicks\n    schema: {event_id: long}\n"
    )
    broker.produce(name, events(100, first=100))

    shop.read()

    assert_each_once(range(200), shop.ids())
    assert_each_once(range(200), table_ids(tmp_path / "copy"))
    assert sorted(one["table"] for one in dead_letters(shop.letters)) == ["copy", "events"]


def test_two_sources_feed_one_table(broker: Broker, topic: TopicFactory, tmp_path: Path) -> None:
    one, two = topic(), topic()
    shop = KafkaShop(broker, tmp_path, one)
    second = f"  more: {{type: kafka, brokers: '{broker.address}', topics: [{two}], format: json}}\ntables:"
    shop.file.write_text(
        shop.file.read_text().replace("tables:", second).replace("from: clicks", "from: [clicks, more]")
    )
    broker.produce(one, events(50))
    broker.produce(two, events(50, first=50))

    shop.read()

    assert_each_once(range(100), shop.ids())


def test_two_pipelines_write_one_table_without_losing_or_repeating(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    one, two = topic(), topic()
    first, second = KafkaShop(broker, tmp_path, one), KafkaShop(broker, tmp_path, two)
    first.file = tmp_path / "first.yaml"
    first.file.write_text(second.file.read_text().replace("name: shop\n", "name: first\n").replace(two, one))
    for round_number in range(3):
        broker.produce(one, events(10, first=round_number * 20))
        broker.produce(two, events(10, first=round_number * 20 + 10))

        first.read()
        second.read()

    assert_each_once(range(60), first.ids())
