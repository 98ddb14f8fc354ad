"""The envelope of a change event in JSON, with its schema or without, taken out of its payload."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from lakefeed.formats.json.parser import doubled_key, loaded, parse, too_deep
from lakefeed.formats.refusal import Misfit, utf8_text

_MOST_SCHEMAS = 100
_SEAM = b',"payload":'
_WRAPPED = {"schema", "payload"}
_SPACE = " \t\r\n"


class Envelope(NamedTuple):
    """The text of an envelope, what it says, and the text of the schema that came with it, if one did.

    Numbers of more digits than a double has are not exact in `event`.
    """

    text: bytes
    event: dict[str, Any]
    schema: bytes | None = None


class Opener:
    """Opens payloads. Remembers the schemas that it has seen: they are longer than events, and repeated."""

    def __init__(self) -> None:
        self._schemas: dict[bytes, bytes] = {}

    def open(self, payload: bytes | None) -> Envelope | None:
        """The envelope in a payload, or None for a tombstone. Raises Misfit."""
        if payload is None:
            return None
        start = payload.find(_SEAM) + len(_SEAM)
        schema = self._schemas.get(payload[:start])
        if schema and payload.endswith(b"}"):
            text = payload[start:-1]
            # Whatever else is behind the envelope would make it no JSON by itself.
            if event := _event(text):
                return Envelope(text, event, schema)
        return self._opened(payload)

    def _opened(self, payload: bytes) -> Envelope | None:
        found = _loaded(payload)
        if found.keys() != _WRAPPED:
            return Envelope(payload, _checked(payload, found))
        written = members(utf8_text(payload))
        schema, text = written["schema"], written["payload"]
        if found["payload"] is None:
            return None
        if not isinstance(found["payload"], dict):
            raise Misfit("not_an_object", "expected an object").within("payload")
        event = _checked(text.content, found["payload"])
        if not isinstance(found["schema"], dict):
            return Envelope(text.content, event)
        if len(self._schemas) >= _MOST_SCHEMAS:
            self._schemas.clear()
        # Kept for the only way in which Kafka Connect writes it.
        if text.before.endswith(_SEAM):
            self._schemas[text.before] = schema.content
        return Envelope(text.content, event, schema.content)


def _event(text: bytes) -> dict[str, Any] | None:
    """What the text says, if it is an envelope by itself."""
    try:
        event = None if too_deep(text) else orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("op"), str) else None


def _loaded(payload: bytes) -> dict[str, Any]:
    found = loaded(payload)
    return found if isinstance(found, dict) else parse(payload)


def _checked(text: bytes, found: dict[str, Any]) -> dict[str, Any]:
    if isinstance(found.get("op"), str):
        return found
    parse(text)
    raise no_envelope()


def no_envelope() -> Misfit:
    """The misfit of what is no change event."""
    return Misfit("not_an_envelope", 'expected a change event with a text `op`, such as "c", "u" or "d"')


@dataclass(frozen=True)
class Member:
    """The text of a value, and all that stands before it."""

    before: bytes
    content: bytes


def members(text: str) -> dict[str, Member]:
    """The members of an object that is known to be JSON. Raises Misfit for a key that comes twice."""
    decoder = json.JSONDecoder()
    found: dict[str, Member] = {}
    at = _skip(text, text.index("{") + 1)
    while text[at] != "}":
        key, at = decoder.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, at = decoder.raw_decode(text, start)
        if key in found:
            raise doubled_key(key)
        found[key] = Member(text[:start].encode(), text[start:at].encode())
        at = _skip(text, at)
        at = _skip(text, at + 1) if text[at] == "," else at
    return found


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at
