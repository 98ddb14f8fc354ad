"""Protobuf payloads in Confluent's wire format, against a server that answers as a registry does."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from lakefeed.columns.column_types import declared_schema
from lakefeed.formats import Decoded, Rules
from lakefeed.formats.protobuf.format import ProtobufFormat
from support.schema_server import serving_schemas

SHOP = """
syntax = "proto3";
package shop.v1;
import "shop/money.proto";
import "google/protobuf/timestamp.proto";
message Click { int64 id = 1; google.protobuf.Timestamp at = 2; }
message Order {
  message Item { int64 id = 1; Money price = 2; }
  message Note { string text = 1; }
  int64 id = 1;
  repeated Item items = 2;
}
"""
MONEY = 'syntax = "proto3"; package shop.v1; message Money { int64 cents = 1; }'
ANSWERS: dict[str, Any] = {
    "/schemas/ids/1": {
        "schemaType": "PROTOBUF",
        "schema": SHOP,
        "references": [{"name": "shop/money.proto", "subject": "money", "version": 2}],
    },
    "/subjects/money/versions/2": {"schemaType": "PROTOBUF", "schema": MONEY},
    "/schemas/ids/2": {"schema": '"long"'},
    "/schemas/ids/7": {"schemaType": "PROTOBUF", "schema": 'import "\ud800";'},
    "/schemas/ids/3": {"schemaType": "PROTOBUF", "schema": "message {"},
    "/schemas/ids/4": {
        "schemaType": "PROTOBUF",
        "schema": 'edition = "2023"; message Seen { int64 id = 1; }',
    },
}


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with serving_schemas(ANSWERS) as server:
        yield server.url


def framed(schema: int, indexes: bytes, message: bytes) -> bytes:
    return b"\0" + schema.to_bytes(4, "big") + indexes + message


def decode(
    registry: str, columns: dict[str, str], *payloads: bytes | None, message: str | None = None
) -> Decoded:
    form = ProtobufFormat.model_validate({"registry": registry, "message": message})
    return form.decoder(declared_schema(columns), Rules("ignore")).decode(payloads)


def test_each_payload_is_read_as_the_message_that_it_names(registry: str) -> None:
    payloads = [
        framed(1, b"\x00", b"\x08\x01"),
        framed(1, b"\x02\x02", b"\x08\x02\x12\x06\x08\x09\x12\x02\x08\x63"),
        framed(1, b"\x04\x02\x00", b"\x08\x03"),
        framed(1, b"\x04\x02\x02", b"\x0a\x01a"),
        framed(1, b"\x02\x00", b"\x08\x05"),
    ]
    columns = {
        "id": "long",
        "items": "array<struct<id: long, price: struct<cents: long>>>",
        "text": "string",
    }

    decoded = decode(registry, columns, *payloads, None)

    assert [one.code for one in decoded.refused] == ["null_payload"]
    assert [(row["id"], row["text"]) for row in decoded.rows.to_pylist()] == [
        (1, None),
        (2, None),
        (3, None),
        (None, "a"),
        (5, None),
    ]
    assert decoded.rows.to_pylist()[1]["items"] == [{"id": 9, "price": {"cents": 99}}]


def test_new_columns_of_all_messages_are_proposed_together(registry: str) -> None:
    form = ProtobufFormat.model_validate({"registry": registry})

    unknown = (
        form.decoder(declared_schema({}))
        .decode([framed(1, b"\x00", b""), framed(1, b"\x04\x02\x02", b"")])
        .unknown
    )

    assert unknown is not None
    assert unknown.names == ["id", "at", "text"]


REFUSED = {
    "no frame": (b"\x08\x01", "bad_framing", "expected a zero byte first, got 0x08"),
    "nothing behind the frame": (framed(1, b"", b""), "bad_framing", "byte 6: expected a message index"),
    "too many indexes": (
        framed(1, b"\xfe\x01", b""),
        "bad_framing",
        "byte 6: expected the number of message indexes, got 127",
    ),
    "no such message": (framed(1, b"\x02\x0a", b""), "bad_framing", "schema 1 has no message at [5]"),
    "no such schema": (framed(9, b"\x00", b""), "unknown_schema", "the registry has no schema 9"),
    "another kind": (
        framed(2, b"\x00", b""),
        "bad_schema",
        "expected PROTOBUF, but schema 2 of the registry is AVRO",
    ),
    "no schema at all": (
        framed(3, b"\x00", b""),
        "bad_schema",
        "schema 3: schema-3.proto: line 1: expected the name of a message, got '{'",
    ),
    "half a letter": (
        framed(7, b"\x00", b""),
        "bad_schema",
        "schema 7: schema-7.proto is not UTF-8 text",
    ),
    "damaged": (framed(1, b"\x00", b"\x08"), "bad_protobuf", "byte 2: the payload ends within a number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_and_touches_no_other(registry: str, name: str) -> None:
    payload, code, error = REFUSED[name]
    good = framed(1, b"\x00", b"\x08\x01")

    decoded = decode(registry, {"id": "long"}, good, payload, good)

    assert [(one.index, one.code, one.error) for one in decoded.refused] == [(1, code, error)]
    assert decoded.rows.to_pylist() == [{"id": 1}, {"id": 1}]


def test_a_named_message_refuses_all_others(registry: str) -> None:
    click, order = framed(1, b"\x00", b"\x08\x01"), framed(1, b"\x02\x02", b"\x08\x02")

    decoded = decode(registry, {"id": "long"}, click, order, message="shop.v1.Click")

    assert [(one.index, one.code, one.error) for one in decoded.refused] == [
        (1, "other_message", "expected a message shop.v1.Click, got shop.v1.Order")
    ]


def test_a_place_that_clients_count_differently_needs_the_name_of_the_message(
    registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = "message B { optional int64 b = 1; } message C { optional int64 c = 1; }"
    text = f"message A {{ map<string, string> m = 1; {inner} }}"
    monkeypatch.setitem(ANSWERS, "/schemas/ids/5", {"schemaType": "PROTOBUF", "schema": text})
    first, second, last = (
        framed(5, b"\x04\x00" + place, b"\x08\x07") for place in (b"\x00", b"\x02", b"\x04")
    )
    columns = {"b": "long", "c": "long"}

    unnamed = decode(registry, columns, first, second, last)
    named = [decode(registry, columns, second, message=name) for name in ("A.B", "A.C")]

    message = "the message at [0, 1] is A.B or A.C: clients differ; set `message`"
    assert [(one.index, one.code, one.error) for one in unnamed.refused] == [(1, "bad_framing", message)]
    assert unnamed.rows.to_pylist() == [{"b": 7, "c": None}, {"b": None, "c": 7}]
    assert [one.rows.to_pylist() for one in named] == [[{"b": 7, "c": None}], [{"b": None, "c": 7}]]


def test_a_schema_that_was_registered_compiled_is_read(
    registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = FileDescriptorProto(name="seen.proto", syntax="proto3", dependency=["shop/money.proto"])
    field = file.message_type.add(name="Seen").field.add(name="price", number=1, label=1, type=11)
    field.type_name = ".shop.v1.Money"
    answer = {**ANSWERS["/schemas/ids/1"], "schema": b64encode(file.SerializeToString()).decode()}
    monkeypatch.setitem(ANSWERS, "/schemas/ids/6", answer)

    decoded = decode(registry, {"price": "struct<cents: long>"}, framed(6, b"\x00", b"\x0a\x02\x08\x07"))

    assert decoded.rows.to_pylist() == [{"price": {"cents": 7}}]


def test_a_schema_that_only_the_registry_can_compile_is_taken_compiled(
    registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = FileDescriptorProto(name="default", syntax="proto3")
    file.message_type.add(name="Seen").field.add(name="id", number=1, label=1, type=3)
    answer = {"schemaType": "PROTOBUF", "schema": b64encode(file.SerializeToString()).decode()}
    monkeypatch.setitem(ANSWERS, "/schemas/ids/4?format=serialized", answer)

    decoded = decode(registry, {"id": "long"}, framed(4, b"\x00", b"\x08\x07"))

    assert decoded.refused == []
    assert decoded.rows.to_pylist() == [{"id": 7}]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "expected either `descriptor` or `registry`"),
        ({"descriptor": "a.proto", "registry": "http://localhost:1"}, "expected either"),
        ({"descriptor": "a.proto"}, "descriptor needs `message`, the full name of the message in it"),
    ],
)
def test_options_that_do_not_go_together_are_told(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ProtobufFormat.model_validate(options)
