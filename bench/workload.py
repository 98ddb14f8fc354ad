"""What is measured: events of some shape in a topic of four partitions, and the tables that they go to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from shapes import AVRO, NARROW, WIDE, avro_bytes, narrow, wide

PARTITIONS = 4


@dataclass(frozen=True)
class Topic:
    """Events of one shape; `share` is how many there are, of the rows that are asked for."""

    name: str
    payload: Callable[[int], bytes]
    share: float = 1.0
    bad_every: int = 0


@dataclass(frozen=True)
class Workload:
    """A topic and what the tables of a pipeline do with it. `tables` is how many take every event."""

    name: str
    topic: Topic
    columns: Mapping[str, str]
    format: str = "json"
    options: Mapping[str, Any] = field(default_factory=dict)
    tables: int = 1
    routed: bool = False

    @property
    def where(self) -> str | None:
        """The condition that rows have to meet."""
        return self.options.get("where")

    @property
    def select(self) -> list[str]:
        """What is made of the events; all columns where it is empty."""
        return list(self.options.get("select", ()))

    @property
    def partitioned(self) -> list[str]:
        """The partition columns by their names in the table."""
        return [one.partition("(")[0] for one in self.options.get("partition_by", ())]

    def avro_schema(self) -> str:
        """What an Avro reader has to know."""
        return json.dumps(AVRO)

    def pipeline(self, brokers: str, batch: int, folder: Path) -> dict[str, Any]:
        """The pipeline file, with nothing set but the size of a batch."""
        how: dict[str, Any] = {"type": self.format}
        if self.format == "avro":
            (folder / "event.avsc").write_text(self.avro_schema())
            how["schema_file"] = str(folder / "event.avsc")
        source = {"type": "kafka", "brokers": brokers, "topics": [self.topic.name], "format": how}
        place = ("route", "{brand}") if self.routed else ("path", "table")
        table = {"from": "clicks", "schema": dict(self.columns), **self.options}
        return {
            "name": "bench",
            "sources": {"clicks": source},
            "tables": {
                f"t{number}": {place[0]: str(folder / f"t{number}" / place[1]), **table}
                for number in range(self.tables)
            },
            "flush": {"rows": batch, "bytes": "4GB"},
            "state": str(folder / "state"),
        }


def json_bytes(make: Callable[[int], dict[str, Any]]) -> Callable[[int], bytes]:
    return lambda number: json.dumps(make(number), separators=(",", ":")).encode()


NARROW_TOPIC = Topic("narrow", json_bytes(narrow))
WORKLOADS = [
    Workload("narrow JSON", NARROW_TOPIC, NARROW),
    Workload("wide JSON", Topic("wide", json_bytes(wide), share=0.25), WIDE),
    Workload("Avro", Topic("avro", avro_bytes), NARROW, format="avro"),
    Workload("1% malformed", Topic("malformed", json_bytes(narrow), bad_every=100), NARROW),
    Workload("by day", NARROW_TOPIC, NARROW, options={"partition_by": ["day(event_time)"]}),
    Workload(
        "by day and 50 values",
        NARROW_TOPIC,
        NARROW,
        options={"partition_by": ["day(event_time)", "category"]},
    ),
    Workload("a route of 20 tables", NARROW_TOPIC, NARROW, routed=True),
    Workload(
        "where and select",
        NARROW_TOPIC,
        NARROW,
        options={
            "where": "price >= 2 AND brand IS NOT NULL",
            "select": [
                "event_id",
                "event_time",
                "upper(event_type) AS event_type",
                "product_id",
                "category",
                "brand",
                "price * 1.2 AS gross",
                "user_session",
            ],
        },
    ),
    Workload(
        "a function of Spark's",
        NARROW_TOPIC,
        NARROW,
        options={
            "where": "price >= 2 AND brand IS NOT NULL",
            "select": [
                "event_id",
                "event_time",
                "initcap(event_type) AS event_type",
                "product_id",
                "category",
                "brand",
                "price * 1.2 AS gross",
                "xxhash64(user_session) AS session",
            ],
        },
    ),
    Workload("every event in 20 tables", NARROW_TOPIC, NARROW, tables=20),
]


def produce(brokers: str, topic: Topic, rows: int) -> float:
    """Fill the topic; answers the mean size of a payload."""
    producer = Producer(
        {
            "bootstrap.servers": brokers,
            "linger.ms": 50,
            "batch.num.messages": 50_000,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
            "compression.type": "lz4",
        }
    )
    size = 0
    for number, made in enumerate(_payloads(topic, rows)):
        size += len(made)
        while True:
            try:
                producer.produce(topic.name, made, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    return size / rows


def _payloads(topic: Topic, rows: int) -> Iterator[bytes]:
    for number in range(rows):
        made = topic.payload(number)
        yield made[: len(made) // 2] if topic.bad_every and number % topic.bad_every == 0 else made
