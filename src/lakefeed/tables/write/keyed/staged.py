"""Staged changes are read again, on the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakefeed.columns.staged import KEYS, staged_schema
from lakefeed.errors import TableError
from lakefeed.files import WrittenFile
from lakefeed.stores import parallel_map, store_errors
from lakefeed.tables.data_files import open_data
from lakefeed.tables.file_rows import conformed
from lakefeed.tables.log.entry import read_entry
from lakefeed.tables.table import LakeTable, commit_info_of
from lakefeed.tables.write.keyed.keys import in_one_piece, one_array
from lakefeed.tables.write.mode import FORMER_KEYS_KIND

_SEPARATOR = "\x1f"


def staged_keys(table: LakeTable, files: Sequence[WrittenFile]) -> tuple[str, ...]:
    """The names of the key columns that the changes of a batch have brought; none where all truncate.

    Raises TableError where they differ.
    """

    def read(file: WrittenFile) -> set[tuple[str, ...]]:
        with store_errors(table.path), open_data(table.store, file.path) as stream:
            names = one_array(pq.ParquetFile(stream).read(columns=[KEYS]).column(0))
            joined = pc.binary_join(names.drop_null(), _SEPARATOR)
            return {tuple(one.split(_SEPARATOR)) for one in joined.unique().to_pylist()}

    found = set[tuple[str, ...]]().union(*parallel_map(table.store, read, files))
    if len(found) > 1:
        raise TableError(
            f"{table.path}: the keys of the events differ: {sorted(found)}.\n"
            "Name the columns of the key with `keys`."
        )
    return next(iter(found), ())


def logged_keys(table: LakeTable) -> tuple[str, ...]:
    """The names of the key columns that the newest changes have brought, by the log, if any."""
    return key_commit(table)[0]


def key_commit(table: LakeTable) -> tuple[tuple[str, ...], Mapping[str, Sequence[int]]]:
    """The key columns of the newest commit that names some, and the offsets that it has read."""
    version = table.version
    while version >= 0:
        with store_errors(table.path):
            try:
                info = commit_info_of(read_entry(table.store, version, positions_only=True).info)
            except FileNotFoundError:
                # The log was cleaned up to here.
                break
        if (keys := info.get("keys")) and info.get("kind") != FORMER_KEYS_KIND:
            return tuple(keys), info.get("ranges") or {}
        # What a rewind or a restore has undone says nothing of the rows that are there.
        back_to = {"rewind": info.get("to"), "restore": info.get("to_version")}.get(str(info.get("kind")))
        version = version - 1 if back_to is None else int(back_to)
    return (), {}


def read_staged(table: LakeTable, files: Sequence[WrittenFile]) -> pa.Table:
    """The changes of a batch, in no order."""
    schema = staged_schema(table.schema)

    def read(file: WrittenFile) -> list[pa.RecordBatch]:
        with store_errors(table.path), open_data(table.store, file.path) as stream:
            return [conformed(batch, schema) for batch in pq.ParquetFile(stream).read().to_batches()]

    batches = [batch for part in parallel_map(table.store, read, files) for batch in part]
    rows, batches = pa.Table.from_batches(batches, schema), []
    return in_one_piece(rows)
