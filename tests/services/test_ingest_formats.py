"""What `lakefeed ingest` reads and where it sends what it cannot: formats, dead letters, statsd."""

from __future__ import annotations

import base64
import gzip
import io
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema as RegisteredSchema
from confluent_kafka.schema_registry import SchemaRegistryClient
from deltalake import DeltaTable, write_deltalake

from conftest import TopicFactory
from lakefeed.commands.ingest import ingest_pipeline
from lakefeed.dead_letters.find import DeadLetterFilter, summaries
from lakefeed.formats.avro.schema import fingerprint
from lakefeed.handles.tables import Tables
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.watch.statsd import StatsdSender
from support.ingest import arguments, ids, ingest_once, make_table, payloads, rows_of
from support.kafka import Broker
from support.registry import SchemaRegistry

COLUMNS = pa.schema([("id", pa.int64()), ("value", pa.string())])
AVRO = {
    "type": "record",
    "name": "Click",
    "fields": [{"name": "id", "type": "long"}, {"name": "value", "type": ["null", "string"]}],
}


def record(number: int) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), {"id": number, "value": f"v{number}"})
    return stream.getvalue()


def container(number: int) -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, fastavro.parse_schema(AVRO), [{"id": number, "value": f"v{number}"}])
    return stream.getvalue()


def framed(number: int, content: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + content


def test_json_with_a_registry_and_compressed(
    broker: Broker, topic: TopicFactory, tmp_path: Path, registry: SchemaRegistry
) -> None:
    name, packed = topic(), topic()
    number = SchemaRegistryClient({"url": registry.url}).register_schema(
        name,
        RegisteredSchema('{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}', "JSON"),
    )
    broker.produce(name, [framed(number, one) for one in payloads(1, 2)])
    broker.produce(packed, [gzip.compress(one) for one in payloads(3, 4)])
    first, second = (make_table(tmp_path / one, COLUMNS) for one in ("registry", "gzip"))

    ingest_once(arguments(name, first, broker.address, json=registry.url))
    ingest_once(arguments(packed, second, broker.address, json="", decompress_gzip=True))

    assert (ids(first), ids(second)) == ([1, 2], [3, 4])


def test_avro_by_file_by_registry_and_as_single_objects(
    broker: Broker, topic: TopicFactory, tmp_path: Path, registry: SchemaRegistry
) -> None:
    file = tmp_path / "click.avsc"
    file.write_text(json.dumps(AVRO))
    by_file, by_registry, single = topic(), topic(), topic()
    number = SchemaRegistryClient({"url": registry.url}).register_schema(
        by_registry, RegisteredSchema(json.dumps(AVRO), "AVRO")
    )
    broker.produce(by_file, [container(1), container(2)])
    broker.produce(by_registry, [framed(number, record(3))])
    broker.produce(single, [b"\xc3\x01" + fingerprint(json.dumps(AVRO)) + record(4)])
    tables = [make_table(tmp_path / one, COLUMNS) for one in ("file", "registry", "single")]

    ingest_once(arguments(by_file, tables[0], broker.address, avro=str(file)))
    ingest_once(arguments(by_registry, tables[1], broker.address, avro=registry.url))
    ingest_once(
        arguments(single, tables[2], broker.address, soe_avro=str(file), transform=["value: kafka.topic"])
    )

    assert [rows_of(table) for table in tables] == [
        [{"id": 1, "value": "v1"}, {"id": 2, "value": "v2"}],
        [{"id": 3, "value": "v3"}],
        [{"id": 4, "value": single}],
    ]


def test_dead_letters_in_the_form_of_kafka_delta_ingest(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    table = make_table(tmp_path / "clicks", COLUMNS)
    theirs = pa.schema(
        [
            *((one, pa.string()) for one in ("base64_bytes", "json_string", "error")),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("date", pa.string()),
        ]
    )
    letters = make_table(tmp_path / "dlq", theirs, ["date"])
    old = {"base64_bytes": "eA==", "json_string": None, "error": "old", "timestamp": 0, "date": "1970-01-01"}
    write_deltalake(str(letters), pa.Table.from_pylist([old], schema=theirs), mode="append")
    broker.produce(name, [*payloads(1), b"bad bytes", b'{"id": "x"}', *payloads(2)])
    given = arguments(
        name,
        table,
        broker.address,
        transform=["value: substr(missing, `0`, `1`)"],
        dlq_table_location=str(letters),
        dlq_transform=["date: substr(epoch_micros_to_iso8601(timestamp), `0`, `10`)"],
    )

    ingest_once(given)
    pipeline = ingest_once(given)

    rows = sorted(rows_of(letters), key=lambda row: (row["offset"] is not None, row["offset"]))
    assert [row["json_string"] for row in rows] == [None, '{"id": 1}', None, '{"id": "x"}', '{"id": 2}']
    assert base64.b64decode(rows[2]["base64_bytes"]) == b"bad bytes"
    assert [row["date"] for row in rows] == [row["timestamp"].date().isoformat() for row in rows]
    assert [row["code"] for row in rows[1:]] == [
        "bad_transform",
        "bad_json",
        "bad_transform",
        "bad_transform",
    ]
    found = verify(pipeline, deep=True)
    assert found.sound, [str(one) for one in found.dead_letters.findings]
    kinds = {(one.code, one.dead_letters) for one in summaries(Tables(pipeline), DeadLetterFilter())}
    assert kinds == {("bad_transform", 3), ("bad_json", 1)}


def test_letters_of_that_form_are_replayed_once(broker: Broker, topic: TopicFactory, tmp_path: Path) -> None:
    name = topic()
    table = make_table(tmp_path / "clicks", COLUMNS)
    broker.produce(name, [*payloads(1), b'{"id": 2, "value": "late"}'])
    wrong = arguments(name, table, broker.address, dlq_table_location=str(tmp_path / "dlq"))
    ingest_once(
        arguments(
            name,
            table,
            broker.address,
            dlq_table_location=str(tmp_path / "dlq"),
            transform=["value: substr(value, `0`, `2`)"],
        )
    )
    assert ids(table) == [2]

    pipeline = ingest_once(wrong)
    (report,) = replay(pipeline, DeadLetterFilter())

    assert report.rows == 1
    assert ids(table) == [1, 2]
    assert rows_of(tmp_path / "dlq") == []


@pytest.fixture
def statsd() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(5)
        yield server


def test_statsd_gets_metrics_by_the_old_names(
    broker: Broker, topic: TopicFactory, tmp_path: Path, statsd: socket.socket
) -> None:
    name = topic(partitions=2)
    table = make_table(tmp_path / "clicks", COLUMNS)
    broker.produce(name, [*payloads(1, 2), b"bad bytes", b'{"id": 3, "value": "x"}'], partition=0)
    given = arguments(
        name,
        table,
        broker.address,
        transform=["value: substr(value, `0`, `1`)"],
        statsd_endpoint=f"127.0.0.1:{statsd.getsockname()[1]}",
    )
    _, pipeline = ingest_pipeline(given)
    assert pipeline.statsd is not None
    sender = StatsdSender(pipeline.statsd)

    ingest_once(given, sender.watch)
    sender.close()

    found: dict[str, str] = {}
    statsd.setblocking(False)
    while True:
        try:
            lines = statsd.recv(65536).decode().splitlines()
        except BlockingIOError:
            break
        found |= dict(line.removeprefix("kafka_delta_ingest.").split(":") for line in lines)
    told = {key: found.get(key) for key in found if not key.endswith(("duration", "size"))}
    assert told == {
        "buffer.lag.num_partitions": "2|g",
        "buffer.lag.total": "4|g",
        "buffer.lag.max": "4|g",
        "buffer.lag.min": "0|g",
        "delta.write.started": "1|c",
        "delta.write.completed": "1|c",
        "recordbatch.started": "1|c",
        "recordbatch.completed": "1|c",
        "messages.deserialization.completed": "3|c",
        "messages.deserialization.failed": "1|c",
        "messages.transform.completed": "1|c",
        "messages.transform.failed": "2|c",
        "delta.write.lag.num_partitions": "2|g",
        "delta.write.lag.total": "0|g",
        "delta.write.lag.max": "0|g",
        "delta.write.lag.min": "0|g",
    }
    assert {"delta.write.duration", "recordbatch.write_duration", "messages.size", "delta.add.size"} <= set(
        found
    )


def test_the_table_must_exist_and_is_told_so(broker: Broker, topic: TopicFactory, tmp_path: Path) -> None:
    name = topic()
    broker.produce(name, payloads(1))

    with pytest.raises(Exception, match=r"there is no Delta table at .* and `create` is false"):
        ingest_once(arguments(name, tmp_path / "typo", broker.address))

    assert not DeltaTable.is_deltatable(str(tmp_path / "typo"))
