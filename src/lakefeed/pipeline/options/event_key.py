"""`key` of a source: how the keys of events are read, by which an event without a payload deletes a row."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from lakefeed.pipeline.connectors import Connector, FormatField
from lakefeed.text import one_of

ONE_VALUE = ("text", "int64")
"""Formats of keys that are one value, for a table whose key is one column."""

_FORMATS = ("json", "avro", "protobuf", *ONE_VALUE)


def _check(format: Connector) -> Connector:
    if format.type not in _FORMATS:
        raise ValueError(
            f"expected {one_of(_FORMATS)}, got {format.type}: a key has columns, or is one value"
        )
    if getattr(format, "decompress", None) is not None:
        raise ValueError("keys are not compressed; remove `decompress`")
    return format


KeyFormatField = Annotated[FormatField, AfterValidator(_check)]
"""The format of keys in the file: `json`, or a mapping with a `type` and options."""
