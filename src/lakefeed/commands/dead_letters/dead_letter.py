"""One dead letter as people read it: what came, where from, and what was wrong with it."""

from __future__ import annotations

import base64
import datetime as dt
import json
from typing import Any

import pyarrow as pa

from lakefeed.commands.output import printable

_MOST_BYTES = 4_096
_HEX_WIDTH = 16


def dead_letter_records(letters: pa.Table) -> list[dict[str, Any]]:
    """Dead letters for programs: bytes as text where they are text, else as base64."""
    # As text: a timestamp may be beyond the range of Python.
    moments = letters.column("timestamp").cast(pa.timestamp("us")).cast(pa.string()).to_pylist()
    records: list[dict[str, Any]] = letters.drop_columns(["timestamp"]).to_pylist()
    for record, moment in zip(records, moments, strict=True):
        record["dead_at"] = in_utc(record["dead_at"])
        record["timestamp"] = moment.replace(" ", "T") + "Z" if moment else None
        for name in ("key", "payload"):
            record |= _text_or_base64(name, record.pop(name))
        headers = record.pop("headers")
        record["headers"] = headers and [
            {"key": one["key"], **_text_or_base64("value", one["value"])} for one in headers
        ]
    return records


def dead_letter_lines(record: dict[str, Any]) -> list[str]:
    """One dead letter for people."""
    where = (
        f"{record['topic']}-{record['partition']}" if record["topic"] else f"partition {record['partition']}"
    )
    lines = [
        f"{record['table']} <- {record['source']} {printable(where)} at offset {record['offset']}, "
        f"dead since {record['dead_at']}",
        f"  {record['stage']}/{record['code']}: {printable(record['error'])}",
    ]
    if record["timestamp"]:
        lines.append(f"  timestamp: {record['timestamp']}")
    key = record.get("key") or record.get("key_base64")
    lines += [f"  key: {printable(key)}"] if key else []
    for one in record["headers"] or ():
        value = one.get("value") or one.get("value_base64") or ""
        lines.append(f"  header {printable(one['key'])}: {printable(value)}")
    return [*lines, *(f"  {line}" for line in _payload(record)), ""]


def in_utc(moment: dt.datetime) -> str:
    """A time as `2026-11-15T10:00:00Z`."""
    return moment.astimezone(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _text_or_base64(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _payload(record: dict[str, Any]) -> list[str]:
    if "payload_base64" in record:
        return _hex(base64.b64decode(record["payload_base64"]))
    text = record["payload"]
    if text is None:
        return ["payload: none"]
    try:
        pretty = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        pretty = text
    cut = pretty[:_MOST_BYTES]
    lines = [printable(line) for line in cut.splitlines()]
    more = [f"... {len(pretty) - len(cut):,} characters more"] if len(cut) < len(pretty) else []
    return [f"payload, {len(text.encode()):,} bytes:", *(f"  {line}" for line in lines), *more]


def _hex(value: bytes) -> list[str]:
    lines = [f"payload, {len(value):,} bytes, not text:"]
    for at in range(0, min(len(value), _MOST_BYTES), _HEX_WIDTH):
        part = value[at : at + _HEX_WIDTH]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"  {at:08x}  {part.hex(' '):<{_HEX_WIDTH * 3}} {shown}")
    return lines + ([f"... {len(value) - _MOST_BYTES:,} bytes more"] if len(value) > _MOST_BYTES else [])
