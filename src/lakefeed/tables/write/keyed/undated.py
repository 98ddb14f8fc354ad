"""Deletions without a sequence: each has that of the newest change of its key that came before it.

So a tombstone of a compacted topic deletes what was there when it came, and what comes later and is older
stays deleted. Where nothing is known of its key, it is older than everything.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakefeed.columns.staged import DELETE, OFFSET, OP, ORDINAL, PARTITION, TOMBSTONE
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.fold import ops
from lakefeed.tables.write.keyed.keys import KeyIndex, Mask, Numbers, one_array, ranks, taken
from lakefeed.tables.write.keyed.lookup import find, matched


def with_dated_deletions(
    table: LakeTable, changes: pa.Table, rules: KeyRules, tombstones: pa.Table, *, replayed: bool
) -> pa.Table:
    """The changes of a batch, where every deletion has a sequence if one is known.

    What is sent again came before everything of its key, so nothing gives it one.
    """
    undated = ops(changes) == TOMBSTONE
    if not undated.any():
        return changes
    at = changes.schema.get_field_index(OP)
    plain = np.where(undated, DELETE, ops(changes)).astype(np.int8)
    changes = changes.set_column(at, changes.schema.field(at), pa.array(plain))
    if replayed or not rules.sequence_by:
        return changes
    index = KeyIndex(changes.filter(pa.array(undated)), rules.keys)
    known = [_there(table, changes, rules, index), (index.find(tombstones), _times(tombstones, rules))]
    *ranked, own = ranks(*(times for _, times in known), _times(changes, rules))
    offsets = np.cumsum([0, *(times.num_rows for _, times in known)])
    newest, latest = np.full(len(index), -1, np.int64), np.full(len(index), -1, np.int64)
    for (numbers, _), rank, offset in zip(known, ranked, offsets, strict=False):
        _newest(numbers, rank, offset + np.arange(len(rank)), newest, latest)
    numbers = index.find(changes)
    chosen, rank = _before(changes, numbers, own, undated)
    numbers = numbers[undated]
    best = np.where(rank > newest[numbers], offsets[-1] + chosen, latest[numbers])
    every = pa.concat_tables([*(times for _, times in known), _times(changes, rules)])
    source = np.arange(len(undated)) + offsets[-1]
    source[undated] = best
    for name in rules.sequence_by:
        column = one_array(every.column(name)).take(pa.array(source, mask=source < 0))
        at = changes.schema.get_field_index(name)
        changes = changes.set_column(at, changes.schema.field(at), column)
    return changes


def _times(rows: pa.Table, rules: KeyRules) -> pa.Table:
    return rows.select(list(rules.sequence_by))


def _there(table: LakeTable, changes: pa.Table, rules: KeyRules, index: KeyIndex) -> tuple[Numbers, pa.Table]:
    """The rows of the table that have one of these keys: the number of the key, and the sequence."""
    asked = taken(changes, np.flatnonzero(index.find(changes) >= 0))
    found = find(table, asked.select(list(rules.keys)), index)
    return found.numbers, matched(table, found.matches, _times(changes, rules).schema)


def _newest(numbers: Numbers, rank: Numbers, own: Numbers, newest: Numbers, latest: Numbers) -> None:
    """Note for each key the largest rank so far, and the index that has it."""
    order = np.argsort(rank, kind="stable")
    order = order[(numbers >= 0)[order]]
    order = order[rank[order] > newest[numbers[order]]]
    # Of several of one key, the largest is assigned last.
    newest[numbers[order]], latest[numbers[order]] = rank[order], own[order]


def _before(changes: pa.Table, numbers: Numbers, rank: Numbers, undated: Mask) -> tuple[Numbers, Numbers]:
    """For each undated deletion the change of its key in its partition, before it, with the largest rank."""
    (partition,), (position,) = (ranks(changes.select(one)) for one in ([PARTITION], [OFFSET, ORDINAL]))
    order = np.lexsort((position, partition, numbers))
    others = [np.diff(column[order], prepend=-2) != 0 for column in (numbers, partition)]
    group = np.cumsum(others[0] | others[1])
    value = np.where(undated | (numbers < 0), -1, rank)[order]
    width = int(rank.max(initial=0)) + 2
    # Groups ascend, so that the largest so far is that of the own group.
    running = np.maximum.accumulate(group * width + value + 1)
    best = running - group * width - 1
    # The last change in a group that has raised the largest so far.
    raised = np.where(np.diff(running, prepend=-1) > 0, np.arange(len(order)), 0)
    holder = order[np.maximum.accumulate(raised)]
    found, largest = np.full(len(rank), -1, np.int64), np.full(len(rank), -1, np.int64)
    found[order], largest[order] = holder, best
    return found[undated], largest[undated]
