"""Column types as Spark writes them in JSON, and the same in Arrow."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from lakefeed.columns.column_types import TIMESTAMP

_PLAIN: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "void": pa.null(),
}
_NAMES = {kind: name for name, kind in _PLAIN.items()} | {
    pa.large_string(): "string",
    pa.large_binary(): "binary",
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def spark_schema(schema: pa.Schema) -> dict[str, Any]:
    """The JSON document that Spark reads a schema from."""
    return {"type": "struct", "fields": [_spark_field(field) for field in schema]}


def _spark_field(field: pa.Field) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": _spark_type(field.type),
        "nullable": field.nullable,
        "metadata": {},
    }


def _spark_type(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_spark_field(field) for field in kind]}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = kind.value_field
        return {"type": "array", "elementType": _spark_type(element.type), "containsNull": element.nullable}
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "keyType": _spark_type(kind.key_type),
            "valueType": _spark_type(kind.item_type),
            "valueContainsNull": kind.item_field.nullable,
        }
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return _NAMES[kind]


def arrow_type(spark: Any) -> pa.DataType | None:
    """The Arrow type for one of Spark's; None where tables have no such type, as for intervals."""
    if isinstance(spark, str):
        decimal = _DECIMAL.fullmatch(spark)
        return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _PLAIN.get(spark)
    if spark["type"] == "struct":
        kinds = [arrow_type(field["type"]) for field in spark["fields"]]
        fields = [
            _field(field["name"], kind, field["nullable"])
            for field, kind in zip(spark["fields"], kinds, strict=True)
            if kind is not None
        ]
        return pa.struct(fields) if len(fields) == len(kinds) else None
    if spark["type"] == "array":
        element = arrow_type(spark["elementType"])
        return None if element is None else pa.list_(_field("element", element, spark["containsNull"]))
    if spark["type"] == "map":
        key, value = arrow_type(spark["keyType"]), arrow_type(spark["valueType"])
        if key is not None and value is not None:
            return pa.map_(key, _field("value", value, spark["valueContainsNull"]))
    return None


def _field(name: str, kind: pa.DataType, nullable: bool) -> pa.Field:
    """A field; Spark says that an array without elements has no nulls, though they are of type void."""
    return pa.field(name, kind, nullable or pa.types.is_null(kind))


def type_in_words(spark: Any) -> str:
    """A type of Spark's, for messages."""
    return spark if isinstance(spark, str) else str(spark["type"])
