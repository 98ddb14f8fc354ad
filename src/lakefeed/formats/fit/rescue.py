"""What did not fit a table, as JSON text: every value of Arrow exactly, and one object for each row.

Numbers keep all their digits, binary is base64, times are RFC 3339 in UTC. What JSON has no number for
(`NaN`, the infinities) is text.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

Texts = list[str]


@dataclass(frozen=True)
class Element:
    """A step into a list: the number of the element, and how many the list has."""

    number: int
    count: int


Step = str | Element
"""A step on the way to a value: the name of a field, the key of a map, or an element of a list."""


@dataclass(frozen=True)
class SomeElements:
    """A list of which only some elements are there; null stands for the others."""

    count: int
    parts: dict[int, Part] = field(default_factory=dict)


Part = str | dict[str, "Part"] | SomeElements
"""JSON text, or an object or a list of such."""

Rescued = dict[str, Part]
"""What was rescued from one payload, each part in its place."""


def put(found: Rescued, trail: Sequence[Step], text: str) -> None:
    """Put a text in its place. A text that holds others takes their place."""
    here: Any = found
    for step, next_step in zip(trail, [*trail[1:], None], strict=True):
        parts: dict[Any, Part] = here.parts if isinstance(here, SomeElements) else here
        key = step.number if isinstance(step, Element) else step
        if next_step is None:
            parts[key] = text
        elif isinstance(next_step, Element):
            parts.setdefault(key, SomeElements(next_step.count))
        else:
            parts.setdefault(key, {})
        here = parts[key]


def rescued_column(found: Mapping[int, Rescued], rows: Sequence[int]) -> pa.Array | None:
    """For each row the object of what was rescued from it, or null; None when that is nothing for all.

    `found` is by the place of a row.
    """
    if not any(row in found for row in rows):
        return None
    return pa.array([_written(found[row]) if row in found else None for row in rows], pa.string())


def _written(part: Part) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, SomeElements):
        texts = (_written(part.parts[at]) if at in part.parts else "null" for at in range(part.count))
        return f"[{','.join(texts)}]"
    return _object(map(_quoted, part), map(_written, part.values()))


def json_texts(values: pa.Array) -> Texts:
    """Each value as JSON text."""
    for applies, texts in _KINDS:
        if applies(values.type):
            return _with_nulls(values, texts)
    raise TypeError(f"JSON has no {values.type}")


def json_text(values: pa.Array, place: int) -> str:
    """One value as JSON text."""
    return json_texts(values.slice(place, 1))[0]


def _with_nulls(values: pa.Array, texts: Callable[[pa.Array], Texts]) -> Texts:
    if not values.null_count:
        return texts(values)
    present = iter(texts(values.drop_null()))
    return [next(present) if valid else "null" for valid in values.is_valid().to_pylist()]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _nulls(values: pa.Array) -> Texts:
    return ["null"] * len(values)


def _booleans(values: pa.Array) -> Texts:
    return ["true" if value else "false" for value in values.to_pylist()]


def _integers(values: pa.Array) -> Texts:
    return list(map(str, values.to_pylist()))


def _floats(values: pa.Array) -> Texts:
    # A 32-bit float has the digits that it needs itself, not those of the double beside it.
    texts = [str(number) for number in values.to_numpy(zero_copy_only=False)]
    words = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}
    return [words.get(text, text) for text in texts]


def _decimals(values: pa.Array) -> Texts:
    return [f"{number:f}" for number in values.to_pylist()]


def _strings(values: pa.Array) -> Texts:
    return list(map(_quoted, values.to_pylist()))


def _binaries(values: pa.Array) -> Texts:
    return [f'"{b64encode(content).decode()}"' for content in values.to_pylist()]


def _dates(values: pa.Array) -> Texts:
    days = values.view(pa.int32()).to_numpy().astype("M8[D]")
    return [f'"{text}"' for text in np.datetime_as_string(days).tolist()]


def _timestamps(values: pa.Array) -> Texts:
    # By numpy, as Python's own times end at the year 9999 and at microseconds.
    ticks = values.view(pa.int64()).to_numpy().astype(f"M8[{values.type.unit}]")
    return [f'"{text}Z"' for text in np.datetime_as_string(ticks).tolist()]


def _structs(values: pa.Array) -> Texts:
    names = [_quoted(field.name) for field in values.type]
    columns = [json_texts(member) for member in values.flatten()]
    rows = zip(*columns, strict=True) if columns else [()] * len(values)
    return [_object(names, row) for row in rows]


def _lists(values: pa.Array) -> Texts:
    return [f"[{','.join(part)}]" for part in _parts(values, json_texts(values.flatten()))]


def _maps(values: pa.Array) -> Texts:
    values = values.take(pa.array(np.arange(len(values))))
    keys = [text if text.startswith('"') else f'"{text}"' for text in json_texts(values.keys)]
    entries = [f"{key}:{item}" for key, item in zip(keys, json_texts(values.items), strict=True)]
    return [f"{{{','.join(part)}}}" for part in _parts(values, entries)]


def _object(names: Iterable[str], texts: Iterable[str]) -> str:
    return "{" + ",".join(f"{name}:{text}" for name, text in zip(names, texts, strict=True)) + "}"


def _parts(values: pa.Array, texts: Texts) -> list[Texts]:
    offsets = values.offsets.to_numpy()
    offsets = (offsets - offsets[0]).tolist()
    return [texts[start:end] for start, end in pairwise(offsets)]


def _is_text(kind: Any) -> bool:
    text = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(text) or pa.types.is_large_string(text))


def _is_binary(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


_KINDS: list[tuple[Callable[[Any], bool], Callable[[pa.Array], Texts]]] = [
    (pa.types.is_null, _nulls),
    (pa.types.is_boolean, _booleans),
    (pa.types.is_integer, _integers),
    (pa.types.is_floating, _floats),
    (pa.types.is_decimal, _decimals),
    (_is_text, _strings),
    (_is_binary, _binaries),
    (pa.types.is_date32, _dates),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_struct, _structs),
    (pa.types.is_list, _lists),
    (pa.types.is_map, _maps),
]
