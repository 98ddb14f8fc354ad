"""What a format makes of payloads: the rows of a table's columns, or why there is none."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakefeed.columns.column_types import declared_schema
from lakefeed.formats import Decoded, Format, JsonFormat


def decode(form: Format, columns: dict[str, str], *payloads: bytes | None) -> Decoded:
    return form.decoder(declared_schema(columns)).decode(payloads)


def proposed(*payloads: bytes | None) -> pa.Schema:
    """The columns that a table without any is to get for payloads in JSON."""
    return decode(JsonFormat(), {}, *payloads).unknown or pa.schema([])


def rows(form: Format, columns: dict[str, str], *payloads: bytes | None) -> list[dict[str, Any]]:
    """The rows of payloads of which none is refused."""
    decoded = decode(form, columns, *payloads)
    assert decoded.refused == []
    found: list[dict[str, Any]] = decoded.rows.to_pylist()
    return found


def refusal(form: Format, columns: dict[str, str], payload: bytes) -> tuple[str, str]:
    """Code and words with which a payload is refused."""
    [refused] = decode(form, columns, payload).refused
    return refused.code, refused.error
