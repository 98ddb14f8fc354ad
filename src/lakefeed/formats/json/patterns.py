"""Payloads that look wrong by their bytes: cut off, or with a value of the wrong kind behind a known key.

One pass of a compiled pattern over all payloads costs a fifth of parsing them, and finds nearly all that fail
a block. Looks deceive both ways; the strict path decides.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import JSON
from lakefeed.formats.json.columns import json_kind

_CLOSE = ord("}")
_MOST = 10  # one in so many may look wrong; if more do, looks say nothing about this stream

_WRONG = {
    "integer": r'["tf\[{NI]|-?[0-9]+[.eE]|-?[0-9]{19}',
    "float": r'["tf\[{]',
    "decimal": r'[tf\[{NI]|"[^"]*[^-0-9.eE+"]|""',
    "boolean": r'["\[{NI0-9-]',
    "text": r"[tf\[{NI0-9-]",
    "object": r'["tf\[NI0-9-]',
    "array": r'["tf{NI0-9-]',
}
"""How a value begins that does not fit, by the kind of its column."""


class Patterns:
    """What payloads of one schema must not look like."""

    def __init__(self, fields: Iterable[pa.Field]) -> None:
        kinds: dict[str, set[str]] = defaultdict(set)
        for name, kind in _named(fields):
            kinds[name].add(kind)
        names: dict[str, list[str]] = defaultdict(list)
        for name, found in kinds.items():
            # A name with two meanings at two levels has no one kind.
            if len(found) == 1:
                names[next(iter(found))].append(re.escape(name))
        parts = [f'"(?:{"|".join(names[kind])})"\\s*:\\s*(?:{_WRONG[kind]})' for kind in names]
        self._pattern = "|".join(parts)

    def wrong(self, payloads: Sequence[bytes]) -> set[int]:
        """Payloads that look wrong: those that are cut off, and only if there are none, the others."""
        return _cut_off(payloads) or self._wrong_kind(payloads)

    def _wrong_kind(self, payloads: Sequence[bytes]) -> set[int]:
        if not self._pattern or not payloads:
            return set()
        try:
            found = pc.match_substring_regex(pa.array(payloads, pa.large_binary()), self._pattern)
        except pa.ArrowInvalid:
            # The pattern of a very wide schema is too large for the machine behind it.
            self._pattern = ""
            return set()
        indexes = pc.indices_nonzero(found).to_pylist()
        return set(indexes) if len(indexes) <= len(payloads) // _MOST else set()


def _cut_off(payloads: Sequence[bytes]) -> set[int]:
    odd = [index for index, payload in enumerate(payloads) if payload[-1] != _CLOSE]
    return {index for index in odd if not payloads[index].rstrip().endswith(b"}")}


def _named(fields: Iterable[pa.Field]) -> Iterator[tuple[str, str]]:
    for field in fields:
        if field.type != JSON:
            yield field.name, json_kind(field.type)
        yield from _inside(field.type)


def _inside(declared: pa.DataType) -> Iterator[tuple[str, str]]:
    if pa.types.is_struct(declared):
        yield from _named(declared)
    elif pa.types.is_list(declared):
        yield from _inside(declared.value_type)
    elif pa.types.is_map(declared):
        yield from _inside(declared.item_type)
