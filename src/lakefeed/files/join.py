"""Files of one table become fewer and larger ones, before any of them is in the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefeed.columns.mapping import physical_schema, relabelled
from lakefeed.columns.partition_values import value_of
from lakefeed.files import WrittenFile
from lakefeed.files.names import Serial
from lakefeed.files.parquet import FileTarget, write_files
from lakefeed.stores import store_errors, store_path

_BATCH_ROWS = 100_000


def join_files(
    store: pafs.FileSystem, target: FileTarget, files: Iterable[WrittenFile], serial: Serial
) -> list[WrittenFile]:
    """Write the rows of some files into new ones, as the target says; files of one partition come together.

    The old files stay: whoever commits the new ones deletes them.
    """
    pieces = (rows for file in files for rows in _rows(store, target.schema, file))
    return write_files(store, target, pieces, serial)


def _rows(store: pafs.FileSystem, schema: pa.Schema, file: WrittenFile) -> Iterator[pa.Table]:
    """The rows of a file with all columns of the table, those of the partition among them."""
    own = pa.schema([field for field in schema if field.name not in file.partition_values])
    stored = physical_schema(own)
    with store_errors(store_path(store)), store.open_input_file(file.path) as stream:
        for batch in pq.ParquetFile(stream).iter_batches(batch_size=_BATCH_ROWS):
            rows = relabelled(pa.Table.from_batches([batch]).select(stored.names).cast(stored), own)
            columns = [
                pa.repeat(value_of(file.partition_values[field.name], field.type), rows.num_rows)
                if field.name in file.partition_values
                else rows.column(field.name)
                for field in schema
            ]
            yield pa.Table.from_arrays(columns, schema=schema)
