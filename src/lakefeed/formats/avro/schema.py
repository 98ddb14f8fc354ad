"""Avro schemas as trees of nodes, and the Arrow type that each node makes.

| Avro                              | made                                                           |
|-----------------------------------|----------------------------------------------------------------|
| null, boolean, int, long          | null, bool, int32, int64                                       |
| float, double, string, bytes      | float32, float64, string, binary                               |
| fixed, enum                       | binary, string                                                 |
| date, timestamps, decimal         | date32, timestamp of that unit, decimal                        |
| time-millis, time-micros          | int32, int64: a table has no type for a time of day            |
| uuid, duration                    | string, struct of months, days and millis                      |
| array, map, record                | list, map, struct                                              |
| union of null and one type        | that type                                                      |
| union of int and long, float and double | int64, float64                                           |
| any other union                   | struct with a field member0, member1, ... for each, one of them set |
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_TIMES = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "local-timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns", "UTC"),
}
DURATION = pa.struct([("months", pa.int64()), ("days", pa.int64()), ("millis", pa.int64())])
_READERS = {"int": "integer", "long": "number", "float": "single", "bytes": "binary", "fixed": "binary"}
_LARGEST_PRECISION = 76
_DEEPEST = 100
_LARGEST_FIXED = 2**30
_WIDER = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}


class SchemaProblem(Exception):
    """A schema that is no Avro schema, or that no table can hold; the text says why."""


@dataclass(frozen=True)
class Node:
    """One type of a schema. Which of the parts it has depends on its kind."""

    kind: str
    made: pa.DataType
    size: int = 0
    symbols: tuple[str, ...] = ()
    item: Node | None = None
    fields: tuple[tuple[str, Node], ...] = ()
    branches: tuple[Node, ...] = ()
    logical: str = ""

    @property
    def reader(self) -> str:
        """The method of both readers that reads values of this kind."""
        return _READERS.get(self.kind, self.kind)

    @property
    def members(self) -> list[tuple[int, Node]]:
        """The branches of a union that are not null, with their numbers."""
        return [(at, branch) for at, branch in enumerate(self.branches) if branch.kind != "null"]


def parsed(text: str, references: Iterable[str] = ()) -> Node:
    """The root of the schema that a text holds; `references` are the texts of others that it names, in order.

    The fields of a record are the columns; anything else is the one column `value`. Raises SchemaProblem.
    """
    named: dict[str, Any] = {}
    for other in references:
        _checked(other, named)
    return _Builder(named).node(_checked(text, named), (), 0)


def fingerprint(text: str) -> bytes:
    """The CRC-64-AVRO fingerprint of a schema, in the order of bytes of the single-object encoding."""
    from fastavro.schema import fingerprint as hashed
    from fastavro.schema import to_parsing_canonical_form

    schema = without_odd_decimals(json.loads(text))
    return bytes.fromhex(hashed(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


def _checked(text: str, named: dict[str, Any]) -> Any:
    """What fastavro makes of the text: names are full, and those that are used are known."""
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    try:
        return parse_schema(without_odd_decimals(json.loads(text)), named, _write_hint=False)
    except UnknownType as error:
        raise SchemaProblem(f"it uses the type {error.name}, which is not defined") from None
    except SchemaParseException as error:
        raise SchemaProblem(str(error)) from None
    except json.JSONDecodeError as error:
        raise SchemaProblem(f"it is not JSON: {error}") from None
    except RecursionError:
        raise SchemaProblem("it is nested too deep") from None
    except Exception as error:
        # It looks things up without a check whether they are there.
        raise SchemaProblem(f"it is not an Avro schema: {error}") from None


def without_odd_decimals(schema: Any) -> Any:
    """The schema without decimals that are none, such as those of more scale than precision.

    Avro's specification has a logical type that is not valid ignored; fastavro refuses the whole schema.
    """
    if isinstance(schema, list):
        return [without_odd_decimals(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: without_odd_decimals(value) for key, value in schema.items()}
    if found.get("logicalType") == "decimal" and not _is_decimal(
        found.get("precision"), found.get("scale", 0), math.inf
    ):
        del found["logicalType"]
    return found


class _Builder:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def node(self, schema: Any, inside: tuple[str, ...], level: int) -> Node:
        """The node of a checked schema, inside the records of these names and so many levels deep."""
        if level > _DEEPEST:
            # Types that name each other are nested deeper than the text of their schema.
            raise SchemaProblem(f"it is nested more than {_DEEPEST} levels deep")
        if isinstance(schema, list):
            return self._union([self.node(each, inside, level + 1) for each in schema])
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return Node(schema, _PRIMITIVES[schema])
            return self.node(self._named[schema], inside, level)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, inside, level)
        if kind == "array":
            item = self.node(schema["items"], inside, level + 1)
            return Node("array", pa.list_(pa.field("element", item.made)), item=item)
        if kind == "map":
            item = self.node(schema["values"], inside, level + 1)
            return Node("map", pa.map_(pa.string(), item.made), item=item)
        if kind == "enum":
            return Node("enum", pa.string(), symbols=tuple(schema["symbols"]))
        if not isinstance(kind, str) or (kind not in _PRIMITIVES and kind != "fixed"):
            return self.node(kind, inside, level)
        return _logical(kind, schema)

    def _record(self, schema: Any, inside: tuple[str, ...], level: int) -> Node:
        name = schema["name"]
        if name in inside:
            raise SchemaProblem(f"the record {name} contains itself, which the columns of a table cannot")
        within = (*inside, name)
        fields = tuple(
            (each["name"], self.node(each["type"], within, level + 1)) for each in schema["fields"]
        )
        if len({field for field, _ in fields}) < len(fields):
            raise SchemaProblem(f"the record {name} has two fields of one name")
        return Node("record", pa.struct([(field, node.made) for field, node in fields]), fields=fields)

    def _union(self, branches: list[Node]) -> Node:
        members = [branch for branch in branches if branch.kind != "null"]
        if len(members) < 2:
            made = members[0].made if members else pa.null()
        elif wider := _WIDER.get(frozenset(_plain_kind(member) for member in members)):
            made = _PRIMITIVES[wider]
        else:
            made = pa.struct([(f"member{at}", member.made) for at, member in enumerate(members)])
        return Node("union", made, branches=tuple(branches))


def _plain_kind(node: Node) -> str:
    return "" if node.logical else node.kind


def _logical(kind: str, schema: Any) -> Node:
    """A primitive or fixed type; a logical type that nobody knows, or that is not whole, counts as none."""
    size = schema.get("size", 0)
    if type(size) is not int or not 0 <= size <= _LARGEST_FIXED:
        raise SchemaProblem(f"a fixed type has a size of {size}")
    logical = schema.get("logicalType")
    plain = Node(kind, pa.binary() if kind == "fixed" else _PRIMITIVES[kind], size=size)
    if (kind, logical) in _TIMES:
        return Node(kind, _TIMES[kind, logical], logical=str(logical))
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not _is_decimal(precision, scale):
            return plain
        make = pa.decimal128 if precision <= 38 else pa.decimal256
        return Node(kind, make(precision, scale), size=size, logical="decimal")
    if logical == "uuid" and kind == "fixed" and size == 16:
        return Node(kind, pa.string(), size=size, logical="uuid")
    if logical == "duration" and kind == "fixed" and size == 12:
        return Node(kind, DURATION, size=size, logical="duration")
    return plain


def _is_decimal(precision: Any, scale: Any, most: float = _LARGEST_PRECISION) -> bool:
    whole = type(precision) is int and type(scale) is int
    return whole and 1 <= precision <= most and 0 <= scale <= precision
