"""Change events and Protobuf messages, from a real broker into tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deltalake import DeltaTable

from conftest import TopicFactory
from lakefeed import Pipeline
from support.kafka import Broker
from support.ledger import dead_letters
from support.protobuf import message_class
from support.registry import SchemaRegistry

pytestmark = pytest.mark.usefixtures("spark")

PRICE = 'syntax = "proto3"; package shop.v1; message Price { int64 cents = 1; }'
CLICK = """\
syntax = "proto3";
package shop.v1;
import "price.proto";
import "google/protobuf/timestamp.proto";
message Seen { int64 id = 1; }
message Click { int64 id = 1; google.protobuf.Timestamp at = 2; repeated string tags = 3; Price price = 4; }
"""


def rows(path: Path, by: str) -> list[dict[str, Any]]:
    return sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=lambda row: row[by])


def event(op: str, before: Any, after: Any) -> bytes:
    return json.dumps({"before": before, "after": after, "op": op, "ts_ms": 5}).encode()


def serialized(registry: SchemaRegistry, topic: str, *messages: Any) -> list[bytes]:
    """What an ordinary producer sends; its serializer registers the schema by itself."""
    client = SchemaRegistryClient({"url": registry.url})
    serialize = ProtobufSerializer(type(messages[0]), client, {"use.deprecated.format": False})
    return [serialize(each, SerializationContext(topic, MessageField.VALUE)) for each in messages]


def test_tombstones_are_counted_and_messages_become_rows_with_a_registry_and_without(
    broker: Broker,
    registry: SchemaRegistry,
    topic: TopicFactory,
    pipeline_file: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    orders, plain, registered = topic(), topic(), topic()
    row = {"id": 1, "name": "a"}
    broker.produce(
        orders, [event("c", None, row), event("d", row, None), None, b"{", None, event("c", None, row)]
    )
    (tmp_path / "price.proto").write_text(PRICE)
    (tmp_path / "click.proto").write_text(CLICK)
    click = message_class(tmp_path / "click.proto", "shop.v1.Click")
    clicks = [click(id=n, tags=["a", str(n)], price={"cents": n}) for n in range(5)]
    broker.produce(plain, [each.SerializeToString() for each in clicks] + [b"\x0a"])
    broker.produce(registered, [*serialized(registry, registered, *clicks), b"\0\x7f\xff\xff\xff\0"])
    file = pipeline_file(
        f"""\
        name: typed
        sources:
          orders:
            {{type: kafka, brokers: "{broker.address}", topics: [{orders}],
              format: {{type: debezium, unwrap: true}}}}
          plain:
            {{type: kafka, brokers: "{broker.address}", topics: [{plain}],
              format: {{type: protobuf, descriptor: click.proto, message: shop.v1.Click}}}}
          registered:
            {{type: kafka, brokers: "{broker.address}", topics: [{registered}],
              format: {{type: protobuf, registry: "{registry.url}"}}}}
        tables:
          orders: {{path: orders, from: orders, metadata: true}}
          plain: {{path: plain, from: plain}}
          registered: {{path: registered, from: registered}}
        """
    )

    Pipeline.from_file(file).run(once=True)

    table = DeltaTable(tmp_path / "orders")
    found = [
        (row["_offset"], row["__op"], row["__deleted"], row["name"])
        for row in rows(tmp_path / "orders", "_offset")
    ]
    assert found == [(0, "c", False, "a"), (1, "d", True, "a"), (5, "c", False, "a")]
    [commit_info] = [
        json.loads(entry["lakefeed"]) for entry in table.history() if '"rows"' in entry["lakefeed"]
    ]
    partition = f"{orders}-0"
    assert commit_info["ranges"] == {partition: [0, 6, 6, 1]}
    assert (commit_info["rows"], commit_info["skipped"]) == (3, {partition: 2})
    expected = [{"id": n, "at": None, "tags": ["a", str(n)], "price": {"cents": n}} for n in range(5)]
    assert rows(tmp_path / "plain", "id") == rows(tmp_path / "registered", "id") == expected
    letters = {
        (row["table"], row["code"], row["error"]) for row in dead_letters(tmp_path / "typed_dead_letters")
    }
    assert letters == {
        ("orders", "bad_json", "line 1 column 2: expected a key in double quotes"),
        ("plain", "bad_protobuf", "byte 2: the payload ends within a number"),
        ("registered", "unknown_schema", "the registry has no schema 2147483647"),
    }
