"""Values of partition columns as the log of a table has them: written here and read here, by all.

Delta's log has every value as text. Readers differ in what they take: a zoneless timestamp must be written
with a blank, one with a zone is unambiguous only as ISO 8601 with `Z`, and the empty text means null.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from lakefeed.columns.column_types import type_text
from lakefeed.errors import TableError

NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
LONGEST_NAME = 255
"""So many bytes has the name of a directory at most, on every disk."""

_ZONED = re.compile(r"(Z|[+-]\d\d:?\d\d)$", re.IGNORECASE)


def value_text(value: Any) -> str | None:
    """A value in the words of the log; None for null, and for the empty text, which is null there."""
    match value:
        case None | "" | b"":
            return None
        case bool():
            return "true" if value else "false"
        case float():
            return _float_text(value)
        case Decimal():
            return f"{value:f}"
        case dt.datetime() if value.tzinfo:
            return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat() + "Z"
        case dt.datetime():
            return value.isoformat(sep=" ")
        case dt.date():
            return value.isoformat()
        case bytes():
            return _bytes_text(value)
        case _:
            return str(value)


def value_of(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """The value that a text of the log stands for, whoever wrote it. A timestamp without a zone is UTC."""
    if not text:
        return pa.nulls(1, kind)[0]
    try:
        if pa.types.is_timestamp(kind):
            return _timestamps(text, kind)[0]
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return pa.array([text.encode()], kind)[0]
        return pa.array([text]).cast(kind)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(
            f"the log has {text!r} as a partition value, which is no {type_text(kind)}.\n"
            "Rewrite the partition with the engine that wrote it."
        ) from error


def directory_name(column: str, text: str | None) -> str | None:
    """The name of a partition's directory, such as `day=2026-11-15`; None where none is short enough."""
    name = shortest_name(column, text)
    return name if len(name.encode()) <= LONGEST_NAME else None


def shortest_name(column: str, text: str | None) -> str:
    """The same however long it is.

    Some readers (Polars) take the value from here, so the name holds all of it. What takes more bytes than a
    name has gets its letters as they are, which is a third of the length; most readers bear that too.
    """
    value = NULL_DIRECTORY if text is None else text
    name = f"{quote(column, safe='')}={quote(value, safe='')}"
    return name if len(name) <= LONGEST_NAME else f"{_lettered(column)}={_lettered(value)}"


def _lettered(text: str) -> str:
    return "".join(each if ord(each) > 127 and each.isalpha() else quote(each, safe="") for each in text)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return str(value) if math.isfinite(value) else f"{'-' if value < 0 else ''}Infinity"


def _bytes_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise TableError(
            f"the partition value {value[:20]!r} is not UTF-8: a table's log cannot hold it.\n"
            "Partition by a column of another type."
        ) from None


def _timestamps(text: str, kind: pa.DataType) -> pa.Array:
    zoned = kind.tz is not None and _ZONED.search(text)
    # A text has no zone of its own, or it names one; the log means UTC.
    return pa.array([text]).cast(pa.timestamp(kind.unit, "UTC" if zoned else None)).cast(kind)
