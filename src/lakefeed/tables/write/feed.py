"""The change data feed: what an entry changes, row by row, with how a row was before and after.

Without these files a reader would take every row that was copied for deleted and inserted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.files import WrittenFile
from lakefeed.files.parquet import FileTarget, write_files
from lakefeed.tables.log.change_feed import TYPE
from lakefeed.tables.log.listing import CHANGES
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed.keys import KeyIndex, Mask, joined, one_array
from lakefeed.tables.write.keyed.layout import Edit
from lakefeed.tables.write.keyed.lookup import rows_at

_PIECE_ROWS = 250_000
"""So many rows of a file are held at a time."""


def write_feed(
    table: LakeTable, target: FileTarget, edits: Sequence[Edit], rows: pa.Table, same: Sequence[str]
) -> list[WrittenFile]:
    """Write what becomes of the rows that leave and those that come.

    Rows with the same values in the columns `same` are one row before and after. Raises what writing raises,
    and leaves nothing behind then.
    """
    schema = pa.schema([*table.schema, pa.field(TYPE, pa.string())])
    told = replace(target, schema=schema, sort_by=(), folder=f"{CHANGES}/", prefix="cdc")
    parts = (part.cast(schema) for part in _changes(table, edits, rows, same))
    return write_files(table.store, told, parts)


def _changes(
    table: LakeTable, edits: Sequence[Edit], rows: pa.Table, same: Sequence[str]
) -> Iterator[pa.Table]:
    """The rows that leave, file by file, and those that come."""
    columns = pa.schema([table.schema.field(name) for name in same])
    new = KeyIndex(_flat(rows, same), _flat(rows, same).schema.names)
    numbers = [new.find(_flat(rows_at(table, edit.file, edit.gone, columns), same)) for edit in edits]
    every = joined(numbers)
    before = np.zeros(len(every), np.bool_)
    # Of several that leave for one that comes, one was its state before.
    before[np.unique(every, return_index=True)[1]] = True
    before &= every >= 0
    ends = np.cumsum([len(one) for one in numbers])[:-1]
    for edit, own in zip(edits, np.split(before, ends) if edits else [], strict=True):
        gone = edit.gone
        for start in range(0, len(gone), _PIECE_ROWS):
            at = slice(start, start + _PIECE_ROWS)
            left = rows_at(table, edit.file, gone[at], table.schema)
            yield _typed(left, own[at], "update_preimage", "delete")
    after: Mask = np.isin(new.numbers, every[before])
    for start in range(0, rows.num_rows, _PIECE_ROWS):
        at = slice(start, start + _PIECE_ROWS)
        yield _typed(rows.slice(start, _PIECE_ROWS), after[at], "update_postimage", "insert")


def _flat(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The columns that tell rows apart; of a struct, its fields."""
    columns: list[pa.Array] = []
    for name in names:
        column = one_array(rows.column(name))
        columns += column.flatten() if pa.types.is_struct(column.type) else [column]
    return pa.Table.from_arrays(columns, names=[str(at) for at in range(len(columns))])


def _typed(rows: pa.Table, chosen: Mask, kind: str, other: str) -> pa.Table:
    return rows.append_column(TYPE, pc.if_else(pa.array(chosen), kind, other))
