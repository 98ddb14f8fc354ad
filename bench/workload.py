"""What is measured: shop events of about 212 bytes and 8 columns, in a topic of four partitions."""

from __future__ import annotations

import json
from collections.abc import Iterator

from confluent_kafka import Producer

TOPIC = "narrow"
PARTITIONS = 4
SCHEMA = {
    "event_id": "long not null",
    "event_time": "timestamp",
    "event_type": "string",
    "product_id": "long",
    "category": "string",
    "brand": "string",
    "price": "double",
    "user_session": "string",
}
BRANDS = ["apple", "bosch", "samsung", "xiaomi", "lg", "sony", "huawei", "dyson"]


def payload(number: int) -> bytes:
    second = number // 50
    clock = f"{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    event = {
        "event_id": number,
        "event_time": f"2026-11-{1 + second // 86400 % 28:02d}T{clock}Z",
        "event_type": ("view", "view", "view", "cart", "purchase")[number % 5],
        "product_id": 1_000_000 + number * 7919 % 50_000,
        "category": f"electronics.{number * 31 % 50}",
        "brand": BRANDS[number * 17 % 8],
        "price": number * 13 % 100_000 / 100,
        "user_session": f"{number * 2654435761 % 2**32:08x}-{number % 65536:04x}",
    }
    return json.dumps(event, separators=(",", ":")).encode()


def produce(brokers: str, rows: int, bad_every: int | None = None, topic: str = TOPIC) -> float:
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
    for number, made in enumerate(_payloads(rows, bad_every)):
        size += len(made)
        while True:
            try:
                producer.produce(topic, made, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    return size / rows


def _payloads(rows: int, bad_every: int | None) -> Iterator[bytes]:
    for number in range(rows):
        made = payload(number)
        yield made[: len(made) // 2] if bad_every and number % bad_every == 0 else made
