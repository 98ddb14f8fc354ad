"""Change events that name their schema in a registry, in Avro and in JSON."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from lakefeed.columns.column_types import declared_schema, type_text
from lakefeed.formats import Decoded
from lakefeed.formats.debezium.format import DebeziumFormat
from support.schema_server import serving_schemas

VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "born", "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}]},
        {"name": "made", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", VALUE], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}
HEARTBEAT = {"type": "record", "name": "Heartbeat", "fields": [{"name": "ts_ms", "type": "long"}]}
ANSWERS: dict[str, Any] = {
    "/schemas/ids/1": {"schema": json.dumps(ENVELOPE)},
    "/schemas/ids/2": {"schemaType": "JSON", "schema": "{}"},
    "/schemas/ids/3": {"schema": json.dumps(HEARTBEAT)},
    "/schemas/ids/5": {"schema": "{"},
    "/schemas/ids/4": {"schemaType": "PROTOBUF", "schema": "message A {}"},
}
ROW = {"id": 7, "born": 20_000, "made": 1_700_000_000_123_456, "price": Decimal("12.50")}


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with serving_schemas(ANSWERS) as server:
        yield server.url


def framed(number: int, content: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + content


def avro(number: int, schema: Any, value: Any) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, schema, value)
    return framed(number, content.getvalue())


def event(op: str, before: Any, after: Any) -> bytes:
    # Written as numbers, as Kafka Connect does, for which these are no logical types.
    return avro(1, ENVELOPE, {"before": before, "after": after, "op": op, "ts_ms": 5})


def decode(registry: str, columns: pa.Schema, *payloads: bytes | None, unwrap: bool = False) -> Decoded:
    form = DebeziumFormat.model_validate({"registry": registry, "unwrap": unwrap})
    return form.decoder(columns).decode(payloads)


def inferred(registry: str, *payloads: bytes | None, unwrap: bool = False) -> Decoded:
    unknown = decode(registry, pa.schema([]), *payloads, unwrap=unwrap).unknown
    return decode(registry, unknown or pa.schema([]), *payloads, unwrap=unwrap)


def test_avro_events_have_the_types_that_debezium_means(registry: str) -> None:
    decoded = inferred(registry, event("c", None, ROW), None, event("d", ROW, None))

    assert (decoded.refused, decoded.skipped) == ([], [1])
    types = {field.name: type_text(field.type) for field in decoded.rows.schema.field("after").type}
    assert types == {"id": "long", "born": "date", "made": "timestamp", "price": "decimal(10,2)"}
    created, deleted = decoded.rows.to_pylist()
    made = dt.datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=dt.UTC)
    row = {"id": 7, "born": dt.date(2024, 10, 4), "made": made, "price": Decimal("12.50")}
    assert created == {"before": None, "after": row, "op": "c", "ts_ms": 5}
    assert (deleted["before"], deleted["after"]) == (row, None)


def test_avro_and_json_events_unwrap_alike_and_keep_their_order(registry: str) -> None:
    in_json = framed(2, b'{"op": "u", "before": null, "after": {"id": 8}, "ts_ms": 6}')
    payloads = [event("c", None, ROW), in_json, None, event("d", ROW, None), event("t", None, None)]

    columns = declared_schema({"id": "long", "__op": "string", "__deleted": "boolean", "__ts_ms": "long"})
    decoded = decode(registry, columns, *payloads, unwrap=True)

    rows = [tuple(row.values()) for row in decoded.rows.to_pylist()]
    assert rows == [(7, "c", False, 5), (8, "u", False, 6), (7, "d", True, 5)]
    assert (decoded.skipped, decoded.refused) == ([2, 4], [])


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (avro(3, HEARTBEAT, {"ts_ms": 5}), "not_an_envelope"),
        (framed(2, b'{"ts_ms": 5}'), "not_an_envelope"),
        (framed(4, b"\0"), "bad_schema"),
        (framed(5, b"\0"), "bad_schema"),
        (framed(9, b"\0"), "unknown_schema"),
        (framed(1, b"\x02"), "bad_avro"),
        (b"{}", "bad_framing"),
    ],
)
def test_what_is_no_event_is_refused_and_touches_no_other(registry: str, payload: bytes, code: str) -> None:
    good = event("c", None, ROW)

    decoded = decode(registry, declared_schema({"op": "string"}), good, payload, good)

    assert [(one.index, one.code) for one in decoded.refused] == [(1, code)]
    assert decoded.rows.column("op").to_pylist() == ["c", "c"]


def test_what_is_about_no_row_in_a_frame_is_skipped_beside_others(registry: str) -> None:
    tombstone = framed(2, b'{"schema": null, "payload": null}')
    payloads = [
        framed(2, b'{"op": "m", "message": {"prefix": "x"}}'),
        tombstone,
        event("c", None, ROW),
        event("t", None, None),
        framed(2, b'{"op": "c", "after": {"id": 8}}'),
        framed(2, b"{"),
    ]

    decoded = decode(registry, declared_schema({"id": "long"}), *payloads, unwrap=True)

    assert (decoded.skipped, decoded.rows.to_pylist()) == ([0, 1, 3], [{"id": 7}, {"id": 8}])
    assert [(one.index, one.code) for one in decoded.refused] == [(5, "bad_json")]
