"""Events that come in at an even rate, each with its number and the moment at which it was produced.

Call `python trickle.py BROKERS TOPIC EVENTS_A_SECOND`: it produces until it is killed.
"""

from __future__ import annotations

import json
import sys
import time

PARTITIONS = 4
SCHEMA = {
    "number": "long not null",
    "sent": "long not null",
    "event_type": "string",
    "product_id": "long",
    "category": "string",
    "brand": "string",
    "price": "double",
    "user_session": "string",
}
_STEP = 0.01
_BRANDS = ["apple", "bosch", "samsung", "xiaomi", "lg", "sony", "huawei", "dyson"]


def payload(number: int) -> bytes:
    """An event that is produced now; `sent` counts microseconds since 1970."""
    event = {
        "number": number,
        "sent": time.time_ns() // 1000,
        "event_type": ("view", "view", "view", "cart", "purchase")[number % 5],
        "product_id": 1_000_000 + number * 7919 % 50_000,
        "category": f"electronics.{number * 31 % 50}",
        "brand": _BRANDS[number * 17 % 8],
        "price": number * 13 % 100_000 / 100,
        "user_session": f"{number * 2654435761 % 2**32:08x}-{number % 65536:04x}",
    }
    return json.dumps(event, separators=(",", ":")).encode()


def produce(brokers: str, topic: str, rate: int) -> None:
    """A few events at each step of the clock; steps that were missed are made up for at once."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 1, "log_level": 0})
    began, sent = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - began) * rate)
        for number in range(sent, due):
            producer.produce(topic, payload(number), partition=number % PARTITIONS)
        sent = due
        producer.poll(0)
        time.sleep(_STEP)


if __name__ == "__main__":
    produce(sys.argv[1], sys.argv[2], int(sys.argv[3]))
