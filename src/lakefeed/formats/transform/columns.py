"""Transforms over whole columns: paths and the known functions, for all events of a block at once.

What does not go by columns, for a whole table or for some events, is left to `objects.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import TIMESTAMP, stored_type
from lakefeed.formats.fit.times import FIRST_US, LAST_US
from lakefeed.formats.transform.objects import column_at
from lakefeed.pipeline.options.jmespath_expressions import ISO8601_UNITS, parsed
from lakefeed.pipeline.options.transform import ORIGIN_FIELDS, path_of

Path = tuple[str, ...]
Evaluate = Callable[[pa.StructArray, Mapping[str, pa.Array]], pa.Array]
"""The values of an expression, given the fields that were read for it, and where events came from.

Null where an event is to be looked at by itself, unless the expression `may_be_null`.
"""


@dataclass(frozen=True)
class ColumnTransform:
    """One transform by columns. `column` is None where the table has none, and nobody wants one."""

    path: Path
    column: pa.Field | None
    evaluate: Evaluate
    reads: Mapping[Path, pa.DataType]
    may_be_null: bool


@dataclass(frozen=True)
class _Node:
    """A part of an expression: what it makes, of what it reads."""

    kind: str
    evaluate: Evaluate
    reads: Mapping[Path, pa.DataType]


def by_columns(
    transforms: Sequence[tuple[str, str]], schema: pa.Schema, *, ignores_new: bool, coerces: bool
) -> list[ColumnTransform] | None:
    """All transforms of a table by columns, or None where one must go event by event."""
    found = []
    for target, expression in transforms:
        path = path_of(target)
        column = column_at(schema, path)
        dropped = ignores_new and not _leads_into_a_value(schema, path)
        one = _transform(path, expression, column, coerces) if column or dropped else None
        if one is None:
            return None
        found.append(one)
    paths = [one.path for one in found]
    read = [path for one in found for path in one.reads]
    clash = any(a == b[: len(a)] for a, b in permutations(paths, 2))
    clash |= any(a == b[: len(a)] and a != b for a, b in permutations(set(read), 2))
    types: dict[Path, pa.DataType] = {}
    for one in found:
        clash |= any(types.setdefault(path, kind) != kind for path, kind in one.reads.items())
    return None if clash else found


def _leads_into_a_value(schema: pa.Schema, path: Path) -> bool:
    """Whether a path goes on inside of a column that is no struct, such as a map or text of JSON."""
    ways = (column_at(schema, path[:length]) for length in range(1, len(path)))
    return any(column is not None and not pa.types.is_struct(column.type) for column in ways)


def read_schema(transforms: Sequence[ColumnTransform]) -> pa.Schema:
    """The fields of the events that expressions read, as columns to decode."""
    tree: dict[str, Any] = {}
    for one in transforms:
        for path, kind in one.reads.items():
            at = tree
            for part in path[:-1]:
                at = at.setdefault(part, {})
            at[path[-1]] = kind
    return pa.schema(_fields(tree))


def _fields(tree: Mapping[str, Any]) -> list[pa.Field]:
    return [
        pa.field(name, pa.struct(_fields(kind)) if isinstance(kind, dict) else kind)
        for name, kind in tree.items()
    ]


def with_value(column: pa.Array, kind: pa.DataType, path: Path, values: pa.Array) -> pa.Array:
    """A column with values set inside of its structs; a null sets nothing."""
    if not path:
        return values if column.null_count == len(column) else pc.coalesce(values, column)
    children = column.flatten()
    at = kind.get_field_index(path[0])
    children[at] = with_value(children[at], kind.field(at).type, path[1:], values)
    absent = pc.and_(column.is_null(), children[at].is_null())
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=absent)


def _transform(path: Path, expression: str, column: pa.Field | None, coerces: bool) -> ColumnTransform | None:
    declared = column.type if column is not None else None
    if expression in ORIGIN_FIELDS:
        name = expression.removeprefix("kafka.")
        kind = {"topic": "text", "timestamp": "stamp"}.get(name, "number")
        node = _Node(kind, lambda read, origin: origin[name], {})
    else:
        made = _node(parsed(expression).parsed, declared)
        if made is None:
            return None
        node = made
    fit = _identity if declared is None else _fit(node.kind, declared, coerces)
    if fit is None:
        return None
    may_be_null = node.kind == "any" or expression == "kafka.timestamp"
    return ColumnTransform(
        path, column, lambda read, origin: fit(node.evaluate(read, origin)), node.reads, may_be_null
    )


def _node(tree: Any, wanted: pa.DataType | None) -> _Node | None:
    """What an expression makes; None where it is more than paths and the known functions."""
    path = _path(tree)
    if path is not None:
        # Without a column nobody wants its value, and it cannot fail.
        return _Node("any", _reader(path), {path: wanted}) if wanted else _Node("any", _nothing, {})
    if tree["type"] != "function_expression":
        return None
    name, arguments = tree["value"], tree["children"]
    if name == "substr" and len(arguments) == 3:
        inner = _node(arguments[0], pa.string())
        skip, take = (_whole(each) for each in arguments[1:])
        if inner is None or inner.kind not in ("any", "text", "moment") or skip is None or take is None:
            return None
        return _Node("text", _substr(inner, skip, skip + take), inner.reads)
    if len(arguments) != 1 or name not in (*ISO8601_UNITS, "epoch_millis_to_micro"):
        return None
    inner = _node(arguments[0], pa.int64())
    if inner is None or inner.kind not in ("any", "number"):
        return None
    factor = ISO8601_UNITS.get(name, 1000)
    return _Node("moment" if name in ISO8601_UNITS else "number", _scaled(inner, factor), inner.reads)


def _path(tree: Any) -> Path | None:
    if tree["type"] == "field":
        return (tree["value"],)
    if tree["type"] == "subexpression":
        parts = [_path(child) for child in tree["children"]]
        return tuple(part for each in parts if each for part in each) if all(parts) else None
    return None


def _whole(tree: Any) -> int | None:
    value = tree.get("value")
    is_whole = tree["type"] == "literal" and type(value) is int and 0 <= value < 2**31
    return value if is_whole else None


def _nothing(read: pa.StructArray, origin: Mapping[str, pa.Array]) -> pa.Array:
    return pa.nulls(len(read))


def _reader(path: Path) -> Evaluate:
    def read(given: pa.StructArray, origin: Mapping[str, pa.Array]) -> pa.Array:
        for part in path:
            given = given.flatten()[given.type.get_field_index(part)]
        return given

    return read


def _substr(inner: _Node, start: int, stop: int) -> Evaluate:
    def cut(read: pa.StructArray, origin: Mapping[str, pa.Array]) -> pa.Array:
        values = inner.evaluate(read, origin)
        texts = moment_texts(values) if inner.kind == "moment" else values
        return pc.utf8_slice_codeunits(texts, start, stop)

    return cut


def _scaled(inner: _Node, factor: int) -> Evaluate:
    """Numbers times a factor; null where that is no moment, so that the event is looked at by itself."""

    def scale(read: pa.StructArray, origin: Mapping[str, pa.Array]) -> pa.Array:
        values = inner.evaluate(read, origin).cast(pa.int64())
        fits = pc.and_(
            pc.greater_equal(values, -(-FIRST_US // factor)), pc.less_equal(values, LAST_US // factor)
        )
        return pc.multiply(pc.if_else(fits, values, pa.scalar(None, pa.int64())), factor)

    return scale


def moment_texts(micros: pa.Array) -> pa.Array:
    """Moments as text, with as many groups of three digits behind the second as each needs."""
    moments = micros.cast(pa.timestamp("us"))
    seconds = pc.floor_temporal(moments, unit="second")
    texts = _texts(seconds, "s")
    part = pc.subtract(micros, seconds.cast(pa.int64()))
    if pc.any(pc.not_equal(part, 0)).as_py():
        millis = pc.floor_temporal(moments, unit="millisecond")
        finer = pc.if_else(pc.equal(millis, moments), _texts(millis, "ms"), _texts(moments, "us"))
        texts = pc.if_else(pc.equal(part, 0), texts, finer)
    return pc.binary_join_element_wise(texts, "Z", "")


def _texts(moments: pa.Array, unit: str) -> pa.Array:
    """With the digits of a unit, whole ones among them."""
    return pc.strftime(moments.cast(pa.timestamp(unit)), "%Y-%m-%dT%H:%M:%S", "C")


def _identity(values: pa.Array) -> pa.Array:
    return values


def _fit(kind: str, declared: pa.DataType, coerces: bool) -> Callable[[pa.Array], pa.Array] | None:
    """How what an expression makes becomes a value of its column; None where that is not for columns."""
    stored = stored_type(declared)
    if kind == "any":
        return _identity
    if pa.types.is_string(stored):
        if kind == "moment":
            return moment_texts
        return _identity if kind == "text" else (lambda values: values.cast(stored)) if coerces else None
    if declared == TIMESTAMP and (kind in ("moment", "stamp") or (kind == "number" and coerces)):
        return lambda values: values.cast(pa.int64()).cast(TIMESTAMP)
    if pa.types.is_integer(stored) and kind in ("number", "stamp"):
        return lambda values: values.cast(stored)
    return None
