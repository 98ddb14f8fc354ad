"""Staged changes are read again, on the driver."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakefeed.columns.staged import KEYS, staged_schema
from lakefeed.errors import TableError
from lakefeed.files import WrittenFile
from lakefeed.stores import store_errors
from lakefeed.tables.data_files import open_data
from lakefeed.tables.file_rows import conformed
from lakefeed.tables.table import LakeTable, commit_info_of
from lakefeed.tables.write.keyed.keys import one_array

_SEPARATOR = "\x1f"


def staged_keys(table: LakeTable, files: Sequence[WrittenFile]) -> tuple[str, ...]:
    """The names of the key columns that the changes of a batch have brought; none where all truncate.

    Raises TableError where they differ.
    """
    found: set[tuple[str, ...]] = set()
    for file in files:
        with store_errors(table.path), open_data(table.store, file.path) as stream:
            names = one_array(pq.ParquetFile(stream).read(columns=[KEYS]).column(0))
            joined = pc.binary_join(names.drop_null(), _SEPARATOR)
            found |= {tuple(one.split(_SEPARATOR)) for one in joined.unique().to_pylist()}
    if len(found) > 1:
        raise TableError(
            f"{table.path}: the keys of the events differ: {sorted(found)}.\n"
            "Name the columns of the key with `keys`."
        )
    return next(iter(found), ())


def logged_keys(table: LakeTable) -> tuple[str, ...]:
    """The names of the key columns that the newest changes have brought, by the log, if any."""
    for info in table.delta.history():
        if keys := commit_info_of(info).get("keys"):
            return tuple(keys)
    return ()


def read_staged(table: LakeTable, files: Sequence[WrittenFile]) -> pa.Table:
    """The changes of a batch, in no order."""
    schema = staged_schema(table.schema)
    batches = []
    for file in files:
        with store_errors(table.path), open_data(table.store, file.path) as stream:
            for batch in pq.ParquetFile(stream).read().combine_chunks().to_batches():
                batches.append(conformed(batch, schema))
    return pa.Table.from_batches(batches, schema).combine_chunks()
