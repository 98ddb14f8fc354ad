"""One event at a time: its fields are set by `transform`, its values coerced, and it is JSON again."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import orjson
import pyarrow as pa
from jmespath.exceptions import JMESPathError

from lakefeed.columns.column_types import TIMESTAMP
from lakefeed.formats.fit.json_text import exact_json
from lakefeed.formats.json.any_value import is_exact
from lakefeed.formats.json.parser import parse
from lakefeed.formats.json.suspects import may_be_doubled
from lakefeed.formats.refusal import Misfit
from lakefeed.formats.transform.coercion import coerce
from lakefeed.pipeline.options.jmespath_expressions import OPTIONS, iso8601, parsed
from lakefeed.pipeline.options.transform import ORIGIN_FIELDS, path_of

Origin = Mapping[str, Any]
"""What Kafka tells of one event, by the names in expressions without `kafka.`; moments in microseconds."""
_Value = Callable[[Any, Origin], Any]
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
"""An expression that only leads to a value."""


class Objects:
    """Sets fields of events and coerces their values, each event by itself."""

    def __init__(self, transforms: Sequence[tuple[str, str]], schema: pa.Schema, *, coerces: bool) -> None:
        self._schema = schema if coerces else None
        self._transforms = [
            (path_of(target), expression, _value(expression, column_at(schema, path_of(target))))
            for target, expression in transforms
        ]

    def rewritten(self, payload: bytes, origin: Origin) -> bytes:
        """The text of the event as the decoder is to see it. Raises Misfit."""
        made, exact = _parsed(payload)
        if self._transforms:
            # All of them see the event as it came: functions with numbers that one can calculate with, paths
            # with every digit.
            given = _calculable(payload)
            values: list[tuple[tuple[str, ...], Any]] = []
            for path, expression, value in self._transforms:
                try:
                    found = value(made if _PATH.fullmatch(expression) else given, origin)
                except (JMESPathError, ValueError, TypeError, OverflowError) as error:
                    told = " ".join(str(error).split())
                    name = ".".join(path)
                    raise Misfit("bad_transform", f"transform {name}: {expression}: {told}") from None
                if found is not None:
                    # A copy: another transform may set something inside of the same object.
                    values.append((path, deepcopy(found)))
            for path, found in values:
                _set(made, path, found)
        if self._schema is not None:
            coerce(made, self._schema)
        try:
            return orjson.dumps(made) if exact else exact_json(made).encode()
        except TypeError:
            # Whole numbers beyond 64 bits, which only expressions make of an exact event.
            return exact_json(made).encode()


def column_at(schema: pa.Schema, path: Sequence[str]) -> pa.Field | None:
    """The column that a path leads to; None where the schema has none."""
    fields: pa.Schema | pa.DataType = schema
    found: pa.Field | None = None
    for part in path:
        if found is not None and not pa.types.is_struct(found.type):
            return None
        found = next((field for field in fields if field.name == part), None)
        if found is None:
            return None
        fields = found.type
    return found


def _parsed(payload: bytes) -> tuple[dict[str, Any], bool]:
    """The object of a payload, and whether a fast writer keeps every digit of it. Raises Misfit."""
    try:
        value = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return parse(payload), False
    # A key that comes twice is lost here; the strict parser says which it is.
    try:
        whole = isinstance(value, dict) and not may_be_doubled(payload, value)
    except TypeError:
        # It reads numbers and depths that it cannot write.
        return parse(payload), False
    if whole and is_exact(value, zero=b"-0" not in payload):
        return value, True
    return parse(payload), False


def _calculable(payload: bytes) -> Any:
    """The event with numbers that one can calculate with. Raises Misfit where one is too large."""
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise Misfit("bad_transform", f"transform: no expression can read the event: {error}") from None


def _value(expression: str, column: pa.Field | None) -> _Value:
    if expression not in ORIGIN_FIELDS:
        compiled = parsed(expression)
        return lambda given, origin: compiled.search(given, OPTIONS)
    name = expression.removeprefix("kafka.")
    if name == "timestamp" and (column is None or column.type == TIMESTAMP):
        return lambda given, origin: None if origin[name] is None else iso8601(origin[name])
    return lambda given, origin: origin[name]


def _set(made: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a value, and make the objects on the way to it; what is there and is none gives way."""
    *way, last = path
    for part in way:
        inner = made.get(part)
        if not isinstance(inner, dict):
            inner = made[part] = {}
        made = inner
    made[last] = value
