"""Payloads that may have failed a block, found without parsing each of them strictly.

A suspect is not refused: the strict path decides. A suspect too many costs time, and so does one too few.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from lakefeed.columns.column_types import JSON
from lakefeed.formats.fit import decimals
from lakefeed.formats.fit.spellings import Spellings
from lakefeed.formats.fit.type_rules import INT64
from lakefeed.formats.json.columns import is_unreadable, json_kind
from lakefeed.formats.json.parser import DEEPEST, too_deep
from lakefeed.formats.refusal import Misfit, is_utf8

_NULL = type(None)
_KINDS: dict[str, set[type]] = {
    "object": {dict, _NULL},
    "array": {list, _NULL},
    "integer": {int, _NULL},
    "float": {int, float, _NULL},
    "decimal": {int, float, str, _NULL},
    "boolean": {bool, _NULL},
    "text": {str, _NULL},
}
"""What a fast parser makes of values of a kind that fits."""
_MANY_NAMES = 100
_EXACT_FLOAT = 2**24  # the last integer before those that a float of 32 bits does not hold


def not_utf8(payloads: Sequence[bytes]) -> set[int]:
    """Payloads that are not UTF-8."""
    return {index for index, payload in enumerate(payloads) if not (payload.isascii() or is_utf8(payload))}


def loaded(payloads: Sequence[bytes]) -> tuple[list[dict[str, Any]], set[int]]:
    """Each payload as an object by orjson, and which of them are none."""
    objects: list[Any] = []
    for payload in payloads:
        try:
            objects.append(orjson.loads(payload))
        except orjson.JSONDecodeError:
            objects.append(None)
    broken = {index for index, value in enumerate(objects) if type(value) is not dict}
    for index in broken:
        objects[index] = {}
    return objects, broken


def renamed(objects: Sequence[dict[str, Any]], spellings: Spellings) -> tuple[list[dict[str, Any]], set[int]]:
    """The objects under the names of the columns, and those that only the strict path may rename."""
    found, hard = [], set()
    for index, value in enumerate(objects):
        try:
            found.append(spellings.object(value))
        except Misfit:
            found.append(value)
            hard.add(index)
        if spellings.missed():
            hard.add(index)
    return found, hard


def having(names: set[str], objects: Sequence[dict[str, Any]]) -> set[int]:
    """Objects that may have one of these names at any level."""
    if len(names) > _MANY_NAMES:
        return set(range(len(objects)))
    keys = [orjson.dumps(name) + b":" for name in names]
    texts = map(orjson.dumps, objects)
    return {index for index, text in enumerate(texts) if any(key in text for key in keys)}


def doubled(payloads: Sequence[bytes], objects: Sequence[dict[str, Any]]) -> set[int]:
    """Payloads that may have a key twice."""
    return {index for index, pair in enumerate(zip(payloads, objects, strict=True)) if may_be_doubled(*pair)}


def may_be_doubled(payload: bytes, parsed: dict[str, Any]) -> bool:
    """Whether a key may come twice: orjson drops the first, and with it a colon."""
    if payload.count(b":") != orjson.dumps(parsed).count(b":"):
        return True
    # An escaped colon could stand in for the one that was dropped.
    return b"\\u003a" in payload or b"\\u003A" in payload


def deep(payloads: Sequence[bytes], most: int = DEEPEST) -> set[int]:
    """Payloads that are nested too deep."""
    long = [index for index, payload in enumerate(payloads) if len(payload) > 2 * most]
    return {index for index in long if too_deep(payloads[index], most)}


def misfits(objects: Sequence[dict[str, Any]], fields: Iterable[pa.Field]) -> set[int]:
    """Objects with a value of the wrong kind for its column, at any level. Looks at a column at a time."""
    found: set[int] = set()
    for field in fields:
        values = [each.get(field.name) for each in objects]
        found |= _column_misfits(values, field.type, is_unreadable(field.type))
    return found


def bad_decimals(objects: Sequence[dict[str, Any]], fields: Iterable[pa.Field]) -> set[int]:
    """Objects with a number or text that does not fit its decimal column, lists not looked into."""
    found: set[int] = set()
    for field in fields:
        if pa.types.is_decimal(field.type):
            values = [each.get(field.name) for each in objects]
            found |= {index for index, value in enumerate(values) if not _fits(value, field.type)}
        elif pa.types.is_struct(field.type):
            indexes = [index for index, each in enumerate(objects) if each.get(field.name)]
            inner = bad_decimals([objects[index][field.name] for index in indexes], field.type)
            found |= {indexes[index] for index in inner}
    return found


def _fits(value: Any, declared: pa.DataType) -> bool:
    if value is None:
        return True
    number = decimals.parsed(value if type(value) is str else repr(value))
    return number is not None and decimals.fitted(number, declared) is not None


def _column_misfits(values: list[Any], declared: pa.DataType, mapped: bool) -> set[int]:
    if declared == JSON:
        return set()
    kind = json_kind(declared)
    # In a map or a `json` the value comes from orjson, which keeps all digits of an integer only.
    allowed = _KINDS["integer" if mapped and kind == "decimal" else kind]
    found: set[int] = set()
    if not set(map(type, values)) <= allowed:
        found = {index for index, value in enumerate(values) if type(value) not in allowed}
    if kind == "integer":
        low, high = INT64
        whole = [value if type(value) is int else 0 for value in values]
        if whole and (min(whole) < low or max(whole) > high):
            found |= {index for index, value in enumerate(whole) if not low <= value <= high}
    elif kind == "decimal":
        texts = [index for index, value in enumerate(values) if type(value) is str]
        found |= {index for index in texts if not _fits(values[index], declared)}
    elif mapped and declared == pa.float32():
        found |= _halfway(values)
    elif declared.num_fields:
        found |= _inner_misfits(values, declared, mapped, found)
    return found


def _halfway(values: list[Any]) -> set[int]:
    """Numbers in the middle between two floats, as orjson has them: their digits decide which is nearest."""
    found = {index for index, value in enumerate(values) if type(value) is int and abs(value) > _EXACT_FLOAT}
    doubles = np.array([value if type(value) is float else 0.0 for value in values])
    with np.errstate(over="ignore"):
        floats = doubles.astype(np.float32)
        others = np.nextafter(floats, np.where(doubles > floats, np.inf, -np.inf).astype(np.float32))
    middle = (floats.astype(np.float64) + others.astype(np.float64)) / 2
    return found | set(np.flatnonzero(middle == doubles).tolist())


def _inner_misfits(values: list[Any], declared: pa.DataType, mapped: bool, outside: set[int]) -> set[int]:
    indexes = [index for index, value in enumerate(values) if value is not None and index not in outside]
    present = [values[index] for index in indexes]
    if pa.types.is_struct(declared):
        inner: set[int] = set()
        for field in declared:
            inner |= _column_misfits([each.get(field.name) for each in present], field.type, mapped)
        return {indexes[index] for index in inner}
    if pa.types.is_map(declared):
        present, element = [list(each.values()) for each in present], declared.item_type
    else:
        element = declared.value_type
    ends = list(accumulate(map(len, present)))
    inner = _column_misfits(list(chain.from_iterable(present)), element, mapped)
    return {indexes[bisect_right(ends, index)] for index in inner}
