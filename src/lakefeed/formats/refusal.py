"""Why a payload did not become a row: the codes of all formats, and the words of the message."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from lakefeed.events import Refused

_DECODE = {
    "null_payload": "the event has no payload (null, as in a Kafka tombstone)",
    "bad_compression": "the payload is not compressed as `decompress` says, or is truncated or damaged",
    "too_large": "the payload has more than `max_payload` bytes when it is decompressed",
    "bad_framing": "the payload does not begin with a zero byte and the id of a schema",
    "unknown_schema": "the schema of the payload is unknown",
    "bad_schema": "this format cannot read the schema of the payload",
    "empty_payload": "the payload has no bytes",
    "not_utf8": "the payload is not UTF-8 text",
    "bad_length": "the payload does not have 8 bytes",
    "bad_json": "the payload is not well-formed JSON",
    "not_an_object": "the payload is JSON, but not an object",
    "duplicate_key": "an object in the payload has the same key twice",
    "too_deep": "the payload is nested more than 100 levels deep, or more than 20 in a new column",
    "other_message": "the payload is another message than the one in `message`",
    "bad_protobuf": "the payload is not a message of its type: truncated, damaged, or of another type",
    "not_an_envelope": "the payload is not a change event: it has no `op`",
    "no_row": "the change has no row before and no row after it, and `unwrap` needs one",
    "bad_csv": "a quote in the record is not closed, or text follows a closing quote",
    "many_records": "the payload has more than one record",
    "bad_avro": "the payload is not a record of its schema, is truncated, or has more bytes after the record",
    "bad_transform": "a `transform` of the table cannot be applied to the event",
    "bad_fields": "the record has more or fewer fields than `columns`",
}
_SCHEMA = {
    "wrong_type": "a value does not have the type of its column",
    "out_of_range": "a number or a time is outside the range of its column",
    "bad_timestamp": "a value is not an RFC 3339 timestamp",
    "bad_date": "a value is not a date written as YYYY-MM-DD",
    "bad_decimal": "a value is not a decimal number, or has more digits after the point than its column",
    "bad_base64": "a value of a binary column is not base64",
    "missing_value": "a column that is `not null` has no value",
    "bad_name": "a new field has a name that no column can have, or the event has two spellings of one name",
    "new_column": "the event has a field without a column in the table, and `evolve` does not allow that",
}
TYPE_CHANGES = frozenset(
    ("wrong_type", "out_of_range", "bad_timestamp", "bad_date", "bad_decimal", "bad_base64")
)
"""The codes of values that do not fit the type of their column."""

_ANY_FORMAT = (
    "null_payload",
    "bad_compression",
    "too_large",
    "wrong_type",
    "missing_value",
    "bad_name",
    "new_column",
)

FRAMED = ("bad_framing", "unknown_schema", "bad_schema")
"""The codes of payloads that name a schema of a registry."""
VALUES = ("out_of_range", "bad_timestamp", "bad_date", "bad_decimal")
"""The codes of values that every format which has texts and numbers may refuse."""

_LONGEST_VALUE = 80
_LONGEST_PATH = 200
_PLAIN_NAME = re.compile(r"[^\s.\[\]`]+")
_NAME = rf"`(?:[^`\\]|\\.)*`|{_PLAIN_NAME.pattern}"
_COLUMN = re.compile(rf"({_NAME})(?:\[\d+\]|\.(?:{_NAME}))*: ")
"""The beginning of a message about a path, as `path_text` writes it."""


def codes(*own: str) -> dict[str, str]:
    """What every code of a format means, in the order of the checks: its own, and those that all have."""
    known = {**_DECODE, **_SCHEMA}
    assert known.keys() >= set(own), own
    return {code: meaning for code, meaning in known.items() if code in {*own, *_ANY_FORMAT}}


class Number(str):
    """A JSON number as it is written, so that no digit is lost before its column is known."""

    __slots__ = ()


class Misfit(Exception):
    """A payload or a value that is refused. Containers put their part in front of `path` as it passes."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.path: list[str | int] = []

    def within(self, part: str | int) -> Misfit:
        """The same misfit, seen from the container that holds it under this name or index."""
        self.path.insert(0, part)
        return self

    def refused(self, index: int) -> Refused:
        """What the caller of the decoder gets for the payload at this index."""
        stage = "decode" if self.code in _DECODE else "schema"
        where = path_text(self.path)
        where = where if len(where) <= _LONGEST_PATH else where[: _LONGEST_PATH - 3] + "..."
        return Refused(index, stage, self.code, f"{where}: {self.message}" if where else self.message)


Misfits = dict[int, Misfit]
"""Payloads that are refused, by their index; the first reason counts. Several may share one misfit."""


def utf8_text(payload: bytes) -> str:
    """The text of a payload. Raises Misfit with the first byte that is not UTF-8."""
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        found = f"0x{payload[error.start]:02x}"
        raise Misfit("not_utf8", f"byte {error.start + 1}: {found} is not UTF-8") from None


def no_payload() -> Misfit:
    """The misfit of an event without payload, the same for every format."""
    return Misfit("null_payload", "the event has no payload")


def empty_payload() -> Misfit:
    """The misfit of a payload without bytes."""
    return Misfit("empty_payload", "the payload is empty")


def is_utf8(content: bytes) -> bool:
    """Whether these bytes are UTF-8 text."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def shown(value: Any) -> str:
    """A value as JSON text for a message, at most 80 characters of it, however large it is."""
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > _LONGEST_VALUE:
            return text[: _LONGEST_VALUE - 3] + "..."
    return text


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, Number):
        yield value[: _LONGEST_VALUE + 1]
    elif isinstance(value, str):
        # A lone surrogate could not be written to the dead letters, hence ASCII for such a string.
        head = value[: _LONGEST_VALUE + 1]
        yield json.dumps(head, ensure_ascii=not _is_unicode(head))
    elif isinstance(value, dict):
        for number, (key, member) in enumerate(value.items()):
            yield ", " if number else "{"
            yield from _pieces(key)
            yield ": "
            yield from _pieces(member)
        yield "}" if value else "{}"
    elif isinstance(value, list):
        for number, element in enumerate(value):
            yield ", " if number else "["
            yield from _pieces(element)
        yield "]" if value else "[]"
    else:
        yield json.dumps(value)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def path_text(path: list[str | int]) -> str:
    """A path in a payload, such as `meta.tags[1]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + name_text(part)
    return text


def refused_column(stage: str, error: str) -> str | None:
    """The column that the message of a refusal begins with; None where it names no column."""
    found = _COLUMN.match(error) if stage == "schema" else None
    return found[1] if found else None


def name_text(name: str) -> str:
    """A key for a message: as it is, or in backticks with escapes where it would not read well."""
    if len(name) < _LONGEST_VALUE and name.isprintable() and _PLAIN_NAME.fullmatch(name):
        return name
    return f"`{shown(name)[1:].removesuffix(chr(34))}`"
