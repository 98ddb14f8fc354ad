"""Change events and Protobuf messages, from a real broker into tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from conftest import TopicFactory
from lakefeed import Pipeline
from support.kafka import Broker
from support.ledger import dead_letters
from support.protobuf import message_class

pytestmark = pytest.mark.usefixtures("spark")

PROTO = """\
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
message Click { int64 id = 1; google.protobuf.Timestamp at = 2; repeated string tags = 3; }
"""


def event(op: str, before: Any, after: Any) -> bytes:
    return json.dumps({"before": before, "after": after, "op": op, "ts_ms": 5}).encode()


def test_tombstones_are_counted_and_messages_become_rows(
    broker: Broker, topic: TopicFactory, pipeline_file: Callable[[str], Path], tmp_path: Path
) -> None:
    orders, clicks = topic(), topic()
    row = {"id": 1, "name": "a"}
    broker.produce(
        orders, [event("c", None, row), event("d", row, None), None, b"{", None, event("c", None, row)]
    )
    (tmp_path / "click.proto").write_text(PROTO)
    click = message_class(tmp_path / "click.proto", "shop.v1.Click")
    broker.produce(
        clicks, [click(id=n, tags=["a", str(n)]).SerializeToString() for n in range(5)] + [b"\x0a"]
    )
    file = pipeline_file(
        f"""\
        name: typed
        sources:
          orders:
            type: kafka
            brokers: "{broker.address}"
            topics: [{orders}]
            format: {{type: debezium, unwrap: true}}
          clicks:
            type: kafka
            brokers: "{broker.address}"
            topics: [{clicks}]
            format: {{type: protobuf, descriptor: click.proto, message: shop.v1.Click}}
        tables:
          orders: {{path: orders, from: orders, metadata: true}}
          clicks: {{path: clicks, from: clicks}}
        """
    )

    Pipeline.from_file(file).run(once=True)

    table = DeltaTable(tmp_path / "orders")
    found = [
        (row["_offset"], row["__op"], row["__deleted"], row["name"])
        for row in sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: row["_offset"])
    ]
    assert found == [(0, "c", False, "a"), (1, "d", True, "a"), (5, "c", False, "a")]
    [account] = [json.loads(entry["lakefeed"]) for entry in table.history() if '"rows"' in entry["lakefeed"]]
    partition = f"{orders}-0"
    assert account["ranges"] == {partition: [0, 6, 6, 1]}
    assert (account["rows"], account["skipped"]) == (3, {partition: 2})
    messages = DeltaTable(tmp_path / "clicks").to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["at"], row["tags"][1]) for row in messages) == [
        (n, None, str(n)) for n in range(5)
    ]
    letters = {
        (row["table"], row["code"], row["error"]) for row in dead_letters(tmp_path / "typed_dead_letters")
    }
    assert letters == {
        ("orders", "bad_json", "line 1 column 2: expected a key in double quotes"),
        ("clicks", "bad_protobuf", "byte 2: the payload ends within a number"),
    }
