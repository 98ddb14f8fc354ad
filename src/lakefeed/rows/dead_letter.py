"""Dead letters: records that could not become rows, with their bytes, their origin and the reason."""

from __future__ import annotations

import codecs
import datetime as dt
from collections.abc import Sequence

import pyarrow as pa

from lakefeed.columns.column_types import TIMESTAMP
from lakefeed.events import ORIGIN, Refused

_PREVIEWED = 2000
"""Bytes of a payload that are shown to whoever looks at a run."""

_LONGEST_ERROR = 4000
"""Characters of an error that are kept: it may quote a payload, which the dead letter has in full."""

_ORIGIN = [field.with_name("topic") if field.name == "stream" else field for field in ORIGIN]
"""The stream of an origin is the `topic` of a dead letter."""

DEAD_LETTER_SCHEMA = pa.schema(
    [
        ("dead_at", TIMESTAMP),
        ("pipeline", pa.string()),
        ("source", pa.string()),
        ("table", pa.string()),
        ("stage", pa.string()),
        ("code", pa.string()),
        ("error", pa.string()),
        *_ORIGIN,
        ("payload", pa.binary()),
    ]
)
"""The columns of the table of dead letters."""

EVENT_TIMESTAMP = "event_timestamp"
"""The time of the event in a table in the form of kafka-delta-ingest, whose `timestamp` is another."""


def stored_name(name: str, *, ingest: bool) -> str:
    """What a column of a dead letter is called in its table."""
    return EVENT_TIMESTAMP if ingest and name == "timestamp" else name


def dead_letter_schema(*, ingest: bool, further: Sequence[str] = ()) -> pa.Schema:
    """The columns of the table of dead letters: Lakefeed's own, or with those of kafka-delta-ingest.

    `further` are columns that transforms make, which are texts unless the table has them already.
    """
    if not ingest:
        return DEAD_LETTER_SCHEMA
    theirs = [("base64_bytes", pa.string()), ("json_string", pa.string()), ("timestamp", TIMESTAMP)]
    own = [field.with_name(stored_name(field.name, ingest=True)) for field in DEAD_LETTER_SCHEMA]
    return pa.schema([*(pa.field(*one) for one in theirs), *own, *((name, pa.string()) for name in further)])


def dead_letters(
    pipeline: str,
    source: str,
    table: str,
    refused: Sequence[Refused],
    origin: pa.RecordBatch,
    payloads: Sequence[bytes | None],
    at: dt.datetime,
) -> pa.RecordBatch:
    """The rows of the dead-letter table, one for each refused record; all sequences have the same order."""
    count = len(refused)
    columns = {
        "dead_at": pa.repeat(pa.scalar(at, TIMESTAMP), count),
        "pipeline": pa.repeat(pipeline, count),
        "source": pa.repeat(source, count),
        "table": pa.repeat(table, count),
        "stage": pa.array([reason.stage for reason in refused], pa.string()),
        "code": pa.array([reason.code for reason in refused], pa.string()),
        "error": pa.array([_text(reason.error) for reason in refused], pa.string()),
        **{field.name: column for field, column in zip(_ORIGIN, origin.columns, strict=True)},
        "payload": pa.array(payloads, pa.binary()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=DEAD_LETTER_SCHEMA)


def preview(payload: bytes | None) -> str:
    """The beginning of a payload as people read it: text where it is some, else bytes in hexadecimal."""
    if payload is None:
        return "(no payload)"
    cut = payload[:_PREVIEWED]
    try:
        # A cut may fall inside a character, which is none that is wrong.
        text = codecs.getincrementaldecoder("utf-8")().decode(cut, final=len(cut) == len(payload))
        shown = "".join(one if one.isprintable() or one in "\n\t" else "\ufffd" for one in text)
    except UnicodeDecodeError:
        cut = payload[: _PREVIEWED // 4]
        shown = cut.hex(" ")
    more = f"\n({len(cut):,} of {len(payload):,} bytes)" if len(cut) < len(payload) else ""
    return shown + more


def _text(error: str) -> str:
    """An error as it is stored, its middle left out where it is long.

    It may quote a payload: a lone surrogate in it must not keep the dead letter from being written.
    """
    if len(error) > _LONGEST_ERROR:
        half, left_out = _LONGEST_ERROR // 2, len(error) - _LONGEST_ERROR
        error = f"{error[:half]} ... ({left_out:,} characters left out) ... {error[-half:]}"
    return error.encode("utf-8", "replace").decode()
