"""Staged changes are read again, on the driver."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lakefeed.columns.staged import staged_schema
from lakefeed.files import WrittenFile
from lakefeed.stores import store_errors
from lakefeed.tables.data_files import conformed, open_data
from lakefeed.tables.table import LakeTable


def read_staged(table: LakeTable, files: Sequence[WrittenFile]) -> pa.Table:
    """The changes of a batch, in no order."""
    schema = staged_schema(table.schema)
    batches = []
    for file in files:
        with store_errors(table.path), open_data(table.store, file.path) as stream:
            for batch in pq.ParquetFile(stream).read().combine_chunks().to_batches():
                batches.append(conformed(batch, schema, ()))
    return pa.Table.from_batches(batches, schema).combine_chunks()
