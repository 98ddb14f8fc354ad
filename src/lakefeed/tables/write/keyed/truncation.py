"""Truncations: the rows of a table that are no newer than one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakefeed.tables.data_files import data_files, stored_row_count
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.log.vector import read_vector
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.keys import Numbers, joined, ranks
from lakefeed.tables.write.keyed.lookup import read_columns


def leaving(table: LakeTable, truncation: pa.Table, rules: KeyRules) -> dict[str, tuple[DataFile, Numbers]]:
    """The indexes of the rows that a truncation removes, by the path of their file.

    Without a sequence these are all rows: what is in the table came before it.
    """
    found = {}
    for file in data_files(table):
        if rules.sequence_by:
            indexes = _older(table, file, truncation.select(list(rules.sequence_by)))
        else:
            indexes = np.arange(stored_row_count(table.store, file), dtype=np.int64)
        if file.vector is not None:
            indexes = np.setdiff1d(indexes, read_vector(table.store, file.vector), assume_unique=True)
        found[file.path] = file, indexes
    return found


def truncation_of(tombstones: pa.Table, rules: KeyRules) -> pa.Table:
    """The truncations among tombstones: those without a key."""
    return tombstones.filter(tombstones.column(rules.keys[0]).is_null())


def leaves_rows(table: LakeTable, truncation: pa.Table, rules: KeyRules) -> bool:
    """Whether rows of the table are newer than a truncation."""
    for file, indexes in leaving(table, truncation, rules).values():
        deleted = 0 if file.vector is None else len(read_vector(table.store, file.vector))
        if len(indexes) + deleted < stored_row_count(table.store, file):
            return True
    return False


def _older(table: LakeTable, file: DataFile, edge: pa.Table) -> Numbers:
    schema = pa.schema([table.schema.field(name) for name in edge.schema.names])
    start, indexes = 0, []
    for batch in read_columns(table.store, file, schema):
        rows, limit = ranks(batch, edge)
        indexes.append(np.flatnonzero(rows <= limit[0]) + start)
        start += batch.num_rows
    return joined(indexes)
