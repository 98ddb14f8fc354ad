"""The schema part of a change event: which types its columns have, and how JSON holds their values.

Kafka Connect writes this schema. Its types say how a value lies in JSON; a name next to the type, of Connect
or of Debezium, says what the value means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from lakefeed.columns.column_types import JSON, TIMESTAMP, stored_type
from lakefeed.formats.debezium.numbers import NUMERIC, WORDED, Convert, decimal_of, worded_float, writing_of
from lakefeed.formats.fit.columns import offsets_of, rebuilt
from lakefeed.formats.fit.doubt import lifted

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

_FLOATS = ("float", "float32", "double", "float64")


class NotUnderstood(ValueError):
    """A schema part that is not one of Kafka Connect, or has types that no table has."""


@dataclass(frozen=True)
class Meaning:
    """The type that a value is read from JSON as, the one that it means, and the way between."""

    read: pa.DataType
    made: pa.DataType
    convert: Convert | None = None


class EventSchema:
    """The schema part of an event. Raises NotUnderstood where it is none."""

    def __init__(self, schema: bytes) -> None:
        self._schema = orjson.loads(schema)
        self._find = _finder(self._schema)
        self._columns = self.meaning(0).made

    @property
    def has_rows(self) -> bool:
        """Whether rows are structs; those of MongoDB are texts."""
        index = self._columns.get_field_index("after")
        return index < 0 or bool(pa.types.is_struct(self._columns.field(index).type))

    def writing(self, event: Any) -> int:
        """How the converter has written the numbers of this event: see `debezium.numbers`."""
        return self._find(event) if self._find else 0

    def meaning(self, writing: int) -> Meaning:
        """What the schema says of events that are written so. Raises NotUnderstood."""
        meaning = _meaning(self._schema, writing)
        if not pa.types.is_struct(meaning.read) or meaning.read.get_field_index("op") < 0:
            raise NotUnderstood("the schema of an event is a struct with an op")
        return meaning


def _finder(schema: Any) -> Callable[[Any], int] | None:
    """The function that finds how the numbers of a value are written; None where there is but one way."""
    if not isinstance(schema, Mapping):
        return None
    kind = schema.get("type")
    if kind in _FLOATS or (kind == "bytes" and schema.get("name") == _DECIMAL):
        return writing_of(NUMERIC if kind == "bytes" else WORDED)
    if kind == "array":
        inner = _finder(schema.get("items"))
        return _finder_in_list(inner) if inner else None
    fields = schema.get("fields")
    if kind != "struct" or not isinstance(fields, list):
        return None
    found = [(each.get("field"), _finder(each)) for each in fields if isinstance(each, Mapping)]
    members = [(name, find) for name, find in found if find]
    return _finder_in_struct(members) if members else None


def _finder_in_list(find: Callable[[Any], int]) -> Callable[[Any], int]:
    return lambda value: reduce(or_, map(find, value), 0) if isinstance(value, list) else 0


def _finder_in_struct(members: list[tuple[Any, Callable[[Any], int]]]) -> Callable[[Any], int]:
    def find(value: Any) -> int:
        found = 0
        if isinstance(value, dict):
            for name, inside in members:
                if (member := value.get(name)) is not None:
                    found |= inside(member)
        return found

    return find


def _meaning(schema: Any, writing: int) -> Meaning:
    if not isinstance(schema, Mapping):
        raise NotUnderstood("a schema is an object")
    kind, name = schema.get("type"), schema.get("name")
    if kind == "struct":
        return _struct(schema.get("fields"), writing)
    if kind == "array":
        return _array(_meaning(schema.get("items"), writing))
    if kind == "map":
        # Nothing looks into a map for how its numbers are written: it is read the same way in every event.
        return _map(_meaning(schema.get("keys"), 0), _meaning(schema.get("values"), 0))
    if name in _DATES and kind == "int32":
        return Meaning(pa.int32(), pa.date32(), _dates)
    if name == _DECIMAL and kind == "bytes":
        return _decimal(schema.get("parameters") or {}, writing)
    if kind in ("int64", "string") and name in _TIMES:
        return Meaning(_TIMES[name], TIMESTAMP)
    if kind not in _PLAIN:
        raise NotUnderstood(f"no type {kind}")
    if kind in _FLOATS and writing & WORDED:
        return Meaning(JSON, _PLAIN[kind], worded_float(_PLAIN[kind]))
    return Meaning(_PLAIN[kind], _PLAIN[kind])


def _struct(fields: Any, writing: int) -> Meaning:
    if not isinstance(fields, list) or not all(isinstance(each.get("field"), str) for each in fields):
        raise NotUnderstood("a struct has fields with names")
    members = {each["field"]: _meaning(each, writing) for each in fields}
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
        for index, each in enumerate(converts):
            child = column.field(index)
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
        elements, wrong = convert(column.values)
        return rebuilt(column, made, elements), lifted(offsets_of(column), wrong)

    return lists


def _dates(days: pa.Array) -> tuple[pa.Array, Any]:
    return days.view(pa.date32()), np.zeros(len(days), np.bool_)


def _decimal(parameters: Mapping[str, Any], writing: int) -> Meaning:
    try:
        scale = int(parameters.get("scale", ""))
        precision = int(parameters.get("connect.decimal.precision", 0))
    except ValueError:
        raise NotUnderstood("a decimal has a scale") from None
    return Meaning(*decimal_of(precision, scale, numeric=bool(writing & NUMERIC)))
