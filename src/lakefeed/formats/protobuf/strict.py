"""The strict path: one payload at a time, which decides what is a row and why the rest is not.

The payload is walked to find what is wrong with it and where, then Protobuf's own parser reads the values.
"""

from __future__ import annotations

from typing import Any

from lakefeed.formats.fit.times import FIRST_US, LAST_US
from lakefeed.formats.protobuf import message as pb
from lakefeed.formats.protobuf.fields import NANOS, SECONDS_OF_DURATION
from lakefeed.formats.protobuf.json import json_text
from lakefeed.formats.protobuf.message import Field, Form, Message
from lakefeed.formats.protobuf.walk import Walk
from lakefeed.formats.refusal import Misfit


class StrictReader:
    """Reads payloads of one message type, exactly and slowly."""

    def __init__(self, message: Message) -> None:
        from google.protobuf.message_factory import GetMessageClass

        self._message = message
        self._parse = GetMessageClass(message.descriptor).FromString

    def read(self, payload: bytes) -> tuple[dict[str, Any], dict[str, list[bytes]]]:
        """The row, and by path the bytes of fields that the message does not have. Raises Misfit."""
        from google.protobuf.message import DecodeError

        walk = Walk(payload)
        walk.message(self._message, 0, len(payload), ())
        try:
            parsed = self._parse(payload)
        except DecodeError as error:
            raise Misfit("bad_protobuf", f"not a message {self._message.name}: {error}") from None
        return _fields(self._message, parsed), walk.unknown


def _fields(message: Message, parsed: Any) -> dict[str, Any]:
    row = {}
    for field in message.fields:
        try:
            row[field.name] = _field(field, parsed)
        except Misfit as misfit:
            raise misfit.within(field.name) from None
    return row


def _field(field: Field, parsed: Any) -> Any:
    if not field.repeated and not field.implicit and not parsed.HasField(field.name):
        return None
    value = getattr(parsed, field.name)
    if field.is_map:
        assert field.message is not None
        item = field.message.fields[1]
        return sorted((_key_text(key), _value(item, value[key])) for key in value)
    return [_value(field, each) for each in value] if field.repeated else _value(field, value)


def _key_text(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _value(field: Field, value: Any) -> Any:
    if field.message:
        return _message(field.message, value)
    return field.names.get(value, str(value)) if field.type == pb.ENUM else value


def _message(message: Message, value: Any) -> Any:
    if message.form is Form.STRUCT:
        return _fields(message, value)
    if message.form is Form.JSON:
        return json_text(message, value)
    if message.form is Form.EMPTY:
        return True
    if message.form is Form.WRAPPED:
        return value.value
    seconds, nanos = value.seconds, value.nanos
    if message.form is Form.TIMESTAMP:
        if FIRST_US // 10**6 <= seconds <= LAST_US // 10**6 and 0 <= nanos < NANOS:
            return seconds * 10**6 + nanos // 1000
        expected = "a timestamp of the years 1 to 9999"
    else:
        agree = seconds * nanos >= 0
        if abs(seconds) <= SECONDS_OF_DURATION and abs(nanos) < NANOS and agree:
            return seconds * 10**6 + int(nanos / 1000)
        expected = "a duration of at most 10000 years"
    raise Misfit("bad_protobuf", f"expected {expected}, got {seconds} seconds and {nanos} nanoseconds")
