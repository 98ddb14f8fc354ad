"""Rows of dead letters, objects of JSON, as options and tables of today take them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pyarrow as pa

from lakefeed.columns.column_types import JSON
from lakefeed.sources.postgres.values.finite import finite_json

_DECODER = json.JSONDecoder()


def row_again(
    row: bytes, columns: pa.Schema, texts: Mapping[str, str], is_finite: Callable[[str], bool]
) -> bytes:
    """The row with other values for some columns; all others keep their bytes, and numbers their digits.

    `texts` are values as the server has written them, which a column of text gets; `is_finite` says for
    which columns infinite values are the first and the last that a column holds.
    """
    changed: dict[str, str] = {}
    members: dict[str, str] | None = None
    for field in columns:
        if field.name in texts and pa.types.is_string(field.type) and field.type != JSON:
            changed[field.name] = texts[field.name]
        elif b"infinity" in row and is_finite(field.name):
            members = members or _members(row)
            found = finite_json(json.loads(members.get(field.name, "null")), field.type)
            changed |= {} if found is None else {field.name: found}
    if not changed:
        return row
    members = (members or _members(row)) | {name: _quoted(text) for name, text in changed.items()}
    return ("{" + ",".join(f"{_quoted(name)}:{value}" for name, value in members.items()) + "}").encode()


def _members(row: bytes) -> dict[str, str]:
    """The members of an object, each value as its own text."""
    text, at, found = row.decode(), 1, {}
    while text[at] != "}":
        name, end = _DECODER.raw_decode(text, at)
        _, at = _DECODER.raw_decode(text, end + 1)
        found[name] = text[end + 1 : at]
        at += text[at] == ","
    return found


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
