"""`lakefeed ingest` in the place of kafka-delta-ingest: its offsets, flushes, workers and dead letters."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from conftest import TopicFactory
from lakefeed.commands.ingest import ingest_pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.errors import TableError
from lakefeed.pipeline.loading.load import load_text
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from lakefeed.reprocess.rewind import rewind
from support.ingest import (
    OldTool,
    arguments,
    eventually,
    ids,
    ingest_once,
    make_table,
    payloads,
    rows_of,
    version,
    working,
)
from support.kafka import Broker

COLUMNS = pa.schema([("id", pa.int64()), ("value", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return make_table(tmp_path / "lake" / "clicks", COLUMNS)


def proved(pipeline: Pipeline) -> None:
    found = verify(pipeline, deep=True)
    assert found.sound, [str(one) for each in found.tables for one in each.findings]


def test_a_table_with_offset_0_gets_what_follows_it(broker: Broker, topic: TopicFactory, table: Path) -> None:
    name = topic()
    broker.produce(name, payloads(0, 1, 2))
    OldTool(table).write([{"id": 0}], {0: 0})

    pipeline = ingest_once(arguments(name, table, broker.address))

    assert ids(table) == [0, 1, 2]
    assert OldTool(table).positions() == {0: 2}
    proved(pipeline)


def test_a_seek_starts_behind_its_offsets_and_is_repeated_without_a_version(
    broker: Broker, topic: TopicFactory, table: Path
) -> None:
    name = topic(partitions=2)
    broker.produce(name, payloads(*range(10)), partition=0)
    broker.produce(name, payloads(*range(10, 20)), partition=1)
    given = arguments(name, table, broker.address, seek_offsets='{"0": 4, "1": 9}')

    ingest_once(given)
    written = version(table)
    ingest_once(given)

    assert ids(table) == [5, 6, 7, 8, 9]
    assert OldTool(table).positions() == {0: 9, 1: 9}
    assert version(table) == written


def test_a_seek_ahead_of_the_table_is_refused(broker: Broker, topic: TopicFactory, table: Path) -> None:
    name = topic()
    broker.produce(name, payloads(*range(20)))
    OldTool(table).write([], {0: 5})

    with pytest.raises(TableError, match=r"test-0:stored=5/seek=15"):
        ingest_once(arguments(name, table, broker.address, seek_offsets='{"0": 15}'))

    assert ids(table) == []


def test_a_seek_that_retention_has_passed_does_not_stop_the_migration(
    broker: Broker, topic: TopicFactory, table: Path
) -> None:
    name = topic(partitions=2)
    broker.produce(name, payloads(*range(10)), partition=0)
    broker.produce(name, payloads(10, 11), partition=1)
    OldTool(table).write([], {0: 7})
    broker.delete_records(name, 0, 6)

    ingest_once(arguments(name, table, broker.address, seek_offsets='{"0": 2, "1": 0}'))

    assert ids(table) == [8, 9, 11]


def test_a_pipeline_without_the_app_id_is_refused_and_planned_so(
    broker: Broker, topic: TopicFactory, table: Path, tmp_path: Path
) -> None:
    name = topic()
    broker.produce(name, payloads(*range(10)))
    OldTool(table).write([], {0: 7})
    file = tmp_path / "plain.yaml"
    text = f"""\
name: plain
state: {tmp_path}/state
sources: {{k: {{type: kafka, brokers: "{broker.address}", topics: {name}, format: json}}}}
tables: {{t: {{path: "{table}", from: k, create: false}}}}
"""
    file.write_text(text)

    with pytest.raises(TableError, match="Set `app_id: test` on the table"):
        run_inline(Pipeline.from_file(file))
    assert "Set `app_id: test`" in (plan_run(Pipeline.from_file(file)).tables[0].refused or "")
    assert ids(table) == []

    file.write_text(text.replace("create: false", "create: false, app_id: test"))
    run_inline(Pipeline.from_file(file))
    assert ids(table) == [8, 9]
    file.write_text(text)
    run_inline(Pipeline.from_file(file))
    assert ids(table) == [8, 9], "its own positions are complete"


def test_latest_leaves_out_what_was_there_and_a_seek_holds_for_its_partition_only(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    broker.produce(name, payloads(0, 1, 2), partition=0)
    broker.produce(name, payloads(10, 11, 12), partition=1)
    latest = make_table(tmp_path / "latest", COLUMNS)
    seek = make_table(tmp_path / "seek", COLUMNS)

    for place, offsets in ((latest, None), (seek, '{"0": 0}')):
        given = arguments(name, place, broker.address, auto_offset_reset="latest", seek_offsets=offsets)
        ingest_once(given)
    broker.produce(name, payloads(3), partition=0)
    broker.produce(name, payloads(13), partition=1)
    for place in (latest, seek):
        ingest_once(arguments(name, place, broker.address, auto_offset_reset="latest"))

    assert ids(latest) == [3, 13]
    assert ids(seek) == [1, 2, 3, 13]


def test_a_bounded_run_ends_also_when_nothing_new_has_come(
    broker: Broker, topic: TopicFactory, table: Path
) -> None:
    name = topic(partitions=3)
    given = arguments(name, table, broker.address)

    ingest_once(given)
    broker.produce(name, payloads(1), partition=1)
    ingest_once(given)
    ingest_once(given)

    assert ids(table) == [1]
    assert OldTool(table).positions() == {1: 0}, (
        "what has read nothing says nothing: -1 would be the end there"
    )


def test_latency_and_size_flush_and_an_idle_stream_writes_no_version(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    slow, large = topic(), topic()
    by_latency = make_table(tmp_path / "latency", COLUMNS)
    by_size = make_table(tmp_path / "size", COLUMNS)
    # How large messages are shows with the first of them, which are read at once.
    broker.produce(large, payloads(*range(10), value="x" * 100))
    with (
        working(arguments(slow, by_latency, broker.address, allowed_latency=1)),
        working(arguments(large, by_size, broker.address, allowed_latency=300, min_bytes_per_file=2000)),
    ):
        broker.produce(slow, payloads(1, 2))
        eventually(lambda: len(ids(by_size)) == 10)
        broker.produce(large, payloads(*range(10, 200), value="x" * 100))
        eventually(lambda: ids(by_latency) == [1, 2])
        eventually(lambda: len(ids(by_size)) > 180)
        written = version(by_latency)
        time.sleep(2)
        assert version(by_latency) == written


def test_a_column_that_somebody_adds_is_followed(broker: Broker, topic: TopicFactory, table: Path) -> None:
    name = topic()
    with working(arguments(name, table, broker.address, allowed_latency=1)):
        broker.produce(name, payloads(1, value="a", color="red"))
        eventually(lambda: ids(table) == [1])
        DeltaTable(str(table)).alter.add_columns(
            list(Schema.from_arrow(pa.schema([("color", pa.string())])).fields)
        )
        broker.produce(name, payloads(2, value="b", color="blue"))
        eventually(lambda: len(ids(table)) == 2)

    assert {row["id"]: row["color"] for row in rows_of(table)} == {1: None, 2: "blue"}


def test_partition_values_null_ones_among_them(broker: Broker, topic: TopicFactory, tmp_path: Path) -> None:
    name = topic()
    columns = pa.schema([*COLUMNS, ("date", pa.string()), ("color", pa.string())])
    table = make_table(tmp_path / "lake", columns, ["date", "color"])
    broker.produce(name, payloads(1, 2, ts="2021-03-24T15:06:17Z", color="red"))
    broker.produce(name, payloads(3, ts="2021-03-25T00:00:00Z"))

    ingest_once(arguments(name, table, broker.address, transform=["date: substr(ts, `0`, `10`)"]))

    actions = pa.table(DeltaTable(str(table)).get_add_actions(flatten=True)).to_pylist()
    found = {(one["partition.date"], one["partition.color"]): one["num_records"] for one in actions}
    assert found == {("2021-03-24", "red"): 2, ("2021-03-25", None): 1}


def test_bad_bytes_become_letters_and_the_stream_goes_on(
    broker: Broker, topic: TopicFactory, table: Path
) -> None:
    name = topic()
    bad = [b'{"id": "no number"}', b'{"id": {"a": 1}}']
    sent = [*payloads(1, 2), *bad, *payloads(3, 4), b"bad bytes", *payloads(*range(5, 11)), b"bad bytes"]
    with working(arguments(name, table, broker.address, allowed_latency=1)) as worker:
        broker.produce(name, sent)
        eventually(lambda: len(ids(table)) == 10)
        assert worker.is_alive
        pipeline = worker.pipeline

    letters = rows_of(Path(pipeline.dead_letters_path))
    assert ids(table) == list(range(1, 11))
    assert sorted((one["offset"], one["code"]) for one in letters) == [
        (2, "wrong_type"),
        (3, "wrong_type"),
        (6, "bad_json"),
        (13, "bad_json"),
    ]
    proved(pipeline)


def test_two_workers_and_one_that_joins_in_midstream_write_every_message_once(
    broker: Broker, topic: TopicFactory, table: Path
) -> None:
    name = topic(partitions=4)
    given = arguments(name, table, broker.address, allowed_latency=1)

    def produce(numbers: range) -> None:
        for number in numbers:
            broker.produce(name, payloads(number), partition=number % 4)

    with working(given) as first, working(given) as second:
        produce(range(60))
        eventually(lambda: len(ids(table)) > 0)
        with working(given) as third:
            produce(range(60, 150))
            eventually(lambda: len(set(ids(table))) >= 150)
        produce(range(150, 200))
        eventually(lambda: len(set(ids(table))) >= 200)
        assert first.is_alive and second.is_alive

    assert ids(table) == list(range(200))
    proved(third.pipeline)


def test_old_tool_then_ingest_then_the_printed_pipeline_then_the_old_tool_again(
    broker: Broker, topic: TopicFactory, table: Path
) -> None:
    name = topic(partitions=2)
    for number in range(40):
        broker.produce(name, payloads(number), partition=number % 2)
    OldTool(table).write([{"id": number} for number in range(10)], {0: 4, 1: 4})

    ingest_once(arguments(name, table, broker.address))
    broker.produce(name, payloads(40), partition=0)
    made, _ = ingest_pipeline(arguments(name, table, broker.address))
    printed = load_text(made.text, [f"state={table.parent / 'state'}"], {})
    run_inline(printed)
    assert OldTool(table).positions() == {0: 20, 1: 19}
    broker.produce(name, payloads(41), partition=1)
    OldTool(table).write([{"id": 41}], {1: 20})
    broker.produce(name, payloads(43), partition=1)
    run_inline(printed)

    assert ids(table) == [*range(42), 43]
    assert OldTool(table).positions() == {0: 20, 1: 21}
    proved(printed)
    (found,) = status(printed).tables
    assert found.lag == 0


def test_the_old_tool_beside_a_worker_is_fenced(broker: Broker, topic: TopicFactory, table: Path) -> None:
    name = topic()
    with working(arguments(name, table, broker.address, allowed_latency=1)):
        broker.produce(name, payloads(0))
        eventually(lambda: ids(table) == [0])
        # It has the same partition, and is faster: the worker has all of these in a batch when it meets it.
        OldTool(table).write([{"id": 1}, {"id": 2}], {0: 2})
        broker.produce(name, payloads(1, 2, 3))
        eventually(lambda: 3 in ids(table))

    found = ids(table)
    assert found == [0, 1, 2, 3], found
    assert OldTool(table).positions() == {0: 3}


def test_nested_statistics_are_exact(broker: Broker, topic: TopicFactory, tmp_path: Path) -> None:
    name = topic()
    meta = pa.struct([("kafka", pa.struct([("offset", pa.int64()), ("topic", pa.string())]))])
    table = make_table(tmp_path / "lake", pa.schema([("id", pa.int64()), ("meta", meta)]))
    broker.produce(name, payloads(*range(5)))

    ingest_once(
        arguments(
            name,
            table,
            broker.address,
            transform=["meta.kafka.offset: kafka.offset", "meta.kafka.topic: kafka.topic"],
        )
    )

    (stats,) = pa.table(DeltaTable(str(table)).get_add_actions(flatten=True)).to_pylist()
    assert (stats["min.meta.kafka.offset"], stats["max.meta.kafka.offset"]) == (0, 4)
    assert (stats["min.meta.kafka.topic"], stats["null_count.meta.kafka.offset"]) == (name, 0)
    assert stats["num_records"] == 5


def test_a_rewind_takes_the_offsets_of_the_app_id_back_too(
    broker: Broker, topic: TopicFactory, table: Path
) -> None:
    name = topic()
    broker.produce(name, payloads(*range(6)))
    OldTool(table).write([{"id": 0}, {"id": 1}], {0: 1})
    given = arguments(name, table, broker.address)
    pipeline = ingest_once(given)
    before = version(table)
    broker.produce(name, payloads(6, 7))
    ingest_once(given)

    rewind(pipeline, "clicks", to_version=before)

    assert ids(table) == list(range(6))
    assert OldTool(table).positions() == {0: 5}
    ingest_once(given)
    assert ids(table) == list(range(8))
    proved(pipeline)
