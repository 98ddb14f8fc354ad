"""The shapes of events: narrow as in a shop's click stream, wide as in a mobile application's log."""

from __future__ import annotations

import datetime as dt
import io
from typing import Any

import fastavro

NARROW = {
    "event_id": "long not null",
    "event_time": "timestamp",
    "event_type": "string",
    "product_id": "long",
    "category": "string",
    "brand": "string",
    "price": "double",
    "user_session": "string",
}
_SCALARS = {
    **{f"text_{at}": "string" for at in range(20)},
    **{f"number_{at}": "long" for at in range(15)},
    **{f"measure_{at}": "double" for at in range(10)},
    **{f"flag_{at}": "boolean" for at in range(5)},
    **{f"moment_{at}": "timestamp" for at in range(3)},
}
WIDE = {
    "event_id": "long not null",
    "event_time": "timestamp",
    **_SCALARS,
    "device": "struct<os: string, version: string, model: string, width: int, height: int>",
    "place": "struct<country: string, city: string, latitude: double, longitude: double>",
    "items": "array<struct<sku: string, quantity: int, price: double>>",
    "tags": "array<string>",
    "campaign": "struct<url: string, source: struct<id: long, name: string>>",
}
BRANDS = [f"brand-{number:02}" for number in range(20)]
AVRO = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Click",
        "fields": [
            {"name": "event_id", "type": "long"},
            {"name": "event_time", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "event_type", "type": "string"},
            {"name": "product_id", "type": "long"},
            {"name": "category", "type": "string"},
            {"name": "brand", "type": "string"},
            {"name": "price", "type": "double"},
            {"name": "user_session", "type": "string"},
        ],
    }
)
_BEGAN = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


def narrow(number: int) -> dict[str, Any]:
    """Eight columns in about 212 bytes of JSON; 50 events a second of its own time."""
    return {
        "event_id": number,
        "event_time": _clock(number // 50),
        "event_type": ("view", "view", "view", "cart", "purchase")[number % 5],
        "product_id": 1_000_000 + number * 7919 % 50_000,
        "category": f"electronics.{number * 31 % 50}",
        "brand": BRANDS[number * 17 % 20],
        "price": number * 13 % 100_000 / 100,
        "user_session": f"{number * 2654435761 % 2**32:08x}-{number % 65536:04x}-4a6b-9c1d-{number:012x}",
    }


def wide(number: int) -> dict[str, Any]:
    """Sixty columns in about 2,000 bytes of JSON, five of them nested."""
    event: dict[str, Any] = {"event_id": number, "event_time": _clock(number // 50)}
    for at, (name, kind) in enumerate(_SCALARS.items()):
        mixed = (number * 2654435761 + at * 40503) % 2**32
        match kind:
            case "string":
                event[name] = (
                    f"a value of some length {mixed % 1000}" if at % 2 else f"session-{mixed:08x}-of-a-user"
                )
            case "long":
                event[name] = mixed
            case "double":
                event[name] = mixed % 100_000 / 100
            case "boolean":
                event[name] = bool(mixed % 2)
            case "timestamp":
                event[name] = _clock(number // 50 - at)
    items = ({"sku": f"sku-{number % 997}-{at}", "quantity": at + 1, "price": 9.5 + at} for at in range(3))
    return event | {
        "device": {
            "os": "android",
            "version": "14.1",
            "model": f"m-{number % 40}",
            "width": 1080,
            "height": 2400,
        },
        "place": {"country": "PL", "city": f"city-{number % 300}", "latitude": 52.2, "longitude": 21.0},
        "items": list(items),
        "tags": ["sale", f"tag-{number % 25}"],
        "campaign": {
            "url": f"https://shop.example/c/{number % 60}",
            "source": {"id": number % 60, "name": "mail"},
        },
    }


def avro_bytes(number: int) -> bytes:
    """The narrow event as the bytes of an Avro record."""
    written = io.BytesIO()
    event = narrow(number)
    event["event_time"] = _BEGAN + dt.timedelta(seconds=number // 50)
    fastavro.schemaless_writer(written, AVRO, event)
    return written.getvalue()


def _clock(second: int) -> str:
    second %= 28 * 86_400
    clock = f"{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"2026-11-{1 + second // 86_400:02d}T{clock}Z"
