"""Columns that take any value: text as it is, all else as its JSON text, number for number as it was written.

They are made from parsed objects. A fast parser loses digits of fractions, and the sign of a zero: payloads
with such instead are parsed a second time, with numbers as they are written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import orjson
import pyarrow as pa

from lakefeed.columns.column_types import JSON
from lakefeed.formats.fit.json_text import exact_json
from lakefeed.formats.fit.objects import along
from lakefeed.formats.fit.spellings import Spellings
from lakefeed.formats.refusal import Number

_Shape = Callable[[Any, Any], Any]
"""Takes a value as a fast parser made it, and the same with exact numbers, or `_UNKNOWN`."""
_UNKNOWN = object()
_EXACT = json.JSONDecoder(parse_int=Number, parse_float=Number)


class _Inexact(Exception):
    """The exact numbers are needed."""


def texts(
    field: pa.Field,
    payloads: Sequence[bytes],
    objects: Sequence[dict[str, Any]],
    spellings: Spellings | None = None,
) -> list[Any]:
    """The values of a column, with text wherever it takes any value; payloads are known to be good.

    `objects` have the names of the columns already, payloads what `spellings` knows.
    """
    shape, name = _shape(field.type), field.name
    if shape is None:
        return [each.get(name) for each in objects]
    found = []
    for payload, each in zip(payloads, objects, strict=True):
        value = each.get(name)
        try:
            found.append(shape(value, _UNKNOWN))
        except _Inexact:
            exact = _EXACT.decode(payload.decode())
            found.append(shape(value, (exact if spellings is None else spellings.object(exact))[name]))
    return found


def _shape(declared: pa.DataType) -> _Shape | None:
    """How values of a type are made; None where they stay as they are."""
    return along(declared, _plain_shape, _list, _map)


def _plain_shape(declared: pa.DataType, _: int) -> _Shape | None:
    if pa.types.is_struct(declared):
        members = {field.name: shape for field in declared if (shape := _shape(field.type))}
        return _struct(members) if members else None
    return _any if declared == JSON else None


def _any(value: Any, exact: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    if exact is not _UNKNOWN:
        return exact_json(exact)
    if not is_exact(value):
        raise _Inexact
    return orjson.dumps(value).decode()


def is_exact(value: Any, zero: bool = False) -> bool:
    """Whether a value that a fast parser made holds no number whose digits, or whose sign, may be lost.

    `zero` says that no zero has lost its sign.
    """
    if type(value) is dict:
        return all(map(is_exact, value.values(), repeat(zero)))
    if type(value) is list:
        return all(map(is_exact, value, repeat(zero)))
    return type(value) is not float and (zero or value != 0 or value is False)


def _struct(members: dict[str, _Shape]) -> _Shape:
    def shape(value: Any, exact: Any) -> Any:
        if value is None:
            return None
        made = dict(value)
        for name, member in members.items():
            made[name] = member(value.get(name), exact if exact is _UNKNOWN else exact.get(name))
        return made

    return shape


def _list(inner: _Shape) -> _Shape:
    def shape(value: Any, exact: Any) -> Any:
        if value is None:
            return None
        parts = [exact] * len(value) if exact is _UNKNOWN else exact
        return [inner(one, part) for one, part in zip(value, parts, strict=True)]

    return shape


def _map(inner: _Shape) -> _Shape:
    def shape(value: Any, exact: Any) -> Any:
        if value is None:
            return None
        return {key: inner(item, exact if exact is _UNKNOWN else exact[key]) for key, item in value.items()}

    return shape
