"""Rows that are counted: of each key, how many there are, as changes make them more and fewer.

No change is newer than another here: each counts once. A change that is sent again must not come here.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakefeed.columns.staged import DELETE, OP, PARTITION, UPSERT
from lakefeed.errors import TableError
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.fold import truncation_in
from lakefeed.tables.write.keyed.keys import KeyIndex, Numbers, by_position, one_array, ranks, taken
from lakefeed.tables.write.keyed.lookup import find, matched
from lakefeed.tables.write.spread import Spread


def with_counts(
    table: LakeTable, changes: pa.Table, rules: KeyRules, source: str | None, spread: Spread
) -> pa.Table:
    """One change for each key whose number of rows is another one behind the batch, and truncations.

    Raises TableError where a key would have less than no row.
    """
    assert rules.counts is not None
    truncation, undone = truncation_in(changes, rules)
    own = np.arange(changes.num_rows) if undone is None else np.flatnonzero(~undone)
    rows = taken(changes, own)
    index = KeyIndex(rows, rules.keys)
    before = np.zeros(len(index), np.int64)
    if truncation is None and len(index):
        found = find(table, rows.select(list(rules.keys)), index, spread=spread)
        there = matched(table, found.matches, pa.schema([table.schema.field(rules.counts)]))
        np.add.at(before, found.numbers, _numbers(there, rules.counts))
    after = before.copy()
    np.add.at(after, index.numbers, _numbers(rows, rules.counts))
    if (after < 0).any():
        first = int(np.flatnonzero(after[index.numbers] < 0)[0])
        raise _unknown_row(table, source, rows.column(PARTITION)[first].as_py())
    (sequence,) = ranks(rows.select(list(rules.sequence_by)))
    order = np.lexsort((by_position(rows), sequence, index.numbers))
    last = np.searchsorted(index.numbers[order], np.arange(len(index)), side="right") - 1
    differs = np.flatnonzero(after != before)
    counted = taken(rows, order[last[differs]])
    kinds = np.where(after[differs] > 0, UPSERT, DELETE).astype(np.int8)
    counted = _with_column(counted, OP, pa.array(kinds))
    counted = _with_column(counted, rules.counts, pa.array(after[differs]))
    if undone is None:
        return counted
    return pa.concat_tables([taken(changes, np.flatnonzero(undone)), counted])


def _numbers(rows: pa.Table, name: str) -> Numbers:
    found: Numbers = one_array(rows.column(name)).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _with_column(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), values)


def _unknown_row(table: LakeTable, source: str | None, partition: str) -> TableError:
    stream = partition.partition(":")[0]
    return TableError(
        f"{table.path}: {stream} had a row that has changed or was deleted, and the table does not have it: "
        "the row was a dead letter, or columns were added with a default, renamed or dropped since it was "
        f"read. Nothing was written.\nTo replace all rows by those of the database: lakefeed snapshot FILE "
        f"--source {source} --stream {stream} --yes"
    )
