"""The change data feed: what an entry changes, row by row, with how a row was before and after.

Without these files a reader would take every row that was copied for deleted and inserted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lakefeed.files import WrittenFile
from lakefeed.files.parquet import FileTarget, write_files
from lakefeed.tables.log.change_feed import TYPE
from lakefeed.tables.log.listing import CHANGES
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed.keys import KeyIndex, Mask, one_array, taken
from lakefeed.tables.write.keyed.layout import Edit
from lakefeed.tables.write.keyed.lookup import rows_at


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


def _changes(table: LakeTable, edits: Sequence[Edit], rows: pa.Table, same: Sequence[str]) -> list[pa.Table]:
    parts = [rows_at(table, edit.file, edit.gone, table.schema) for edit in edits]
    gone = pa.concat_tables([table.schema.empty_table(), *parts]).combine_chunks()
    new = KeyIndex(_flat(rows, same), _flat(rows, same).schema.names)
    numbers = new.find(_flat(gone, same))
    before = np.zeros(len(numbers), np.bool_)
    # Of several that leave for one that comes, one was its state before.
    before[np.unique(numbers, return_index=True)[1]] = True
    before &= numbers >= 0
    after: Mask = np.isin(new.numbers, numbers[before])
    return [
        _typed(gone, before, "update_preimage"),
        _typed(rows, after, "update_postimage"),
        _typed(gone, ~before, "delete"),
        _typed(rows, ~after, "insert"),
    ]


def _flat(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The columns that tell rows apart; of a struct, its fields."""
    columns: list[pa.Array] = []
    for name in names:
        column = one_array(rows.column(name))
        columns += column.flatten() if pa.types.is_struct(column.type) else [column]
    return pa.table(columns, names=[str(at) for at in range(len(columns))])


def _typed(rows: pa.Table, chosen: Mask, kind: str) -> pa.Table:
    some = taken(rows, np.flatnonzero(chosen))
    return some.append_column(TYPE, pa.array([kind] * some.num_rows, pa.string()))
