"""Messages of `.proto` text for tests, and random ones."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from lakefeed.formats.protobuf.proto.files import Files, read_files

_INTEGERS = {3: (64, True), 16: (64, True), 18: (64, True), 4: (64, False), 6: (64, False)} | {
    **dict.fromkeys((5, 15, 17), (32, True)),
    **dict.fromkeys((7, 13), (32, False)),
}
_MOMENTS = [(0, 0), (-1, 999), (1_700_000_000, 1), (-62_135_596_800, 0), (253_402_300_799, 999_999_999)]
_DURATIONS = [(0, 0), (5, 1999), (-5, -1999), (0, -1), (315_576_000_000, 0)]


def message_class(file: Path, name: str) -> Any:
    """The class of a message in a `.proto` file or a descriptor set."""
    return GetMessageClass(Files(read_files(file)).descriptor(name))


def filled(random: Random, message: Any, depth: int = 0) -> Any:
    """The message with values in about half of its fields."""
    special = {"Timestamp": _MOMENTS, "Duration": _DURATIONS}.get(message.DESCRIPTOR.name)
    if special:
        message.seconds, message.nanos = random.choice(special)
        return message
    for field in message.DESCRIPTOR.fields:
        if random.random() < (0.5 if depth < 3 else 0.9):
            continue
        if field.is_repeated:
            _fill_repeated(random, message, field, depth)
        elif field.message_type:
            inner = getattr(message, field.name)
            inner.SetInParent()
            filled(random, inner, depth + 1)
        else:
            setattr(message, field.name, _value(random, field))
    return message


def _fill_repeated(random: Random, message: Any, field: Any, depth: int) -> None:
    values = getattr(message, field.name)
    entry = field.message_type if field.message_type and field.message_type.GetOptions().map_entry else None
    for _ in range(random.choice([0, 1, 2, 5])):
        if entry:
            key, item = _value(random, entry.fields[0]), entry.fields[1]
            if item.message_type:
                filled(random, values[key], depth + 1)
            else:
                values[key] = _value(random, item)
        elif field.message_type:
            filled(random, values.add(), depth + 1)
        else:
            values.append(_value(random, field))


def _value(random: Random, field: Any) -> Any:
    kind = field.type
    if kind in _INTEGERS:
        bits, signed = _INTEGERS[kind]
        number = random.choice([0, 1, 127, 128, 2**31 - 1, 2**bits - 1, random.getrandbits(bits)])
        number &= 2**bits - 1
        return number - (1 << bits) if signed and number >> (bits - 1) else number
    if kind in (1, 2):
        return random.choice([0.0, 1.5, -2.25, float("inf"), 3.0e38 if kind == 2 else random.random()])
    if kind == 8:
        return random.random() < 0.5
    if kind == 9:
        return random.choice(["", "a", "größe", "🦆" * 5, "x" * 200])
    if kind == 12:
        return random.randbytes(random.randrange(20))
    return random.choice([*field.enum_type.values_by_number, *([] if field.enum_type.is_closed else [9, -7])])


def mangled(random: Random, payload: bytes, others: list[bytes]) -> bytes:
    """The payload with something wrong or odd in it."""
    at = random.randrange(len(payload) + 1)
    kind = random.randrange(4)
    if kind == 0:
        return payload[:at] + bytes([random.randrange(256)]) + payload[at + 1 :]
    if kind == 1:
        return payload[:at]
    return payload[:at] + random.randbytes(2) + payload[at:] if kind == 2 else payload + random.choice(others)
