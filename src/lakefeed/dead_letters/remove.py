"""Dead letters leave their table in one commit, however many conditions say which ones.

The conditions are functions of columns: SQL about the offsets of thousands of files crashes delta-rs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lakefeed.dead_letters.find import DeadLetterFilter, Mask, stored_dead_letters
from lakefeed.errors import Fenced
from lakefeed.files.parquet import FileTarget
from lakefeed.handles.tables import Tables
from lakefeed.tables.data_files import data_files
from lakefeed.tables.log.vector import read_vector
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.commit import commit
from lakefeed.tables.write.mode import Change

_RETRIES = 5

Chosen = Callable[[pa.RecordBatch], Mask]
"""Which of some dead letters are meant, by their columns."""


def remove(
    tables: Tables,
    wanted: DeadLetterFilter | None,
    commit_info: Mapping[str, Any],
    transactions: Mapping[str, int],
    chosen: Chosen | None = None,
    columns: Sequence[str] = (),
) -> int | None:
    """Delete dead letters and set positions in one commit; how many they were.

    None where another process has set these positions first. `chosen` tells which of the letters that are
    wanted go, and sees `columns` of them. Without `wanted`, the positions alone are set.
    """
    # Modes that take rows out are imported where some go.
    from lakefeed.tables.write.keyed.layout import Edit
    from lakefeed.tables.write.removal import NO_ROWS, RemovalMode

    def mask(wanted: DeadLetterFilter, rows: pa.RecordBatch) -> Mask:
        meant = wanted.mask(rows, tables.pipeline.name)
        if chosen is not None and meant.any():
            # Rows of kafka-delta-ingest have nothing in the columns that it goes by.
            meant[meant] = chosen(rows.filter(pa.array(meant)))
        return meant

    def target(shape: Shape) -> FileTarget:
        # With columns that others have added: rows that stay keep their values.
        sync, columns = tables.dead_letters.sync, shape.partition_columns
        return FileTarget(shape.schema, partition_columns=columns, properties=shape.properties, sync=sync)

    def find(table: LakeTable) -> list[Edit]:
        edits: list[Edit] = []
        if wanted is None:
            return edits
        names = sorted({"pipeline", *wanted.columns, *columns})
        for file in data_files(table):
            masks = [mask(wanted, rows) for rows in stored_dead_letters(tables, file.path, names)]
            gone = np.flatnonzero(np.concatenate(masks)) if masks else NO_ROWS
            if file.vector is not None:
                gone = np.setdiff1d(gone, read_vector(table.store, file.vector))
            if len(gone):
                edits.append(Edit(file, gone, NO_ROWS, is_sorted=True))
        return edits

    dead_letters = tables.dead_letters.table
    expected = {name: dead_letters.transactions.get(name) for name in transactions}
    mode = RemovalMode(target, "pipeline", find)
    try:
        commit(dead_letters, Change([], transactions, expected, commit_info), mode, retries=_RETRIES)
    except Fenced:
        return None
    return mode.count
