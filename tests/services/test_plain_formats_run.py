"""Payloads of several formats, from a real broker into tables, by one pipeline file."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from conftest import TopicFactory
from lakefeed import Pipeline
from support.kafka import Broker
from support.ledger import dead_letters

pytestmark = pytest.mark.usefixtures("spark")


def rows(path: Path, by: str) -> list[dict[str, Any]]:
    return sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=lambda row: row[by])


def test_one_pipeline_reads_text_numbers_csv_and_compressed_json(
    broker: Broker, topic: TopicFactory, pipeline_file: Callable[[str], Path], tmp_path: Path
) -> None:
    lines, counters, orders, clicks = topic(partitions=2), topic(), topic(), topic()
    broker.produce(lines, [b"System started", b"", "größer".encode()])
    broker.produce(counters, [n.to_bytes(8, "big", signed=True) for n in (42, -1, 2**62)] + [b"42"])
    broker.produce(orders, [b'1;"a;b";12.50;2026-11-15T10:00:00Z', b"2;;0.5;", b"3;c;cheap;"])
    broker.produce(clicks, [gzip.compress(json.dumps({"id": n, "tags": ["x"]}).encode()) for n in range(100)])
    broker.produce(clicks, [b'{"id": 100}'])
    customers = topic()
    states = [(b"1", b'{"id": 1}'), (b"2", b'{"id": 2}'), (b"1", None), (b"3", b'{"id": 3}'), (b"2", None)]
    for key, state in states:
        broker.produce(customers, [state], key=key)
    file = pipeline_file(
        f"""\
        name: plain
        sources:
          lines: {{type: kafka, brokers: "{broker.address}", topics: [{lines}], format: text}}
          counters: {{type: kafka, brokers: "{broker.address}", topics: [{counters}], format: int64}}
          orders:
            type: kafka
            brokers: "{broker.address}"
            topics: [{orders}]
            format: {{type: csv, columns: [id, name, price, at], delimiter: ";"}}
          clicks:
            type: kafka
            brokers: "{broker.address}"
            topics: [{clicks}]
            format: {{type: json, decompress: gzip}}
          customers:
            {{type: kafka, brokers: "{broker.address}", topics: [{customers}], format: json, key: text}}
        tables:
          lines: {{path: lines, from: lines}}
          counters: {{path: counters, from: counters, metadata: true}}
          orders:
            path: orders
            from: orders
            schema: {{id: long not null, price: "decimal(10,2)", at: timestamp}}
          clicks: {{path: clicks, from: clicks}}
          customers: {{path: customers, from: customers, mode: upsert, keys: id}}
        """
    )

    Pipeline.from_file(file).run(once=True)

    assert [row["data"] for row in rows(tmp_path / "lines", "data")] == ["", "System started", "größer"]
    found = [(row["_offset"], row["value"]) for row in rows(tmp_path / "counters", "_offset")]
    assert found == [(0, 42), (1, -1), (2, 2**62)]
    assert rows(tmp_path / "orders", "id") == [
        {
            "id": 1,
            "price": Decimal("12.50"),
            "at": dt.datetime(2026, 11, 15, 10, tzinfo=dt.UTC),
            "name": "a;b",
        },
        {"id": 2, "price": Decimal("0.50"), "at": None, "name": None},
    ]
    assert rows(tmp_path / "clicks", "id") == [{"id": n, "tags": ["x"]} for n in range(100)]
    assert rows(tmp_path / "customers", "id") == [{"id": 3}]
    letters = {(row["table"], row["code"]): row for row in dead_letters(tmp_path / "plain_dead_letters")}
    assert letters.keys() == {
        ("counters", "bad_length"),
        ("orders", "bad_decimal"),
        ("clicks", "bad_compression"),
    }
    assert letters["clicks", "bad_compression"]["payload"] == b'{"id": 100}'
