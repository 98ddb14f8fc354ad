"""The text of values that hold others, taken apart: arrays, composite values, hstore.

Postgres writes each of them in a grammar of its own. The parts come back as text, to be cast like a column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_BOUNDS = re.compile(r"(?:\[-?\d+:-?\d+\])+=")
_FIELD = re.compile(r'("(?:[^"\\]|""|\\.)*"|[^",()\\]*)([,)])', re.DOTALL)
_FIELD_ESCAPED = re.compile(r'\\(.)|"(")', re.DOTALL)
_PAIR = re.compile(rf"({_QUOTED})=>({_QUOTED}|NULL)(?:, |$)", re.DOTALL)


def array(text: str, delimiter: str = ",") -> list[Any]:
    """The elements of an array as text, None for null, lists in lists where it has more dimensions.

    Lower bounds other than 1 are left out. Raises ValueError for what is no array.
    """
    start = _BOUNDS.match(text)
    tokens = _tokens(text[start.end() if start else 0 :], delimiter)
    if next(tokens, None) != "{":
        raise ValueError(f"no array: {text}")
    elements = _elements(tokens)
    if next(tokens, None) is not None:
        raise ValueError(f"no array: {text}")
    return elements


def _tokens(text: str, delimiter: str) -> Iterator[str]:
    position = 0
    token = re.compile(rf'{_QUOTED}|[{{}}]|[^{{}}"\\{delimiter}]+|{delimiter}', re.DOTALL)
    while position < len(text):
        found = token.match(text, position)
        if found is None:
            raise ValueError(f"no array: {text}")
        position = found.end()
        if found[0] != delimiter:
            yield found[0]


def _elements(tokens: Iterator[str]) -> list[Any]:
    found: list[Any] = []
    for token in tokens:
        if token == "}":
            return found
        found.append(
            _elements(tokens) if token == "{" else None if token.upper() == "NULL" else unquoted(token)
        )
    raise ValueError("an array without its end")


def unquoted(token: str) -> str:
    """An element as it is, from how it is written in an array or an hstore."""
    return _ESCAPED.sub(r"\1", token[1:-1]) if token.startswith('"') else token


def composite(text: str, count: int, *, least: int) -> list[str | None]:
    """The attributes of a composite value, None for null. Raises ValueError unless it has so many.

    A value from before attributes were added lacks the last ones, which are null in the database then; with
    fewer than `least` it is none.
    """
    position, found = 1, []
    while text.startswith("(") and position < len(text):
        field = _FIELD.match(text, position)
        if field is None:
            break
        content = field[1]
        quoted = content.startswith('"')
        value = _FIELD_ESCAPED.sub(lambda match: match[1] or match[2], content[1:-1]) if quoted else content
        found.append(value if quoted or content else None)
        position = field.end()
        if field[2] == ")":
            break
    if position != len(text) or not least <= len(found) <= count:
        raise ValueError(f"no composite value of {count} attributes: {text}")
    return found + [None] * (count - len(found))


def hstore(text: str) -> list[tuple[str, str | None]]:
    """The pairs of an hstore. Raises ValueError for what is none."""
    pairs, position = [], 0
    for match in _PAIR.finditer(text):
        if match.start() != position:
            break
        position = match.end()
        pairs.append((unquoted(match[1]), None if match[2] == "NULL" else unquoted(match[2])))
    if position != len(text):
        raise ValueError(f"no hstore: {text}")
    return pairs


def as_json(value: Any, leaf: Callable[[str], str]) -> str:
    """What `array` returns, or an element of it, as the text of JSON; `leaf` writes what is no array."""
    if isinstance(value, list):
        return f"[{','.join(as_json(each, leaf) for each in value)}]"
    return "null" if value is None else leaf(value)


def number_or_text(text: str) -> str:
    """A number with its digits, and what JSON has no number for as text."""
    return text if re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", text) else json.dumps(text)
