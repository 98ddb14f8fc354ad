"""Values as JSON text, each exactly: those of Arrow, and those that JSON was parsed into.

Numbers keep all their digits, binary is base64, times are RFC 3339 in UTC. What JSON has no number for
(`NaN`, the infinities) is text.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from lakefeed.formats.fit.type_rules import is_binary, is_text
from lakefeed.formats.refusal import Number, shown

Texts = list[str]


def exact_json(value: Any) -> str:
    """A strictly parsed value as JSON text without white space, numbers digit for digit as they were."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return object_text(map(quoted, value), map(exact_json, value.values()))
    if isinstance(value, list):
        return "[" + ",".join(map(exact_json, value)) + "]"
    return quoted(value) if isinstance(value, str) else json.dumps(value)


def json_texts(values: pa.Array) -> Texts:
    """Each value as JSON text."""
    for applies, texts in _KINDS:
        if applies(values.type):
            return _with_nulls(values, texts)
    raise TypeError(f"JSON has no {values.type}")


def json_text(values: pa.Array, index: int) -> str:
    """One value as JSON text."""
    return json_texts(values.slice(index, 1))[0]


def shown_json(text: str) -> str:
    """A JSON text for a message, as other messages show values."""
    return shown(json.loads(text, parse_int=Number, parse_float=Number))


def _with_nulls(values: pa.Array, texts: Callable[[pa.Array], Texts]) -> Texts:
    if not values.null_count:
        return texts(values)
    present = iter(texts(values.drop_null()))
    return [next(present) if valid else "null" for valid in values.is_valid().to_pylist()]


def quoted(text: str) -> str:
    """A text as JSON."""
    return json.dumps(text, ensure_ascii=False)


def _each(write: Callable[[Any], str]) -> Callable[[pa.Array], Texts]:
    """Writes values one by one."""
    return lambda values: list(map(write, values.to_pylist()))


def _floats(values: pa.Array) -> Texts:
    # A 32-bit float has the digits that it needs itself, not those of the nearest double.
    texts = [str(number) for number in values.to_numpy(zero_copy_only=False)]
    words = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}
    return [words.get(text, text) for text in texts]


def _dates(values: pa.Array) -> Texts:
    days = values.view(pa.int32()).to_numpy().astype("M8[D]")
    return [f'"{text}"' for text in np.datetime_as_string(days).tolist()]


def _timestamps(values: pa.Array) -> Texts:
    # By numpy, as Python's own times end at the year 9999 and at microseconds.
    ticks = values.view(pa.int64()).to_numpy().astype(f"M8[{values.type.unit}]")
    return [f'"{text}Z"' for text in np.datetime_as_string(ticks).tolist()]


def _structs(values: pa.Array) -> Texts:
    names = [quoted(field.name) for field in values.type]
    columns = [json_texts(member) for member in values.flatten()]
    rows = zip(*columns, strict=True) if columns else [()] * len(values)
    return [object_text(names, row) for row in rows]


def _lists(values: pa.Array) -> Texts:
    return [f"[{','.join(part)}]" for part in _parts(values, json_texts(values.flatten()))]


def _maps(values: pa.Array) -> Texts:
    values = values.take(pa.array(np.arange(len(values))))
    keys = [text if text.startswith('"') else quoted(text) for text in json_texts(values.keys)]
    entries = [f"{key}:{item}" for key, item in zip(keys, json_texts(values.items), strict=True)]
    return [f"{{{','.join(part)}}}" for part in _parts(values, entries)]


def object_text(names: Iterable[str], texts: Iterable[str]) -> str:
    """An object, from its quoted names and the texts of its values."""
    return "{" + ",".join(f"{name}:{text}" for name, text in zip(names, texts, strict=True)) + "}"


def _parts(values: pa.Array, texts: Texts) -> list[Texts]:
    offsets = values.offsets.to_numpy()
    offsets = (offsets - offsets[0]).tolist()
    return [texts[start:end] for start, end in pairwise(offsets)]


_KINDS: list[tuple[Callable[[Any], bool], Callable[[pa.Array], Texts]]] = [
    (pa.types.is_null, lambda values: ["null"] * len(values)),
    (pa.types.is_boolean, _each(lambda value: "true" if value else "false")),
    (pa.types.is_integer, _each(str)),
    (pa.types.is_floating, _floats),
    (pa.types.is_decimal, _each("{:f}".format)),
    (is_text, _each(quoted)),
    (is_binary, _each(lambda content: f'"{b64encode(content).decode()}"')),
    (pa.types.is_date32, _dates),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_struct, _structs),
    (pa.types.is_list, _lists),
    (pa.types.is_map, _maps),
]
