"""The events of a body: one JSON object, an array of them, or a line for each; byte for byte as they came."""

from __future__ import annotations

import re
from collections.abc import Callable
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
_FORM = "application/x-www-form-urlencoded"
_UNSAID = frozenset({"", "application/octet-stream", "text/plain", _FORM})
_BETWEEN_OBJECTS = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\{")
MOST_NAMED = 100
"""Bad records that an answer names."""
LARGE = 256 * 1024
"""Bytes from which on a text is taken apart outside of the loop, and what that costs is counted before."""
MOST_RECORDS = 500_000
"""Records of one request."""
_RECORD = 100
"""Bytes of memory that a record costs in addition to its text."""
_SIGNS = {b"{": 240, b"[": 64, b",": 60, b":": 60}
"""Bytes of memory that a parsed text costs for each of these signs in it, at most."""

Charge = Callable[[int], None]
"""Counts bytes of memory before they are taken, and gives back those of a negative number. Raises Refusal
where they cannot be had."""


def _free(_: int) -> None:
    return


@dataclass(slots=True)
class Records:
    """The payloads of a request, and which of them are no JSON objects."""

    payloads: Payloads
    rejected: list[dict[str, Any]] = field(default_factory=list)
    """`{"index": 3, "error": "..."}`, the first hundred."""
    bad: int = 0
    is_cut: bool = False
    """Whether the rest was not looked at: so many are bad that nothing is taken."""
    digest: str = ""
    """Of the body, decompressed; empty for a request without an idempotency key."""

    def reject(self, index: int, error: str, **where: int) -> None:
        """Take note of a bad record."""
        self.bad += 1
        if len(self.rejected) < MOST_NAMED:
            self.rejected.append({"index": index, **where, "error": error})


def records(body: bytes, content_type: str, charge: Charge = _free, *, strict: bool = False) -> Records:
    """Tell the events of a body apart. Raises Refusal where that is not possible.

    With `strict`, a body is not looked at any further once an answer can name no more bad records.
    """
    kind = _kind(content_type)
    text = body.strip(SPACE)
    if not text:
        raise Refusal(
            400, "the body is empty", "send a JSON object, an array of them, or one object per line"
        )
    if kind in _NDJSON:
        return _lines(body, charge, strict=strict)
    if text.startswith(b"["):
        return _array(text) if len(text) < LARGE else _large_array(text, charge, strict=strict)
    _refuse_form(kind, text)
    if kind in _JSON or b"\n" not in text:
        return _one(text, charge)
    try:
        if len(text) >= LARGE and _is_json(text.partition(b"\n")[0], charge):
            return _lines(body, charge, strict=strict)
        return _one(text, charge)
    except Refusal as refusal:
        if refusal.status != 400:
            raise
        # Not one object over several lines, so a line for each.
        return _lines(body, charge, strict=strict)


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


def _one(text: bytes, charge: Charge) -> Records:
    try:
        flaw = _flaw(text, charge)
    except orjson.JSONDecodeError as error:
        raise _no_json(error) from None
    found = Records(Payloads.of((text,)))
    if flaw:
        found.reject(0, flaw)
    return found


def _lines(body: bytes, charge: Charge, *, strict: bool) -> Records:
    if len(body) >= LARGE:
        count = body.count(b"\n") + 1
        if count > MOST_RECORDS:
            raise _too_many()
        charge(count * _RECORD + len(body))
    texts: list[bytes] = []
    found = Records(Payloads.of(()))
    for number, line in enumerate(body.split(b"\n"), 1):
        text = line.strip(SPACE)
        if text:
            _check(found, len(texts), text, charge, line=number)
            texts.append(text)
        if strict and found.bad >= MOST_NAMED:
            found.is_cut = True
            break
    found.payloads = Payloads.of(texts)
    return found


def _check(found: Records, index: int, text: bytes, charge: Charge, **where: int) -> None:
    """Take note of a record that is no JSON object."""
    try:
        flaw = _flaw(text, charge)
    except orjson.JSONDecodeError as error:
        flaw = f"not JSON: {error}"
    if flaw:
        found.reject(index, flaw, **where)


def _is_json(text: bytes, charge: Charge) -> bool:
    try:
        _flaw(text, charge)
    except orjson.JSONDecodeError:
        return False
    return True


def _flaw(text: bytes, charge: Charge) -> str:
    """Why a JSON text is no object; empty where it is one. What parsing costs is given back."""
    cost = parsing_cost(text, 0, len(text)) if len(text) >= LARGE else 0
    charge(cost)
    try:
        value = orjson.loads(text)
        return "" if type(value) is dict else _no_object(value)
    finally:
        charge(-cost)


def parsing_cost(text: bytes, start: int, end: int) -> int:
    """Bytes of memory that the values in a part of a text cost, at most."""
    return end - start + sum(cost * text.count(sign, start, end) for sign, cost in _SIGNS.items())


def _large_array(text: bytes, charge: Charge, *, strict: bool) -> Records:
    """The items one by one: all at once would take many times the memory of the text."""
    try:
        scan = ArrayScan(text, MOST_RECORDS)
    except OverflowError:
        raise _too_many() from None
    if scan.start != 0 or scan.end != len(text) - 1:
        # Parsed as a whole, it says what is wrong.
        _one(text, charge)
        raise Refusal(400, "the body is not one JSON array", "send one array, without anything around it")
    bounds = list(zip(*scan.bounds(), strict=True))
    charge(len(bounds) * _RECORD + len(text))
    texts: list[bytes] = []
    found = Records(Payloads.of(()))
    for start, end in bounds:
        item = text[start:end].strip(SPACE)
        if len(bounds) == 1 and not item:
            break
        try:
            flaw = _flaw(item, charge)
        except orjson.JSONDecodeError:
            line = text.count(b"\n", 0, start) + 1
            what = f"the body is not JSON: item {len(texts)} of the array cannot be read"
            raise Refusal(400, what, "send an array of JSON objects", line=line) from None
        if flaw:
            found.reject(len(texts), flaw)
        texts.append(item)
        if strict and found.bad >= MOST_NAMED:
            found.is_cut = True
            break
    found.payloads = Payloads.of(texts)
    return found


def _array(text: bytes) -> Records:
    try:
        values = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _no_json(error) from None
    bad: list[int] = []
    if set(map(type, values)) != {dict}:
        bad = [index for index, value in enumerate(values) if type(value) is not dict]
    found = Records(_items(text, len(values), objects=not bad) if values else Payloads.of(()))
    if len(found.payloads) != len(values):
        raise RuntimeError(f"an array of {len(values)} was cut into {len(found.payloads)}")
    for index in bad:
        found.reject(index, _no_object(values[index]))
    return found


def _no_json(error: orjson.JSONDecodeError) -> Refusal:
    return Refusal(
        400,
        f"the body is not JSON: {error}",
        "send a JSON object, an array of them, or one object per line with the type application/x-ndjson",
        line=error.lineno,
    )


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


def _too_many() -> Refusal:
    """More records than may be in one request."""
    return Refusal(413, f"the body has more than {MOST_RECORDS:,} records", "send fewer events in a request")


def _refuse_form(kind: str, text: bytes) -> None:
    """Name the remedy where a webhook sends its JSON inside of a form, as GitHub does by default."""
    if kind == _FORM and text.startswith(b"payload="):
        raise Refusal(
            415,
            "the body is a form with the JSON in its field `payload`",
            "set the content type of the webhook to application/json",
        )


def _no_object(value: Any) -> str:
    kinds = {list: "an array", str: "text", bool: "a boolean", int: "a number", float: "a number"}
    return f"expected a JSON object, got {kinds.get(type(value), 'null')}"
