"""Expected values, written in a file or in Python, read by the type of the column they are compared with."""

from __future__ import annotations

import base64
import datetime as dt
from typing import Any

import pyarrow as pa

from lakefeed.columns.column_types import type_text
from lakefeed.formats.json.strict import StrictReader
from lakefeed.pipeline.test_file import as_bytes, json_text
from lakefeed.testing.difference import Cell, shown
from lakefeed.text import did_you_mean


def row_cells(schema: pa.Schema, expected: dict[str, Any], got: dict[str, Any] | None) -> list[Cell]:
    """Compare the columns that are expected with those of a row."""
    return [
        _cell(schema, name, value, None if got is None else got.get(name)) for name, value in expected.items()
    ]


def _cell(schema: pa.Schema, name: str, value: Any, got: Any) -> Cell:
    if name not in schema.names:
        near = did_you_mean(name, schema.names)
        return Cell(name, shown(value), f"no such column{near}", False)
    kind = _pruned(schema.field(name).type, value)
    try:
        wanted = _read(kind, value)
    except ValueError as error:
        return Cell(name, f"{shown(value)} ({error})", shown(got), False)
    found = _cut(kind, got)
    return Cell(name, shown(wanted), shown(found), wanted == found)


def _read(kind: pa.DataType, value: Any) -> Any:
    """The value as a row of this type holds it, by the rules for JSON payloads."""
    text = json_text({"value": _jsonable(kind, value)})
    result = StrictReader(pa.schema([("value", kind)])).read([text.encode()], [0])
    if result.refused:
        raise ValueError(f"is no {type_text(kind)}")
    return _cut(kind, result.rows.to_pylist()[0]["value"])


def _pruned(kind: pa.DataType, value: Any) -> pa.DataType:
    """The type with only the fields of structs that are expected, all of which may be null."""
    if pa.types.is_struct(kind) and isinstance(value, dict):
        known = {field.name: field.type for field in kind}
        return pa.struct(
            [(name, _pruned(known[name], item)) for name, item in value.items() if name in known]
        )
    return kind


def _cut(kind: pa.DataType, value: Any) -> Any:
    """What a value has of a pruned type; maps as such."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _cut(field.type, value.get(field.name)) for field in kind}
    if pa.types.is_map(kind):
        return {key: _cut(kind.item_type, item) for key, item in dict(value).items()}
    if pa.types.is_list(kind):
        return [_cut(kind.value_type, item) for item in value]
    return value


def _jsonable(kind: pa.DataType, value: Any) -> Any:
    """A value as a JSON payload would hold it: bytes in base64, times as text."""
    if pa.types.is_binary(kind) and value is not None:
        return base64.b64encode(as_bytes(value)).decode()
    if isinstance(value, dt.datetime):
        return (value if value.tzinfo else value.replace(tzinfo=dt.UTC)).isoformat()
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, dict) and pa.types.is_struct(kind):
        return {
            name: _jsonable(kind.field(name).type, item) for name, item in value.items() if _has(kind, name)
        }
    if isinstance(value, dict) and pa.types.is_map(kind):
        return {name: _jsonable(kind.item_type, item) for name, item in value.items()}
    if isinstance(value, list | tuple) and pa.types.is_list(kind):
        return [_jsonable(kind.value_type, item) for item in value]
    return value


def _has(kind: pa.StructType, name: str) -> bool:
    return bool(kind.get_field_index(name) >= 0)
