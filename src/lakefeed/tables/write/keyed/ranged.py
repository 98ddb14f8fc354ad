"""What a large batch makes of a table: decided range by range of its keys, and written as one entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from lakefeed.columns.staged import (
    DELETE,
    PARTITION,
    TOMBSTONE,
    TRUNCATE,
    UPSERT,
    staged_schema,
)
from lakefeed.files import WrittenFile
from lakefeed.stores import drop_files
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.backwards import newest_changes
from lakefeed.tables.write.keyed.binlogs import has_binlog_positions
from lakefeed.tables.write.keyed.decision import Decision
from lakefeed.tables.write.keyed.fold import newest_truncation, ops, undone_by
from lakefeed.tables.write.keyed.layout import Edit, Written
from lakefeed.tables.write.keyed.ranges import (
    KeyRanges,
    SpilledRows,
    range_count,
    spilled,
    staged_batches,
)
from lakefeed.tables.write.keyed.tombstones import TombstoneWriter
from lakefeed.tables.write.keyed.tombstones.event_times import oldest_events
from lakefeed.tables.write.keyed.truncation import truncation_of

_SHARED = -1
"""Stands for the range of a file that has rows of several ranges."""
_WITHIN_A_KEY = frozenset((UPSERT, DELETE, TRUNCATE, TOMBSTONE))
"""What changes may do that are decided in ranges: a move is about two keys."""


@dataclass
class SplitBatch:
    """The changes of a large batch by ranges of their keys, on the driver's disk."""

    ranges: KeyRanges
    changes: SpilledRows
    truncations: pa.Table
    undone: int = 0
    """Changes that are left out as a truncation of the batch undoes them."""
    oldest: Mapping[str, int] = field(default_factory=dict)
    """The oldest event of each clock."""
    newest: pa.Table | None = None
    """The partition and the sequence of the newest change of each partition."""


@contextmanager
def split_batch(
    table: LakeTable,
    files: Sequence[WrittenFile],
    rules: KeyRules,
    source: str | None,
    limit: int,
    *,
    undoes: bool,
) -> Iterator[SplitBatch | None]:
    """The changes of a batch of more than `limit` bytes; None where it has to be decided as a whole.

    With `undoes`, changes that a truncation of the batch undoes are left out.
    """
    count = range_count(table, files, limit)
    if count < 2:
        yield None
        return
    schema = staged_schema(table.schema)
    with spilled(schema) as changes:
        batch = SplitBatch(KeyRanges(table, files, rules.keys, count), changes, schema.empty_table())
        if batch.ranges.truncates:
            parts = (rows.filter(pa.array(ops(rows) == TRUNCATE)) for rows in staged_batches(table, files))
            batch.truncations = pa.concat_tables(parts).combine_chunks()
        # What counts rows has to know whether those of the table count, and a truncation of one of several
        # streams deletes rows of all ranges.
        is_whole = batch.ranges.truncates and (rules.counts is not None or rules.stream is not None)
        is_split = not is_whole and _split(table, files, rules, source, batch, undoes=undoes)
        yield batch if is_split else None


def _split(
    table: LakeTable,
    files: Sequence[WrittenFile],
    rules: KeyRules,
    source: str | None,
    batch: SplitBatch,
    *,
    undoes: bool,
) -> bool:
    """Put the changes of a batch into their ranges; whether each range can be decided by itself."""
    names, oldest = [PARTITION, *rules.sequence_by], dict[str, int]()
    newest = batch.truncations.schema.empty_table().select(names)
    last = newest_truncation(batch.truncations, rules) if undoes else batch.truncations[:0]
    for rows in staged_batches(table, files):
        kinds = {*np.unique(ops(rows)).tolist()}
        # A deletion without a sequence has that of a change that a truncation may undo.
        if not kinds <= _WITHIN_A_KEY or (TOMBSTONE in kinds and batch.truncations.num_rows):
            return False
        if has_binlog_positions(rows, rules.positions):
            return False
        for clock, at in oldest_events(rows, source).items():
            oldest[clock] = min(at, oldest.get(clock, at))
        if rules.ties_by_position:
            newest = newest_changes(pa.concat_tables([newest, rows.select(names)]))
        keyed = rows.filter(pa.array(ops(rows) != TRUNCATE))
        if last.num_rows:
            left = keyed.filter(pa.array(~undone_by(last, keyed, rules)))
            batch.undone += keyed.num_rows - left.num_rows
            keyed = left
        batch.ranges.split([keyed], batch.changes)
    batch.changes.close()
    batch.oldest, batch.newest = oldest, newest
    return True


@dataclass(frozen=True)
class RangeSteps:
    """How a mode decides ranges, one after the other, and writes them."""

    decide: Sequence[Callable[[], Decision]]
    check: Callable[[Decision], None]
    """Raises where what all ranges together make of the table must not be."""
    write: Callable[[Decision], Written]
    feed: Callable[[Decision], Sequence[WrittenFile]]


@dataclass(frozen=True)
class RangedEntry:
    """What all ranges together make of the table; nothing of it is in the table yet."""

    decision: Decision
    """The sums of all ranges, without their rows; of the tombstones, the truncations."""
    written: Written
    feed: Sequence[WrittenFile]


@dataclass
class _Edits:
    """What happens to each file, by its path."""

    edits: dict[str, Edit] = field(default_factory=dict)
    ranges: dict[str, int] = field(default_factory=dict)

    def add(self, number: int, edits: Sequence[Edit]) -> None:
        for edit in edits:
            path = edit.file.path
            before = self.edits.get(path)
            if before is None:
                self.edits[path], self.ranges[path] = edit, number
                continue
            # Rows of several ranges leave the file. What comes for them gets files of its own.
            gone, own = np.union1d(before.gone, edit.gone), np.zeros(0, np.int64)
            self.edits[path] = replace(before, gone=gone, own=own)
            self.ranges[path] = _SHARED

    def of(self, number: int) -> list[Edit]:
        return [edit for path, edit in self.edits.items() if self.ranges[path] == number]


def write_ranges(
    table: LakeTable, rules: KeyRules, steps: RangeSteps, tombstones: TombstoneWriter
) -> RangedEntry:
    """Decide and write range after range. Leaves nothing behind where it raises."""
    edits, feed, parts = _Edits(), list[WrittenFile](), list[Written]()
    try:
        with spilled(table.schema) as rows:
            decision = _decided(table, rules, steps, tombstones, rows, edits, feed)
            steps.check(decision)
            for number in range(len(steps.decide)):
                own = replace(decision, edits=edits.of(number), rows=rows.rows(number))
                parts.append(steps.write(own))
            parts.append(steps.write(replace(decision, edits=edits.of(_SHARED))))
    except BaseException:
        _drop(table, parts, feed, tombstones)
        raise
    return RangedEntry(decision, _together(parts), feed)


def _decided(
    table: LakeTable,
    rules: KeyRules,
    steps: RangeSteps,
    tombstones: TombstoneWriter,
    rows: SpilledRows,
    edits: _Edits,
    feed: list[WrittenFile],
) -> Decision:
    counts, unknown = Counter[str](), set[tuple[str, int, int]]()
    looked_at = come = 0
    truncations: list[pa.Table] = []
    for number, decide in enumerate(steps.decide):
        decision = decide()
        counts.update(decision.counts)
        unknown |= decision.unknown
        looked_at += decision.looked_at
        truncations.append(truncation_of(decision.tombstones, rules))
        if not unknown:
            come += decision.rows.num_rows
            rows.add(number, decision.rows)
            edits.add(number, decision.edits)
            tombstones.write(decision.tombstones)
            feed += steps.feed(decision)
    rows.close()
    touched = come + sum(len(edit.gone) for edit in edits.edits.values())
    return Decision(
        [],
        table.schema.empty_table(),
        pa.concat_tables(truncations),
        dict(counts),
        touched,
        looked_at,
        None,
        frozenset(unknown),
    )


def _together(parts: Sequence[Written]) -> Written:
    more: Counter[str] = Counter()
    for part in parts:
        more.update(part.more)
    return Written(
        [file for part in parts for file in part.added],
        [file for part in parts for file in part.removed],
        sum(part.copied for part in parts),
        dict(more),
        [pair for part in parts for pair in part.marked],
        [path for part in parts for path in part.made],
    )


def _drop(
    table: LakeTable, parts: Sequence[Written], feed: Sequence[WrittenFile], tombstones: TombstoneWriter
) -> None:
    tombstones.abort()
    drop_files(table.store, (file.path for file in feed))
    for part in parts:
        drop_files(table.store, (*(file.path for file in part.added), *part.made))
