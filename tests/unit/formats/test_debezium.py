"""What the `debezium` format makes of change events in JSON."""

from __future__ import annotations

import datetime as dt
import json
from base64 import b64encode
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakefeed.formats import Decoded
from lakefeed.formats.debezium import DebeziumFormat
from lakefeed.pipeline.types import declared_schema, type_text

DECIMAL = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "2", "connect.decimal.precision": "10"},
}
FIELDS: dict[str, dict[str, Any]] = {
    "id": {"type": "int64"},
    "born": {"type": "int32", "name": "io.debezium.time.Date"},
    "price": DECIMAL,
    "made": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    "seen": {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
    "blob": {"type": "bytes"},
    "prices": {"type": "array", "items": DECIMAL},
    "tags": {"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}},
}
ROW = {
    "id": 1,
    "born": 20_000,
    "price": b64encode((-12345).to_bytes(3, "big", signed=True)).decode(),
    "made": 1_700_000_000_123_456,
    "seen": "2026-11-15T12:00:00.250+02:00",
    "blob": "AQI=",
    "prices": ["AQ==", "AgA="],
    "tags": {"a": "b"},
}
MADE = {
    "id": 1,
    "born": dt.date(2024, 10, 4),
    "price": Decimal("-123.45"),
    "made": dt.datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=dt.UTC),
    "seen": dt.datetime(2026, 11, 15, 10, 0, 0, 250_000, tzinfo=dt.UTC),
    "blob": b"\x01\x02",
    "prices": [Decimal("0.01"), Decimal("5.12")],
    "tags": [("a", "b")],
}


def event(op: str, before: Any, after: Any, ts_ms: int = 5) -> dict[str, Any]:
    return {"before": before, "after": after, "source": {"table": "orders"}, "op": op, "ts_ms": ts_ms}


def wrapped(found: dict[str, Any] | None, fields: dict[str, dict[str, Any]] = FIELDS, **more: Any) -> bytes:
    """An event as Kafka Connect's JSON converter writes it when schemas are enabled."""
    row = [{"field": name, "optional": True, **schema} for name, schema in fields.items()]
    source = {"type": "struct", "fields": [{"type": "string", "field": "table"}], "field": "source"}
    members = [{"type": "struct", "fields": row, "field": side} for side in ("before", "after")]
    members += [source, {"type": "string", "field": "op"}, {"type": "int64", "field": "ts_ms"}]
    schema = {"type": "struct", "fields": members, "name": "shop.orders.Envelope"}
    return json.dumps({"schema": schema, "payload": found, **more}, separators=(",", ":")).encode()


def plain(found: dict[str, Any]) -> bytes:
    return json.dumps(found).encode()


def decode(columns: pa.Schema | dict[str, str], *payloads: bytes | None, unwrap: bool = False) -> Decoded:
    schema = columns if isinstance(columns, pa.Schema) else declared_schema(columns)
    return DebeziumFormat(unwrap=unwrap).decoder(schema).decode(payloads)


def inferred(*payloads: bytes | None, unwrap: bool = False) -> Decoded:
    """Decoded with the columns that the payloads themselves propose."""
    unknown = decode({}, *payloads, unwrap=unwrap).unknown
    return decode(unknown or pa.schema([]), *payloads, unwrap=unwrap)


def refusals(decoded: Decoded) -> list[tuple[int, str, str]]:
    return [(one.index, one.code, one.error) for one in decoded.refused]


def test_the_schema_of_an_event_gives_its_columns_their_types() -> None:
    decoded = inferred(wrapped(event("c", None, ROW)), wrapped(event("d", ROW, None)))

    types = {field.name: type_text(field.type) for field in decoded.rows.schema.field("after").type}
    assert types == {
        "id": "long",
        "born": "date",
        "price": "decimal(10,2)",
        "made": "timestamp",
        "seen": "timestamp",
        "blob": "binary",
        "prices": "array<decimal(10,2)>",
        "tags": "map<string, string>",
    }
    created, deleted = decoded.rows.to_pylist()
    assert created == {"before": None, "after": MADE, "source": {"table": "orders"}, "op": "c", "ts_ms": 5}
    assert (deleted["before"], deleted["after"], deleted["op"]) == (MADE, None, "d")


def test_an_event_without_schema_is_read_as_json() -> None:
    decoded = inferred(plain(event("u", {"id": 1, "price": "1.50"}, {"id": 1, "price": "2.50"})))

    assert decoded.rows.to_pylist() == [
        event("u", {"id": 1, "price": "1.50"}, {"id": 1, "price": "2.50"}),
    ]
    declared = decode(
        {"op": "string", "after": "struct<price: decimal(10,2)>"},
        plain({"op": "c", "after": {"price": "2.5"}}),
    )
    assert declared.rows.to_pylist() == [{"op": "c", "after": {"price": Decimal("2.50")}}]


def test_tombstones_are_skipped() -> None:
    change, old_tombstone = plain({"op": "d"}), b'{"schema":null,"payload":null}'

    decoded = decode({"op": "string"}, None, change, old_tombstone, wrapped(None), change)

    assert (decoded.skipped, decoded.refused) == ([0, 2, 3], [])
    assert decoded.rows.num_rows == 2


NO_ENVELOPES = [b'{"ts_ms": 5}', b'{"op": 1}', wrapped({"ts_ms": 5}), b'{"after": {"op": "c"}}']


@pytest.mark.parametrize("payload", NO_ENVELOPES, ids=lambda payload: repr(payload[:20]))
def test_what_is_no_change_event_is_refused(payload: bytes) -> None:
    decoded = decode({}, payload, plain({"op": "c"}))

    message = 'expected a change event with a text `op`, such as "c", "u" or "d"'
    assert refusals(decoded) == [(0, "not_an_envelope", message)]
    assert decoded.unknown is not None
    assert decoded.unknown.names == ["op"]


def test_events_of_several_schemas_and_of_none_keep_their_order() -> None:
    wider = {**FIELDS, "note": {"type": "string"}}
    payloads = [
        wrapped(event("c", None, {"id": 1})),
        wrapped(event("c", None, {"id": 2, "note": "new"}), wider),
        plain(event("c", None, {"id": 3})),
        None,
        b"{",
        wrapped(event("c", None, {"id": 4})),
    ]

    proposed = decode({"op": "string", "after": "struct<id: long>"}, *payloads).unknown
    decoded = inferred(*payloads)

    assert proposed is not None
    assert [field.name for field in proposed.field("after").type][-1] == "note"
    assert [row["after"]["id"] for row in decoded.rows.to_pylist()] == [1, 2, 3, 4]
    assert [one.index for one in decoded.refused] == [4]
    assert decoded.skipped == [3]


def test_how_the_json_around_an_event_is_written_does_not_matter() -> None:
    change = event("c", None, {"id": 7, "price": "AQ=="})
    usual = wrapped(change)
    spaced = json.dumps(json.loads(usual), indent=2).encode()
    turned = json.dumps(dict(reversed(json.loads(usual).items()))).encode()

    decoded = inferred(usual, spaced, turned, usual)

    assert decoded.refused == []
    rows = decoded.rows.to_pylist()
    assert all(row == rows[0] for row in rows)
    assert rows[0]["after"]["price"] == Decimal("0.01")


def test_more_beside_schema_and_payload_is_no_envelope_whatever_came_before() -> None:
    usual, more = wrapped(event("c", None, {"id": 7})), wrapped(event("c", None, {"id": 7}), extra=1)

    alone, after = decode({"op": "string"}, more), decode({"op": "string"}, usual, more)

    assert [one.code for one in alone.refused] == ["not_an_envelope"]
    assert [(one.index, one.code) for one in after.refused] == [(1, "not_an_envelope")]


def test_a_value_that_its_schema_does_not_allow_is_refused() -> None:
    long = b64encode((10**10).to_bytes(8, "big")).decode()
    payloads = [wrapped(event("c", None, {"price": long})), wrapped(event("c", None, {"id": "one"}))]

    decoded = decode({"after": "struct<id: long, price: decimal(10,2)>"}, *payloads)

    assert refusals(decoded) == [
        (0, "out_of_range", "a decimal has more digits than the schema of the event allows"),
        (1, "wrong_type", 'after.id: expected long, got "one"'),
    ]


def test_a_schema_that_is_not_understood_leaves_plain_json() -> None:
    fields = {"id": {"type": "quaternion"}}

    decoded = inferred(wrapped(event("c", None, {"id": 1}), fields))

    assert decoded.rows.to_pylist()[0]["after"] == {"id": 1}


@pytest.mark.parametrize("write", [plain, wrapped], ids=["without schema", "with schema"])
def test_unwrapped_events_are_the_rows_that_they_are_about(write: Any) -> None:
    payloads = [
        write(event("r", None, {"id": 1, "tags": {"a": "x"}})),
        write(event("u", {"id": 1}, {"id": 2}, ts_ms=6)),
        write(event("d", {"id": 2}, None)),
    ]
    columns = {
        "id": "long not null",
        "tags": "map<string, string>",
        "__op": "string",
        "__deleted": "boolean",
        "__ts_ms": "timestamp(ms)",
    }

    decoded = decode(columns, *payloads, None, unwrap=True)

    rows = [(row["id"], row["tags"], row["__op"], row["__deleted"]) for row in decoded.rows.to_pylist()]
    assert rows == [(1, [("a", "x")], "r", False), (2, None, "u", False), (2, None, "d", True)]
    assert decoded.rows.column("__ts_ms").cast(pa.int64()).to_pylist() == [5000, 6000, 5000]
    assert decoded.skipped == [3]


@pytest.mark.parametrize("write", [plain, wrapped], ids=["without schema", "with schema"])
def test_unwrapped_events_propose_the_columns_of_the_row(write: Any) -> None:
    decoded = inferred(write(event("c", None, {"id": 1})), write(event("c", None, {"id": 2})), unwrap=True)

    added = {"__op": "c", "__deleted": False, "__ts_ms": 5}
    rows = [{k: v for k, v in row.items() if v is not None} for row in decoded.rows.to_pylist()]
    assert rows == [{"id": 1, **added}, {"id": 2, **added}]


@pytest.mark.parametrize("write", [plain, wrapped], ids=["without schema", "with schema"])
def test_an_unwrapped_event_without_row_is_refused(write: Any) -> None:
    decoded = decode(
        {"id": "long"}, write(event("t", None, None)), write(event("c", None, {"id": 1})), unwrap=True
    )

    message = 'expected `before` or `after` to hold a row, got neither for the op "t"'
    assert refusals(decoded) == [(0, "no_row", message)]
    assert decoded.rows.column("id").to_pylist() == [1]
