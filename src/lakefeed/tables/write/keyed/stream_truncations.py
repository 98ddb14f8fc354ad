"""Truncations of one of several streams that a table takes: deletions of the rows of that stream."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.staged import DELETE, OP, TRUNCATE
from lakefeed.tables.data_files import data_files, read_rows
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed import HistoryRules, KeyRules
from lakefeed.tables.write.keyed.fold import ops
from lakefeed.tables.write.keyed.keys import Numbers, taken


def with_stream_truncations(table: LakeTable, changes: pa.Table, rules: KeyRules) -> pa.Table:
    """The changes of a batch, where a truncation deletes each row of its stream, in the table or the batch.

    The rows of other streams stay, and so do their changes from before it that come later.
    """
    truncates = ops(changes) == TRUNCATE
    if rules.stream not in rules.keys or not truncates.any():
        return changes
    own = taken(changes, np.flatnonzero(~truncates))
    found = [own]
    for at in np.flatnonzero(truncates).tolist():
        stream = changes.column(rules.stream)[at]
        there = [_keys_of(one, rules, stream) for one in own.to_batches()]
        keys = _distinct([*there, *_stored_keys(table, rules, stream)], changes, rules)
        found.append(_deletions(changes, at, keys))
    return pa.concat_tables(found).combine_chunks()


def _stored_keys(table: LakeTable, rules: KeyRules, stream: pa.Scalar) -> list[pa.Table]:
    """The keys of the rows of a stream that a table has; of a history, of those that hold now."""
    if table.is_emptied:
        return []
    until = [rules.valid_to] if isinstance(rules, HistoryRules) else []
    schema = pa.schema([table.schema.field(name) for name in (*rules.keys, *until)])
    found = []
    for batch in read_rows(table, data_files(table), schema):
        held = batch.filter(batch.column(until[0]).is_null()) if until else batch
        found.append(_keys_of(held, rules, stream))
    return found


def _keys_of(rows: pa.RecordBatch, rules: KeyRules, stream: pa.Scalar) -> pa.Table:
    of_stream = pc.fill_null(pc.equal(rows.column(rules.stream), stream), False)
    return pa.Table.from_batches([rows.select(list(rules.keys)).filter(of_stream)])


def _distinct(keys: list[pa.Table], changes: pa.Table, rules: KeyRules) -> pa.Table:
    schema = pa.schema([changes.schema.field(name) for name in rules.keys])
    every = pa.concat_tables([schema.empty_table(), *(one.cast(schema) for one in keys)])
    return every.group_by(list(rules.keys)).aggregate([]).select(list(rules.keys))


def _deletions(changes: pa.Table, at: int, keys: pa.Table) -> pa.Table:
    """A deletion of each key at the position of a truncation."""
    indexes: Numbers = np.full(keys.num_rows, at)
    rows = taken(changes, indexes)
    values = {name: keys.column(name) for name in keys.schema.names}
    values[OP] = pa.chunked_array([pa.array(np.full(keys.num_rows, DELETE, np.int8))])
    for name, column in values.items():
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(index), column)
    return rows
