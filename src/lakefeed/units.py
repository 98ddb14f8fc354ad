"""Durations such as `5s` and sizes such as `128MB`, as they are written in the pipeline file."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo, WithJsonSchema

from lakefeed.text import shown

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}

_DURATION_PATTERN = r"^\d+(\.\d+)?(ms|s|m|h|d)$"
_SHARE_PATTERN = r"^\d+(\.\d+)?%$"
_SIZE_PATTERN = r"^\d+(\.\d+)?([KMGT]?B)?$"


def parse_duration(text: str) -> float:
    """Seconds of `500ms 5s 10m 2h 7d`; ValueError for anything else, zero included."""
    match = re.fullmatch(_DURATION_PATTERN[1:-1], text.strip())
    if match is None:
        raise ValueError(
            f"expected a duration such as 500ms, 5s, 10m, 2h or 7d, got {shown(text)}{_unit_hint(text)}"
        )
    unit = match[2]
    amount = float(text.strip().removesuffix(unit))
    # Thousandths are divided, not multiplied, so that 200ms is 0.2 and not 0.2000...01.
    seconds = amount / 1000 if unit == "ms" else amount * _SECONDS[unit]
    if seconds <= 0:
        raise ValueError(f"expected a duration longer than zero, got {shown(text)}")
    return seconds


def _unit_hint(text: str) -> str:
    number = re.fullmatch(r"\d+(\.\d+)?", text.strip())
    return f"; write {number[0]}s for seconds" if number else ""


def parse_size(text: str) -> int:
    """Bytes of `64KB 128MB 1GB` (1 KB is 1024 bytes) or of a plain number; ValueError for anything else."""
    match = re.fullmatch(_SIZE_PATTERN[1:-1], text.strip(), re.IGNORECASE)
    if match is None:
        raise ValueError(f"expected a size such as 64KB, 128MB or 1GB, got {shown(text)}")
    unit = match[2] or ""
    amount = float(text.strip()[: len(text.strip()) - len(unit)]) * _BYTES[unit.upper() or "B"]
    if amount < 1 or amount != int(amount):
        raise ValueError(f"expected a whole number of bytes, at least 1, got {shown(text)}")
    return int(amount)


def format_duration(seconds: float) -> str:
    """The shortest text that `parse_duration` reads back as the same number of seconds."""
    for unit in ("d", "h", "m", "s"):
        if seconds >= _SECONDS[unit] and seconds % _SECONDS[unit] == 0:
            return f"{int(seconds // _SECONDS[unit])}{unit}"
    if seconds >= 1:
        return f"{seconds!r}s"
    milliseconds = round(seconds * 1000, 6)
    return f"{int(milliseconds) if milliseconds == int(milliseconds) else milliseconds!r}ms"


def format_size(size: int) -> str:
    """The shortest text that `parse_size` reads back as the same number of bytes."""
    for unit in ("TB", "GB", "MB", "KB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return f"{size}B"


def format_share(share: float) -> str:
    """The text that `parse_share` reads back as the same share."""
    return f"{round(share * 100, 6):g}%"


def parse_share(text: str) -> float:
    """The number of `50%` or `2.5%`; ValueError for anything else, and for 0% and more than 100%."""
    match = re.fullmatch(_SHARE_PATTERN[1:-1], text.strip())
    share = float(text.strip()[:-1]) / 100 if match else 0.0
    if not 0 < share <= 1:
        raise ValueError(f"expected a share of more than 0% and at most 100%, such as 50%, got {shown(text)}")
    return share


def _read_share(value: object, info: ValidationInfo) -> float:
    if isinstance(value, str):
        return parse_share(value)
    # In a file, 50 could be meant as 50% and 0.5 as half; in code, a number is a share.
    if (
        info.context is None
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 < value <= 1
    ):
        return float(value)
    raise ValueError(f"expected a share with its sign, such as 50%, got {shown(value)}")


def _read_duration(value: object, info: ValidationInfo) -> float:
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, timedelta):
        value = value.total_seconds()
    elif info.context is not None and isinstance(value, int | float) and not isinstance(value, bool):
        # In a file, 5 could be meant as seconds or as milliseconds; in code, the type says seconds.
        raise ValueError(f"expected a duration with its unit, got {value}; write {value}s for seconds")
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    raise ValueError(f"expected a duration such as 500ms, 5s, 10m, 2h or 7d, got {shown(value)}")


def _read_duration_or_zero(value: object, info: ValidationInfo) -> float:
    is_zero = isinstance(value, str) and re.fullmatch(r"0+(\.0+)?(ms|s|m|h|d)", value.strip())
    is_none = info.context is None and type(value) in (int, float) and value == 0
    return 0.0 if is_zero or is_none else _read_duration(value, info)


def _read_size(value: object) -> int:
    if isinstance(value, str):
        return parse_size(value)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ValueError(f"expected a size such as 64KB, 128MB or 1GB, got {shown(value)}")


Duration = Annotated[
    float,
    BeforeValidator(_read_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "format": "lakefeed-duration", "pattern": _DURATION_PATTERN}),
]
"""Seconds. Text with a unit in the file; in code also a number of seconds or a timedelta."""

DurationOrZero = Annotated[
    float,
    BeforeValidator(_read_duration_or_zero),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "format": "lakefeed-duration", "pattern": _DURATION_PATTERN}),
]
"""The same, and no time at all: `0s`."""

Size = Annotated[
    int,
    BeforeValidator(_read_size),
    PlainSerializer(format_size, return_type=str),
    WithJsonSchema({"type": ["string", "integer"], "format": "lakefeed-size", "pattern": _SIZE_PATTERN}),
]
"""Bytes. Text with a unit or a plain number of bytes."""

Share = Annotated[
    float,
    BeforeValidator(_read_share),
    PlainSerializer(format_share, return_type=str),
    WithJsonSchema({"type": "string", "format": "lakefeed-share", "pattern": _SHARE_PATTERN}),
]
"""A part of 1. Text with a percent sign in the file; in code also a number."""
