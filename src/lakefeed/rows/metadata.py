"""Metadata columns: where each row came from, beside the row."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import METADATA
from lakefeed.events import ORIGIN
from lakefeed.pipeline.options.metadata import MetadataColumns
from lakefeed.rows import Rows, StepResult

_ORIGINS = dict(zip(METADATA.names, ORIGIN.names, strict=True))
"""What of the origin each metadata column holds: `_topic` is the stream."""


class AddMetadata:
    """Adds the columns that say where each row came from."""

    def __init__(self, metadata: MetadataColumns) -> None:
        self._metadata = metadata

    def __call__(self, rows: Rows) -> StepResult:
        """The rows with the metadata columns."""
        return StepResult(rows.of(add_metadata(rows.batch, rows.shown(), self._metadata)))


def add_metadata(rows: pa.RecordBatch, origin: pa.RecordBatch, metadata: MetadataColumns) -> pa.RecordBatch:
    """The rows with the metadata columns; `origin` has the origin of each row, in the same order."""
    columns = [origin.column(_ORIGINS[name]) for name in METADATA.names if name in metadata.columns]
    if metadata.document:
        columns.append(_documents(origin))
    schema = pa.schema([*rows.schema, *metadata.schema])
    return pa.RecordBatch.from_arrays([*rows.columns, *columns], schema=schema)


def _documents(origin: pa.RecordBatch) -> pa.Array:
    """Each origin as JSON text: times as RFC 3339, bytes as base64."""
    moments = pc.strftime(
        origin.column("timestamp").cast(pa.timestamp("us")), "%Y-%m-%dT%H:%M:%S", locale="C"
    )
    pieces = [
        '{"topic":',
        _each_once(origin.column("stream"), json.dumps),
        ',"partition":',
        _or_null(origin.column("partition").cast(pa.string())),
        ',"offset":',
        _or_null(origin.column("offset").cast(pa.string())),
        ',"timestamp":',
        _or_null(pc.binary_join_element_wise('"', moments, 'Z"', "")),
        ',"key":',
        _or_null(_texts(origin.column("key"), _key)),
        ',"headers":',
        _or_null(_texts(origin.column("headers"), _headers)),
        "}",
    ]
    return pc.binary_join_element_wise(*pieces, "")


def _or_null(texts: pa.Array) -> pa.Array:
    return texts.fill_null("null")


def _each_once(column: pa.Array, write: Any) -> pa.Array:
    """The texts of a column in which few values are many times."""
    encoded = column.dictionary_encode()
    texts = pa.array([write(value) for value in encoded.dictionary.to_pylist()], pa.string())
    return _or_null(texts.take(encoded.indices))


def _texts(column: pa.Array, write: Any) -> pa.Array:
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.string())
    return pa.array([None if value is None else write(value) for value in column.to_pylist()], pa.string())


def _key(value: bytes) -> str:
    return f'"{base64.b64encode(value).decode()}"'


def _headers(value: list[dict[str, Any]]) -> str:
    plain = [{"key": one["key"], "value": _base64(one["value"])} for one in value]
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False)


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
