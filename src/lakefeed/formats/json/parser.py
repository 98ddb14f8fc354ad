"""One JSON payload, parsed strictly: what this refuses is no JSON object, whatever other parsers say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, NoReturn

import orjson

from lakefeed.formats.refusal import Misfit, Number, empty_payload, shown, utf8_text

DEEPEST = 100
"""Levels of objects and arrays in a payload, the payload's own object included."""

# Runs to the end of an unterminated string, so that no quote is looked at twice.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_WORDING = {
    "Expecting value": "expected a value",
    "Expecting property name enclosed in double quotes": "expected a key in double quotes",
    "Expecting ':' delimiter": "expected ':' after a key",
    "Expecting ',' delimiter": "expected ',' or a closing bracket",
    "Extra data": "unexpected text after the object",
    "Unterminated string starting at": "unterminated string",
    "Invalid control character at": "control character in a string",
    "Invalid \\escape": "invalid escape in a string",
    "Invalid \\uXXXX escape": "invalid \\u escape in a string",
}


class _Doubled(dict[str, Any]):
    """An object in which a key came twice."""

    key: str


def too_deep(payload: bytes, most: int = DEEPEST) -> bool:
    """Whether brackets outside strings are nested too deep; cheap for payloads with few brackets."""
    if payload.count(b"[") + payload.count(b"{") <= most:
        return False
    brackets = _STRING.sub(b"", payload).translate(None, _NOT_BRACKETS)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > most


def refuse_too_deep(payload: bytes) -> None:
    """Raise Misfit if the payload is nested too deep."""
    if too_deep(payload):
        raise Misfit("too_deep", f"nested more than {DEEPEST} levels deep")


def parse(payload: bytes) -> dict[str, Any]:
    """The object in the payload, with numbers as they are written. Raises Misfit."""
    value = parse_any(payload)
    if not isinstance(value, dict):
        raise Misfit("not_an_object", f"expected an object, got {shown(value)}")
    return value


def loaded(payload: bytes) -> Any:
    """The value in the payload by a fast parser, which keeps neither all digits nor doubled keys.

    Raises Misfit.
    """
    if not payload:
        raise empty_payload()
    refuse_too_deep(payload)
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        # Says why, or takes what orjson cannot hold, such as 1e400.
        return parse_any(payload)


def doubled_key(key: str) -> Misfit:
    """The misfit of a key that comes twice: which of the two counts would be a guess."""
    return Misfit("duplicate_key", "the key appears twice in one object").within(key)


def parse_any(payload: bytes) -> Any:
    """The value in the payload, whatever its kind, with numbers as they are written. Raises Misfit."""
    refuse_too_deep(payload)
    text = _text(payload)
    doubled: list[_Doubled] = []
    value = _value(text, doubled)
    if doubled:
        _refuse_doubled(value)
    if "\\u" in text:
        _refuse_surrogates(value)
    return value


def _text(payload: bytes) -> str:
    text = utf8_text(payload)
    if not text.strip(" \t\r\n"):
        raise Misfit("bad_json", "expected an object, got only white space")
    if text.startswith("\ufeff"):
        raise Misfit("bad_json", "line 1 column 1: byte order mark before the object")
    return text


def _value(text: str, doubled: list[_Doubled]) -> Any:
    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        marked = _Doubled(found)
        marked.key = _first_twice(key for key, _ in pairs)
        doubled.append(marked)
        return marked

    decoder = json.JSONDecoder(
        object_pairs_hook=members, parse_int=Number, parse_float=Number, parse_constant=_refuse_constant
    )
    try:
        return decoder.decode(text)
    except json.JSONDecodeError as error:
        message = _WORDING.get(error.msg, error.msg)
        if error.msg == "Extra data" and text[error.pos :].strip(" \t\r\n") == ",":
            message = "a comma after the object; leave it out, or put [ and ] around all objects"
        raise Misfit("bad_json", f"line {error.lineno} column {error.colno}: {message}") from None


def _first_twice(keys: Iterable[str]) -> str:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            return key
        seen.add(key)
    raise ValueError("no key appears twice")


def _refuse_constant(name: str) -> NoReturn:
    raise Misfit("bad_json", f"{name} is not JSON; expected a number or null")


def _refuse_doubled(value: Any) -> None:
    for path, part in _parts(value, ()):
        if isinstance(part, _Doubled):
            misfit = doubled_key(part.key)
            misfit.path[:0] = path
            raise misfit


def _refuse_surrogates(value: Any) -> None:
    for path, part in _parts(value, ()):
        texts = [part] if isinstance(part, str) else part if isinstance(part, dict) else ()
        for text in texts:
            try:
                text.encode()
            except UnicodeEncodeError:
                misfit = Misfit("bad_json", f"half a surrogate pair in {shown(text)}")
                misfit.path = [*path]
                raise misfit from None


def _parts(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    yield path, value
    if isinstance(value, dict):
        for key, member in value.items():
            yield from _parts(member, (*path, key))
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from _parts(element, (*path, index))
