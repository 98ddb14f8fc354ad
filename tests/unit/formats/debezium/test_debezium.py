"""What the `debezium` format makes of change events in JSON."""

from __future__ import annotations

import datetime as dt
import json
from base64 import b64encode
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakefeed.columns.column_types import declared_schema, type_text
from lakefeed.formats import Decoded
from lakefeed.formats.debezium.format import DebeziumFormat

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
        (0, "out_of_range", "a number has more digits than the schema of the event allows, or is none"),
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
        {"id": "long"}, write(event("d", None, None)), write(event("c", None, {"id": 1})), unwrap=True
    )

    message = 'expected `before` or `after` to hold a row, got neither for the op "d"'
    assert refusals(decoded) == [(0, "no_row", message)]
    assert decoded.rows.column("id").to_pylist() == [1]


@pytest.mark.parametrize("write", [plain, wrapped], ids=["without schema", "with schema"])
def test_messages_and_truncates_are_about_no_row_and_skipped_when_rows_are_wanted(write: Any) -> None:
    payloads = [
        write(event("t", None, None)),
        write(event("c", None, {"id": 1})),
        write(
            {"op": "m", "ts_ms": 5, "source": {"table": ""}, "message": {"prefix": "x", "content": "AQ=="}}
        ),
    ]

    rows, events = decode({"id": "long"}, *payloads, unwrap=True), decode({"op": "string"}, *payloads)

    assert (rows.skipped, rows.refused, rows.rows.to_pylist()) == ([0, 2], [], [{"id": 1}])
    assert (events.skipped, events.refused) == ([], [])
    assert events.rows.column("op").to_pylist() == ["t", "c", "m"]


NUMERIC = {"id": 1, "price": -123.45, "prices": [0.01, 5.12, None]}


def test_decimals_may_be_numbers_as_well_as_bytes() -> None:
    number = wrapped(event("c", None, NUMERIC)).replace(b"-123.45", b"-123.450")
    in_bytes = wrapped(event("c", None, {"id": 1, "price": ROW["price"], "prices": ["AQ==", "AgA=", None]}))
    wrong = wrapped(event("c", None, {"price": 0.001}))

    for payloads in ([number, in_bytes, wrong, number], [in_bytes, in_bytes, wrong, number]):
        decoded = decode({"after": "struct<price: decimal(10,2), prices: array<decimal(10,2)>>"}, *payloads)

        row = {"price": Decimal("-123.45"), "prices": [Decimal("0.01"), Decimal("5.12"), None]}
        assert [found["after"] for found in decoded.rows.to_pylist()] == [row] * 3
        assert refusals(decoded) == [(2, "bad_decimal", "after.price: expected decimal(10,2), got 0.001")]


def decimal(scale: int, precision: int | None) -> dict[str, Any]:
    given = {"connect.decimal.precision": str(precision)} if precision is not None else {}
    return {**DECIMAL, "parameters": {"scale": str(scale), **given}}


@pytest.mark.parametrize(
    ("scale", "precision", "unscaled", "column", "value"),
    [
        (2, 50, 10**45 + 1, "string", "1" + "0" * 42 + "0.01"),
        (40, 45, -1, "string", "-0." + "0" * 39 + "1"),
        (-3, 10, 12, "string", "12000"),
        (-3, None, -7, "string", "-7000"),
        (5, 2, 12, "decimal(5,5)", Decimal("0.00012")),
        (0, 38, 7, "decimal(38,0)", Decimal(7)),
    ],
)
def test_a_decimal_that_no_column_holds_is_its_exact_text(
    scale: int, precision: int | None, unscaled: int, column: str, value: Any
) -> None:
    fields = {"n": decimal(scale, precision)}
    content = unscaled.to_bytes(24, "big", signed=True)
    number = f"{unscaled}e{-scale}".encode()
    payloads = [
        wrapped(event("c", None, {"n": b64encode(content).decode()}), fields),
        wrapped(event("c", None, {"n": "HERE"}), fields).replace(b'"HERE"', number),
        wrapped(event("c", None, {"n": None}), fields),
    ]

    decoded = inferred(*payloads)

    assert decoded.refused == []
    assert type_text(decoded.rows.schema.field("after").type[0].type) == column
    assert [row["after"]["n"] for row in decoded.rows.to_pylist()] == [value, value, None]


def test_numbers_that_json_has_not_are_text_and_become_what_they_are() -> None:
    fields = {
        "f": {"type": "float"},
        "d": {"type": "double"},
        "l": {"type": "array", "items": {"type": "double"}},
        "price": DECIMAL,
    }
    payloads = [
        wrapped(event("c", None, {"f": "NaN", "d": "Infinity", "price": "AQ=="}), fields),
        wrapped(event("u", {"d": "-Infinity"}, {"f": 0.1, "d": 1e300, "l": ["NaN", 2.5, None]}), fields),
        wrapped(event("c", None, {"f": 1, "d": 2, "price": 1.5}), fields),
        wrapped(event("c", None, {"f": 1, "d": "wide"}), fields),
        wrapped(event("c", None, {"f": "NaN", "d": "wide"}), fields),
    ]

    decoded = inferred(*payloads)

    first, second, third = decoded.rows.to_pylist()
    assert (str(first["after"]["f"]), str(first["after"]["d"])) == ("nan", "inf")
    assert first["after"]["price"] == Decimal("0.01")
    assert (second["before"]["d"], second["after"]["d"]) == (float("-inf"), 1e300)
    assert second["after"]["f"] == pytest.approx(0.1, rel=1e-6)
    assert str(second["after"]["l"]) == "[nan, 2.5, None]"
    assert third["after"] == {"f": 1.0, "d": 2.0, "l": None, "price": Decimal("1.50")}
    assert [(one.index, one.code) for one in decoded.refused] == [(3, "wrong_type"), (4, "out_of_range")]


def test_word_for_a_number_beside_a_map_of_numbers_is_read_as_the_number_it_means() -> None:
    fields = {
        "d": {"type": "double"},
        "m": {"type": "map", "keys": {"type": "string"}, "values": {"type": "double"}},
    }

    decoded = inferred(wrapped(event("c", None, {"d": "-Infinity", "m": {"a": 1.5}}), fields))

    assert decoded.refused == []
    assert decoded.rows.to_pylist()[0]["after"] == {"d": float("-inf"), "m": [("a", 1.5)]}


MONGO = {"type": "string", "optional": True, "name": "io.debezium.data.Json"}


def mongo(after: str | None, op: str = "c", with_schema: bool = False, **more: Any) -> bytes:
    found = {"before": None, "after": after, "op": op, "ts_ms": 5, "source": {"table": "x"}, **more}
    if not with_schema:
        return plain(found)
    members = [{**MONGO, "field": side} for side in ("before", "after")]
    members += [{"type": "string", "field": "op"}, {"type": "int64", "field": "ts_ms"}]
    return json.dumps({"schema": {"type": "struct", "fields": members}, "payload": found}).encode()


@pytest.mark.parametrize("with_schema", [False, True])
def test_a_document_of_mongodb_is_text_and_unwrapped_its_fields(with_schema: bool) -> None:
    document = '{"_id": {"$oid": "a1"}, "price": 12.50, "tags": ["x"]}'
    payloads = [mongo(document, with_schema=with_schema), mongo("[1]", with_schema=with_schema)]
    payloads += [mongo("{", with_schema=with_schema), mongo(None, "u", with_schema)]

    events, rows = inferred(*payloads), inferred(*payloads, unwrap=True)

    assert [row["after"] for row in events.rows.to_pylist()] == [document, "[1]", "{", None]
    assert rows.rows.to_pylist() == [
        {"_id": {"$oid": "a1"}, "price": 12.5, "tags": ["x"], "__op": "c", "__deleted": False, "__ts_ms": 5}
    ]
    assert [(one.index, one.code) for one in rows.refused] == [
        (1, "no_row"),
        (2, "no_row"),
        (3, "no_row"),
    ]
    assert rows.refused[0].error == 'after: expected a row, or the JSON text of one, got "[1]"'
