"""Metadata columns: where each row came from, beside the row."""

from __future__ import annotations

import pyarrow as pa

from lakefeed.pipeline.types import METADATA


def add_metadata(rows: pa.RecordBatch, origin: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with the columns of `METADATA`; `origin` has the origin of each row, in the same order."""
    columns = [*rows.columns, *(origin.column(name.removeprefix("_")) for name in METADATA.names)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*rows.schema, *METADATA]))
