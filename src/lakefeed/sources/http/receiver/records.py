"""The events of a body: one JSON object, an array of them, or a line for each; byte for byte as they came."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson

from lakefeed.sources.http.journal.frame import Payloads
from lakefeed.sources.http.receiver.refusal import Refusal
from lakefeed.sources.json_array import SPACE, ArrayScan

_NDJSON = frozenset(
    {"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"}
)
_JSON = frozenset({"application/json", "text/json"})
# What clients send when nobody has told them a type: `curl -d` says that it is a form.
_UNSAID = frozenset({"", "application/octet-stream", "text/plain", "application/x-www-form-urlencoded"})
_BETWEEN_OBJECTS = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\{")
_MOST_TOLD = 100
"""Bad records that an answer names."""


@dataclass(slots=True)
class Records:
    """The payloads of a request, and which of them are no JSON objects."""

    payloads: Payloads
    rejected: list[dict[str, Any]] = field(default_factory=list)
    """`{"index": 3, "error": "..."}`, the first hundred."""
    bad: int = 0

    def reject(self, index: int, error: str, **where: int) -> None:
        """Take note of a bad record."""
        self.bad += 1
        if len(self.rejected) < _MOST_TOLD:
            self.rejected.append({"index": index, **where, "error": error})


def records(body: bytes, content_type: str) -> Records:
    """Tell the events of a body apart. Raises Refusal where that is not possible."""
    kind = _kind(content_type)
    text = body.strip(SPACE)
    if not text:
        raise Refusal(
            400, "the body is empty", "send a JSON object, an array of them, or one object per line"
        )
    if kind in _NDJSON:
        return _lines(body)
    if text.startswith(b"["):
        return _array(text)
    if kind in _JSON or b"\n" not in text:
        return _one(text)
    try:
        return _one(text)
    except Refusal:
        # Not one object over several lines, so a line for each.
        return _lines(body)


@lru_cache(maxsize=64)
def _kind(content_type: str) -> str:
    kind, _, parameters = content_type.lower().partition(";")
    kind = kind.strip()
    known = kind in _NDJSON or kind in _JSON or kind in _UNSAID or kind.endswith("+json")
    if not known:
        raise Refusal(
            415,
            f"the content type {kind[:100]} is not taken here",
            "send application/json or application/x-ndjson",
            headers={"Accept-Post": "application/json, application/x-ndjson"},
        )
    for parameter in parameters.split(";"):
        name, _, value = parameter.strip().partition("=")
        if name == "charset" and value.strip('"') not in ("utf-8", "utf8", "us-ascii"):
            raise Refusal(415, f"the charset {value[:50]} is not taken here", "send UTF-8")
    return "application/json" if kind.endswith("+json") else kind


def _one(text: bytes) -> Records:
    value = _parsed(text)
    found = Records(Payloads.of((text,)))
    if not isinstance(value, dict):
        found.reject(0, _no_object(value))
    return found


def _lines(body: bytes) -> Records:
    texts: list[bytes] = []
    bad: list[tuple[int, int, str]] = []
    for number, line in enumerate(body.split(b"\n"), 1):
        text = line.strip(SPACE)
        if not text:
            continue
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            bad.append((len(texts), number, f"not JSON: {error}"))
        else:
            if type(value) is not dict:
                bad.append((len(texts), number, _no_object(value)))
        texts.append(text)
    found = Records(Payloads.of(texts))
    for index, number, what in bad:
        found.reject(index, what, line=number)
    return found


def _array(text: bytes) -> Records:
    values = _parsed(text)
    bad: list[int] = []
    if set(map(type, values)) != {dict}:
        bad = [index for index, value in enumerate(values) if type(value) is not dict]
    found = Records(_items(text, len(values), objects=not bad) if values else Payloads.of(()))
    if len(found.payloads) != len(values):
        raise RuntimeError(f"an array of {len(values)} was cut into {len(found.payloads)}")
    for index in bad:
        found.reject(index, _no_object(values[index]))
    return found


def _parsed(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Refusal(
            400,
            f"the body is not JSON: {error}",
            "send a JSON object, an array of them, or one object per line with the type application/x-ndjson",
            line=error.lineno,
        ) from None


def _items(text: bytes, count: int, *, objects: bool) -> Payloads:
    """Cut a JSON array between its items: numbers keep their digits, and objects their repeated keys.

    Between two objects stands a comma between braces. If there are only so many of these, they are the cuts;
    else some of them stand inside of an object or of a text.
    """
    if objects:
        parts = _BETWEEN_OBJECTS.split(text[1:-1].strip(SPACE))
        if len(parts) == count:
            return Payloads.between_braces(parts)
    bounds = zip(*ArrayScan(text).bounds(), strict=True)
    return Payloads.of([text[start:end].strip(SPACE) for start, end in bounds])


def _no_object(value: Any) -> str:
    kinds = {list: "an array", str: "text", bool: "a boolean", int: "a number", float: "a number"}
    return f"expected a JSON object, got {kinds.get(type(value), 'null')}"
