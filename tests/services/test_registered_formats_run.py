"""Payloads of ordinary producers with a real schema registry, from a real broker into tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deltalake import DeltaTable

from conftest import TopicFactory
from lakefeed import Pipeline
from lakefeed.errors import RegistryError
from lakefeed.formats.avro.reader import Registered
from lakefeed.pipeline.options.registry import Registry
from support.kafka import Broker
from support.ledger import dead_letters
from support.registry import RegistryGate, SchemaRegistry

pytestmark = pytest.mark.usefixtures("spark")

PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
FIRST = {
    "type": "record",
    "name": "Click",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "int"}, {"name": "price", "type": PRICE}],
}
SECOND = {
    **FIRST,
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": PRICE},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    ],
}
AS_JSON = {"title": "Click", "type": "object", "properties": {"id": {"type": "integer"}}}


def avro(registry: SchemaRegistry, topic: str, schema: dict[str, Any], *rows: dict[str, Any]) -> list[bytes]:
    """What an ordinary producer sends; its serializer registers the schema by itself."""
    serialize = AvroSerializer(SchemaRegistryClient({"url": registry.url}), json.dumps(schema))
    return [serialize(row, SerializationContext(topic, MessageField.VALUE)) for row in rows]


def as_json(registry: SchemaRegistry, topic: str, *rows: dict[str, Any]) -> list[bytes]:
    serialize = JSONSerializer(json.dumps(AS_JSON), SchemaRegistryClient({"url": registry.url}))
    return [serialize(row, SerializationContext(topic, MessageField.VALUE)) for row in rows]


def rows(path: Path) -> list[dict[str, Any]]:
    return sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=lambda row: int(row["id"]))


def test_producers_with_a_registry_and_without_are_read_by_changing_only_the_format(
    broker: Broker,
    registry: SchemaRegistry,
    topic: TopicFactory,
    pipeline_file: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    clicks, views, plain = topic(partitions=2), topic(), topic()
    broker.produce(
        clicks, avro(registry, clicks, FIRST, *[{"id": n, "price": Decimal(n)} for n in range(50)])
    )
    broker.produce(
        clicks, avro(registry, clicks, SECOND, {"id": 2**40, "price": Decimal("0.5"), "tags": ["a"]})
    )
    broker.produce(clicks, [b"\0\x7f\xff\xff\xff\x02", b'{"id": 1}'])
    broker.produce(views, as_json(registry, views, *[{"id": n} for n in range(20)]))
    broker.produce(plain, [json.dumps({"id": n}).encode() for n in range(20)])
    file = pipeline_file(
        f"""\
        name: shop
        sources:
          clicks:
            {{type: kafka, brokers: "{broker.address}", topics: [{clicks}],
              format: {{type: avro, registry: "{registry.url}"}}}}
          views:
            {{type: kafka, brokers: "{broker.address}", topics: [{views}],
              format: {{type: json, registry: "{registry.url}"}}}}
          plain: {{type: kafka, brokers: "{broker.address}", topics: [{plain}], format: json}}
        tables:
          clicks: {{path: clicks, from: clicks}}
          views: {{path: views, from: views}}
          plain: {{path: plain, from: plain}}
        """
    )

    Pipeline.from_file(file).run(once=True)

    found = rows(tmp_path / "clicks")
    assert [row["id"] for row in found] == [*range(50), 2**40]
    assert found[7] == {"id": 7, "price": Decimal("7.00"), "tags": None}
    assert found[-1] == {"id": 2**40, "price": Decimal("0.50"), "tags": ["a"]}
    assert rows(tmp_path / "views") == rows(tmp_path / "plain") == [{"id": n} for n in range(20)]
    letters = {row["code"]: row["error"] for row in dead_letters(tmp_path / "shop_dead_letters")}
    assert letters == {
        "unknown_schema": "the registry has no schema 2147483647",
        "bad_framing": "expected a zero byte first, got 0x7b",
    }


def test_a_schema_that_refers_to_others_is_read_with_them(registry: SchemaRegistry) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    money = {
        "type": "record",
        "name": "Money",
        "namespace": "shop",
        "fields": [{"name": "cents", "type": "long"}],
    }
    client.register_schema("money", Schema(json.dumps(money), "AVRO"))
    reference = SchemaReference("shop.Money", "money", 1)
    order = {"type": "record", "name": "Order", "fields": [{"name": "total", "type": "shop.Money"}]}
    number = client.register_schema("order", Schema(json.dumps(order), "AVRO", [reference]))

    made, misfits = Registered(Registry(url=registry.url)).read([b"\0" + number.to_bytes(4, "big") + b"\x0e"])

    assert misfits == {}
    assert made[0].values.to_pylist() == [{"total": {"cents": 7}}]


def test_a_registry_that_is_down_pauses_and_one_that_refuses_stops_its_source_only(
    broker: Broker,
    registry: SchemaRegistry,
    topic: TopicFactory,
    pipeline_file: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    away, closed = topic(), topic()
    for name in (away, closed):
        broker.produce(name, avro(registry, name, FIRST, *[{"id": n, "price": Decimal(1)} for n in range(9)]))
    with RegistryGate(registry, broken=4) as recovering, RegistryGate(registry, login="Basic ?") as refusing:
        file = pipeline_file(
            f"""\
            name: shop
            sources:
              away:
                {{type: kafka, brokers: "{broker.address}", topics: [{away}],
                  format: {{type: avro, registry: "{recovering.url}"}}}}
              closed:
                {{type: kafka, brokers: "{broker.address}", topics: [{closed}],
                  format: {{type: avro, registry: {{url: "{refusing.url}", user: kim, password: geheim}}}}}}
            tables:
              away: {{path: away, from: away}}
              closed: {{path: closed, from: closed}}
            """
        )

        with pytest.raises(RegistryError) as error:
            Pipeline.from_file(file).run(once=True)

    assert str(error.value) == (
        f"the schema registry {refusing.url} refused to answer (HTTP 401).\n"
        "Check `user` and `password` of `registry`."
    )
    assert recovering.broken == 0
    assert [row["id"] for row in rows(tmp_path / "away")] == list(range(9))
    assert not (tmp_path / "shop_dead_letters").exists()
