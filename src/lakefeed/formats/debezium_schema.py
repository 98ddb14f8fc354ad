"""The schema part of a change event: which types its columns have, and how JSON holds their values.

Kafka Connect writes this schema. Its types say how a value lies in JSON; a name beside the type, of Connect
or of Debezium, says what the value means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from lakefeed.pipeline.types import TIMESTAMP, stored_type

_LARGEST_PRECISION = 38
_EXACT = Context(prec=_LARGEST_PRECISION)
_PLAIN = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_TIMES = {
    "io.debezium.time.Timestamp": pa.timestamp("ms"),
    "io.debezium.time.MicroTimestamp": pa.timestamp("us"),
    "io.debezium.time.NanoTimestamp": pa.timestamp("ns"),
    "org.apache.kafka.connect.data.Timestamp": pa.timestamp("ms"),
    "io.debezium.time.ZonedTimestamp": TIMESTAMP,
}
_DATES = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_DECIMAL = "org.apache.kafka.connect.data.Decimal"

Convert = Callable[[pa.Array], tuple[pa.Array, "np.ndarray[Any, np.dtype[np.bool_]]"]]
"""Takes values as they were read; answers them as they are meant, and where they mean nothing."""


class NotUnderstood(ValueError):
    """A schema part that is not one of Kafka Connect, or has types that no table has."""


@dataclass(frozen=True)
class Meaning:
    """The type that a value is read from JSON as, the one that it means, and the way between."""

    read: pa.DataType
    made: pa.DataType
    convert: Convert | None = None


def envelope_meaning(schema: bytes) -> Meaning:
    """What the schema part of an event says. Raises NotUnderstood."""
    meaning = _meaning(orjson.loads(schema))
    if not pa.types.is_struct(meaning.read) or meaning.read.get_field_index("op") < 0:
        raise NotUnderstood("the schema of an event is a struct with an op")
    return meaning


def _meaning(schema: Any) -> Meaning:
    if not isinstance(schema, Mapping):
        raise NotUnderstood("a schema is an object")
    kind, name = schema.get("type"), schema.get("name")
    if kind == "struct":
        return _struct(schema.get("fields"))
    if kind == "array":
        return _array(_meaning(schema.get("items")))
    if kind == "map":
        return _map(_meaning(schema.get("keys")), _meaning(schema.get("values")))
    if name in _DATES and kind == "int32":
        return Meaning(pa.int32(), pa.date32(), _dates)
    if name == _DECIMAL and kind == "bytes":
        return _decimal(schema.get("parameters") or {})
    if kind in ("int64", "string") and name in _TIMES:
        return Meaning(_TIMES[name], TIMESTAMP)
    if kind not in _PLAIN:
        raise NotUnderstood(f"no type {kind}")
    return Meaning(_PLAIN[kind], _PLAIN[kind])


def _struct(fields: Any) -> Meaning:
    if not isinstance(fields, list) or not all(isinstance(each.get("field"), str) for each in fields):
        raise NotUnderstood("a struct has fields with names")
    members = {each["field"]: _meaning(each) for each in fields}
    if len(members) != len(fields):
        raise NotUnderstood("a struct has a field twice")
    read = pa.struct([(name, each.read) for name, each in members.items()])
    made = pa.struct([(name, each.made) for name, each in members.items()])
    converts = [each.convert for each in members.values()]
    if not any(converts):
        return Meaning(read, made)

    def convert(column: pa.StructArray) -> tuple[pa.Array, Any]:
        wrong = np.zeros(len(column), np.bool_)
        children = []
        for place, each in enumerate(converts):
            child = column.field(place)
            if each:
                child, bad = each(child)
                wrong |= bad
            children.append(child)
        if column.null_count:
            wrong &= column.is_valid().to_numpy(zero_copy_only=False)
        kind = stored_type(made)
        return pa.Array.from_buffers(kind, len(column), column.buffers()[:1], children=children), wrong

    return Meaning(read, made, convert)


def _array(element: Meaning) -> Meaning:
    made = pa.list_(pa.field("element", element.made))
    read = pa.list_(pa.field("element", element.read))
    return Meaning(read, made, _inside(element.convert, made) if element.convert else None)


def _map(key: Meaning, value: Meaning) -> Meaning:
    if key.read != pa.string():
        raise NotUnderstood("JSON has no maps with other keys than text")
    if value.convert:
        raise NotUnderstood("no maps of values that JSON holds in another way")
    kind = pa.map_(pa.string(), value.read)
    return Meaning(kind, kind)


def _inside(convert: Convert, made: pa.DataType) -> Convert:
    def lists(column: pa.ListArray) -> tuple[pa.Array, Any]:
        elements, bad = convert(column.values)
        offsets = np.frombuffer(column.buffers()[1], np.int32)[: len(column) + 1]
        wrong = np.zeros(len(column), np.bool_)
        wrong[np.searchsorted(offsets, np.flatnonzero(bad), side="right") - 1] = True
        kind = stored_type(made)
        return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], children=[elements]), wrong

    return lists


def _dates(days: pa.Array) -> tuple[pa.Array, Any]:
    return days.view(pa.date32()), np.zeros(len(days), np.bool_)


def _decimal(parameters: Mapping[str, Any]) -> Meaning:
    try:
        scale = int(parameters.get("scale", ""))
        precision = int(parameters.get("connect.decimal.precision", _LARGEST_PRECISION))
    except ValueError:
        raise NotUnderstood("a decimal has a scale") from None
    if not 0 <= scale <= precision <= _LARGEST_PRECISION or not precision:
        # More digits than a table holds: the bytes are kept.
        return Meaning(pa.binary(), pa.binary())
    made = pa.decimal128(precision, scale)

    def convert(column: pa.Array) -> tuple[pa.Array, Any]:
        wrong = np.zeros(len(column), np.bool_)
        values: list[Decimal | None] = []
        for place, content in enumerate(column.to_pylist()):
            number = None if content is None else int.from_bytes(content, "big", signed=True)
            wrong[place] = number is not None and abs(number) >= 10**precision
            values.append(None if number is None or wrong[place] else _EXACT.scaleb(Decimal(number), -scale))
        return pa.array(values, made), wrong

    return Meaning(pa.binary(), made, convert)
