"""The page on types: every cell of its table is tried."""

from __future__ import annotations

import io
import json
import re
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from deltalake import Schema

from lakefeed.columns.column_types import declared_schema, stored
from lakefeed.formats.avro.format import AvroFormat
from lakefeed.formats.csv.format import CsvFormat
from lakefeed.formats.json.format import JsonFormat
from lakefeed.formats.protobuf.format import ProtobufFormat
from support.protobuf import message_class

PAGE = (Path(__file__).parents[2] / "docs" / "types.md").read_text()
LINES = [
    [cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line[:3] == "| `"
]
TYPES = {line[0].strip("` |"): [cell.strip(" |") for cell in line[1:]] for line in LINES}
SECONDS = 1794736800
FIXED = {"type": "fixed", "name": "F", "size": 2}
AVRO: dict[str, tuple[Any, Any]] = {
    "boolean": ("boolean", True),
    "int": ("int", 7),
    "long": ("long", 7),
    "float": ("float", 1.5),
    "double": ("double", 1.5),
    "string": ("string", "text"),
    "bytes": ("bytes", b"\0\xff"),
    "fixed": (FIXED, b"\0\xff"),
    "enum": ({"type": "enum", "name": "E", "symbols": ["text"]}, "text"),
    "uuid": ({"type": "string", "logicalType": "uuid"}, uuid.UUID(int=7)),
    "decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, Decimal("12.50")),
    "date": ({"type": "int", "logicalType": "date"}, SECONDS // 86400),
    "record": ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}, {"a": 7}),
    "union": (["null", {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}], {"a": 7}),
    "array": ({"type": "array", "items": "long"}, [7]),
    "map": ({"type": "map", "values": "long"}, {"a": 7}),
}
for zone in ("", "local-"):
    for unit, factor in (("millis", 10**3), ("micros", 10**6), ("nanos", 10**9)):
        AVRO[f"{zone}timestamp-{unit}"] = (
            {"type": "long", "logicalType": f"{zone}timestamp-{unit}"},
            SECONDS * factor,
        )
TEXTS = {"decimal": "12.50", "date": "2026-11-15", "timestamp": "2026-11-15T10:00:00Z"}
EPOCHS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

every_type = pytest.mark.parametrize("declared", TYPES)


def samples(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def avro_value(name: str, declared: str) -> Any:
    """A value of an Avro type that makes sense for the column."""
    if name == "string" and (text := TEXTS.get(declared.partition("(")[0])):
        return text
    if name == "long" and (unit := re.fullmatch(r"timestamp\((\w+)\)", declared)):
        return SECONDS * EPOCHS[unit[1]]
    return AVRO[name][1]


def plain(schema: Any, value: Any) -> Any:
    """Without its logical type where the value is a number already."""
    return schema["type"] if isinstance(schema, dict) and isinstance(value, int) else schema


def test_the_page_has_every_type_that_a_column_may_have() -> None:
    assert len(TYPES) == 24


@every_type
def test_a_type_is_declared_and_stored_as_the_page_says(declared: str) -> None:
    schema = declared_schema({"c": declared})

    arrow, delta, *_ = TYPES[declared]

    assert str(schema.field("c").type) == arrow
    kind = json.loads(Schema.from_arrow(stored(schema)).to_json())["fields"][0]["type"]
    assert (kind if isinstance(kind, str) else kind["type"]) == delta


@every_type
def test_the_json_of_the_page_becomes_a_value(declared: str) -> None:
    found = samples(TYPES[declared][2])
    payloads = [f'{{"c": {text}}}'.encode() for text in found]

    decoded = JsonFormat().decoder(declared_schema({"c": declared})).decode(payloads)

    assert payloads
    assert decoded.refused == []
    assert decoded.rows.column("c").null_count == 0


@every_type
def test_the_avro_of_the_page_becomes_the_same_value_as_the_json(declared: str, tmp_path: Path) -> None:
    for name in samples(TYPES[declared][3]):
        kind, value = AVRO[name][0], avro_value(name, declared)
        schema = {"type": "record", "name": "Row", "fields": [{"name": "c", "type": kind}]}
        (tmp_path / "row.avsc").write_text(json.dumps(schema))
        out = io.BytesIO()
        written = {**schema, "fields": [{"name": "c", "type": plain(kind, value)}]}
        fastavro.schemaless_writer(out, fastavro.parse_schema(written), {"c": value})

        decoder = AvroFormat(schema_file=str(tmp_path / "row.avsc")).decoder(declared_schema({"c": declared}))
        decoded = decoder.decode([out.getvalue()])

        assert decoded.refused == [], name
        if name not in ("uuid", "date") and (declared, name) not in NUMBERS:
            assert decoded.rows.column("c").equals(from_json(declared)), name


NUMBERS = {(declared, name) for declared in ("float", "double", "decimal(10,2)") for name in ("int", "long")}
"""Where the whole number of the Avro column is not the fraction of the JSON one."""


def from_json(declared: str) -> pa.Array:
    payload = f'{{"c": {samples(TYPES[declared][2])[0]}}}'.encode()
    return JsonFormat().decoder(declared_schema({"c": declared})).decode([payload]).rows.column("c")


@every_type
def test_the_csv_of_the_page_becomes_the_same_value_as_the_json(declared: str) -> None:
    found = samples(TYPES[declared][4])
    if not found:
        assert TYPES[declared][4] == "-"
        return

    decoded = CsvFormat(columns=("c",)).decoder(declared_schema({"c": declared})).decode([found[0].encode()])

    assert decoded.refused == []
    assert decoded.rows.column("c").equals(from_json(declared))


PROTOBUF: dict[str, tuple[str, Any]] = {
    "bool": ("bool c = 1;", True),
    "BoolValue": ("google.protobuf.BoolValue c = 1;", {"value": True}),
    **{name: (f"{name} c = 1;", 7) for name in ("int32", "int64", "sint64", "fixed32", "uint32", "uint64")},
    "float": ("float c = 1;", 1.5),
    "double": ("double c = 1;", 1.5),
    "string": ("string c = 1;", "text"),
    "StringValue": ("google.protobuf.StringValue c = 1;", {"value": "text"}),
    "enum": ("enum E { text = 0; } E c = 1;", 0),
    "bytes": ("bytes c = 1;", b"\0\xff"),
    "Timestamp": ("google.protobuf.Timestamp c = 1;", {"seconds": SECONDS}),
    "message": ("message R { int64 a = 1; } R c = 1;", {"a": 7}),
    "repeated": ("repeated int64 c = 1;", [7]),
    "map": ("map<string, int64> c = 1;", {"a": 7}),
}


def protobuf_value(name: str, declared: str) -> Any:
    """A value of a Protobuf type that makes sense for the column."""
    if name == "string" and (text := TEXTS.get(declared.partition("(")[0])):
        return text
    if name == "int64" and (unit := re.fullmatch(r"timestamp\((\w+)\)", declared)):
        return SECONDS * EPOCHS[unit[1]]
    return PROTOBUF[name][1]


@every_type
def test_the_protobuf_of_the_page_becomes_the_same_value_as_the_json(declared: str, tmp_path: Path) -> None:
    for name in samples(TYPES[declared][5]):
        imports = "".join(f'import "google/protobuf/{each}.proto"; ' for each in ("timestamp", "wrappers"))
        file = tmp_path / f"{name}.proto"
        file.write_text(f'syntax = "proto3"; {imports} message Row {{ {PROTOBUF[name][0]} }}')
        payload = message_class(file, "Row")(c=protobuf_value(name, declared)).SerializeToString()

        form = ProtobufFormat(descriptor=str(file), message="Row")
        decoded = form.decoder(declared_schema({"c": declared})).decode([payload])

        assert decoded.refused == [], name
        if (declared, name.replace("uint64", "int64")) != ("decimal(10,2)", "int64"):
            assert decoded.rows.column("c").equals(from_json(declared)), name
