"""Upsert: the newest change of each key is the row of the table, whatever order changes come in.

The driver folds the staged changes of a batch, finds the rows that they are about, and lets the layout of the
table write what becomes of them. All of it stands in one entry right behind the version that was examined; if
another writer was faster, it is decided anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from shlex import quote
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.staged import FORMER_KEYS, PARTITION
from lakefeed.errors import BatchFailed, TableError, UnknownValues
from lakefeed.files import WrittenFile
from lakefeed.files.parquet import FileTarget
from lakefeed.pipeline.options.changes import column_problems
from lakefeed.tables.data_files import data_files
from lakefeed.tables.log.change_feed import is_on
from lakefeed.tables.log.data_file import DataFile, row_count
from lakefeed.tables.positions import named_partition, tombstones_id
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.feed import write_feed
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.backwards import SEQUENCES, Backwards, Newest
from lakefeed.tables.write.keyed.binlogs import Numbered, say_what_has_begun, with_binlog_numbers
from lakefeed.tables.write.keyed.counted import with_counts
from lakefeed.tables.write.keyed.decision import Decision, decide
from lakefeed.tables.write.keyed.fold import Folded, fold, newest_truncation
from lakefeed.tables.write.keyed.keys import KeyIndex, Numbers
from lakefeed.tables.write.keyed.layout import Layout, Written
from lakefeed.tables.write.keyed.lookup import holds_any, rows_at
from lakefeed.tables.write.keyed.moved import with_values_before_moves
from lakefeed.tables.write.keyed.ranged import RangeSteps, SplitBatch, split_batch, write_ranges
from lakefeed.tables.write.keyed.ranges import RANGE_BYTES
from lakefeed.tables.write.keyed.staged import logged_keys, read_staged, staged_keys
from lakefeed.tables.write.keyed.stream_truncations import with_stream_truncations
from lakefeed.tables.write.keyed.tombstones import Remembered, Tombstones, TombstoneWriter
from lakefeed.tables.write.keyed.tombstones.event_times import oldest_events
from lakefeed.tables.write.keyed.tombstones.segments import Retype
from lakefeed.tables.write.keyed.truncation import leaves_rows, truncation_of
from lakefeed.tables.write.keyed.undated import with_dated_deletions
from lakefeed.tables.write.mode import (
    FORMER_KEYS_KIND,
    Change,
    NewEntry,
    Reloads,
    WriteMode,
    refuse_append_only,
)
from lakefeed.tables.write.reload import former_rows
from lakefeed.tables.write.spread import Spread, in_threads
from lakefeed.text import counted

Targets = Callable[[Shape], FileTarget]
"""How the files of a table of this shape are written."""


class UpsertMode:
    """Applies changes by key. One object for one table and process."""

    kind = "upsert"
    spread: Spread = staticmethod(in_threads)
    """How work on many files is done; the engine may have more cores for it."""
    range_bytes = RANGE_BYTES
    """Bytes of changes that are decided at a time; a larger batch is decided in ranges of its keys."""
    _undoes = True
    """Whether changes count for nothing that a truncation of their batch undoes."""
    follows_keys = False
    """Whether the events may bring another key than before: what they name by the former one comes first."""
    _memory: type[Tombstones] = Tombstones

    def __init__(
        self,
        pipeline: str,
        rules: KeyRules,
        targets: Targets,
        layout: Layout,
        tombstones: float,
        retype: Retype,
    ) -> None:
        self._pipeline, self._rules, self._targets, self._layout = pipeline, rules, targets, layout
        self._age, self._retype = tombstones, retype
        self._tombstones = self._memory(rules, tombstones, pipeline, retype)
        self._brings_keys = not rules.keys
        self._folded: tuple[str, Folded] | None = None
        self._former: tuple[str, ...] | None = None
        """The keys of the changes that this mode applies, of those from before the source had another key."""
        self._before = 0
        """Changes of the batch that were applied by such keys in entries before, or counted with others."""
        self._oldest: Mapping[str, int] = {}
        """The oldest event of each clock in the batch that is applied."""
        self._remembered: Remembered | None = None
        self._numbered: Numbered | None = None
        """The changes of that batch, with the numbers of the binlogs that they come from."""
        self._backwards = Backwards(pipeline, rules.sequence_by) if rules.ties_by_position else None

    def check(self, shape: Shape, path: str) -> None:
        """Raise TableError for a table whose rows must stay, or that cannot have these keys."""
        refuse_append_only(shape, path, f"`mode: {self.kind}` changes rows", "`mode: append`")
        columns = {field.name: field for field in shape.schema}
        named = {"keys": self._rules.keys, "sequence_by": self._rules.sequence_by}
        for option, problem in column_problems(named, columns):
            raise TableError(f"{path}: `{option}`: {problem}")

    def before(self, change: Change) -> Sequence[tuple[Change, WriteMode]]:
        """Changes by keys that the source had before: their rows are found by those keys alone.

        They are applied without the positions of the batch: where the next entry does not follow, the batch
        is read again, and they change nothing.
        """
        if self._former is not None:
            return ()
        if change.becomes is not None and change.former_keys:
            # A later snapshot has the rows of these changes: they were made while it was taken.
            raise BatchFailed("the key and the types of a table have changed during its snapshot; read again")
        info = {name: one for name, one in change.commit_info.items() if name in ("pipeline", "source")}
        found = []
        for number, keys in enumerate(change.former_keys):
            rules = replace(self._rules, keys=keys)
            mode = type(self)(self._pipeline, rules, self._targets, self._layout, self._age, self._retype)
            mode._former, mode.spread = keys, self.spread
            token = f"{change.token}-{number}"
            found.append((replace(change, transactions={}, commit_info=info, token=token), mode))
        return found

    def entry(self, table: LakeTable, change: Change) -> NewEntry:
        """What the changes of a batch make of the version that the table stands at."""
        if not change.files:
            return NewEntry((), change.transactions, change.commit_info)
        whole = table
        if change.becomes is not None:
            table = table.emptied(change.becomes)
        if self._brings_keys and not self._learn_keys(table, change):
            return self._without_key(table, change)
        self.check(table.shape, table.path)
        gone: list[DataFile] = []

        def check(decision: Decision) -> None:
            self._refuse_unknown(table, decision)
            if change.reloads is not None:
                self._refuse_rows_that_stay(table, change.reloads, decision)
            if change.becomes is not None:
                gone.extend(self._replaced(whole, decision))

        if (ranged := self._in_ranges(table, change, check)) is not None:
            decision, written, feed, tombstones = ranged
        else:
            decision = self._decide(table, change)
            check(decision)
            written = self._write_rows(table, decision)
            feed = self._feed(table, decision)
            tombstones = self._tombstone_writer(change)
            tombstones.write(decision.tombstones)
        transactions = dict(change.transactions)
        made = [*(file.path for file in (*written.added, *feed)), *written.made]
        if written_tombstones := tombstones.close():
            transactions[tombstones_id(self._pipeline)], paths = written_tombstones
            made += paths
        assert self._numbered is not None
        transactions |= self._numbered.transactions
        told = self._told(table, change, decision, written)
        if gone:
            told["removed"] = {"files": len(gone), "rows": row_count(gone)}
        return NewEntry(
            written.added,
            transactions,
            told,
            [*written.removed, *gone],
            written.marked,
            feed,
            blind=False,
            made=made,
            meets=partial(self._meets, table, decision.index) if change.becomes is None else None,
            becomes=change.becomes,
            used=[file.path for file in change.files] if self._former is None else [],
        )

    def _refuse_unknown(self, table: LakeTable, decision: Decision) -> None:
        """Raise UnknownValues: the batch is staged again, with these values or without these changes."""
        if decision.unknown:
            self._folded = self._numbered = None
            raise UnknownValues(
                f"{table.path}: {counted(len(decision.unknown), 'change')} without all columns, and no row "
                "of the table has the others.\nUpdate these rows in the database once more.",
                decision.unknown,
            )

    def _tombstone_writer(self, change: Change) -> TombstoneWriter:
        assert self._remembered is not None
        return TombstoneWriter(self._remembered, change.commit_info.get("source"))

    def _in_ranges(
        self, table: LakeTable, change: Change, check: Callable[[Decision], None]
    ) -> tuple[Decision, Written, Sequence[WrittenFile], TombstoneWriter] | None:
        """What a large batch makes of the table; None where it is decided as a whole."""
        source, rules = change.commit_info.get("source"), self._rules
        if change.former_keys or change.reloads is not None:
            return None
        if not self._takes_several_streams(table, change):
            rules = replace(rules, stream=None)
        with split_batch(table, change.files, rules, source, self.range_bytes, undoes=self._undoes) as batch:
            if batch is None:
                return None
            self._folded, self._before, self._oldest = None, 0, batch.oldest
            self._numbered = Numbered(batch.newest, replayed=change.replayed, table=table.path)
            self._remembered = self._tombstones.load(table, self._oldest)
            tombstones = self._tombstone_writer(change)
            steps = RangeSteps(
                self._range_deciders(table, batch, change),
                check,
                partial(self._write_rows, table),
                partial(self._feed, table),
            )
            entry = write_ranges(table, rules, steps, tombstones)
        return entry.decision, entry.written, entry.feed, tombstones

    def _range_deciders(
        self, table: LakeTable, batch: SplitBatch, change: Change
    ) -> list[Callable[[], Decision]]:
        """What decides each range, after the truncation of the batch if it has one."""
        truncated: dict[str, tuple[DataFile, Numbers]] = {}
        others = batch.truncations.num_rows - 1 + batch.undone

        def truncate() -> Decision:
            newest = newest_truncation(batch.truncations, self._rules)
            decision = self._decide_range(table, newest, change)
            truncated.update({edit.file.path: (edit.file, edit.gone) for edit in decision.edits})
            return replace(decision, counts=_with_folded(decision.counts, others))

        def decide_range(number: int) -> Decision:
            before = truncated if batch.truncations.num_rows else None
            return self._decide_range(table, batch.changes.rows(number), change, before)

        deciders: list[Callable[[], Decision]] = [truncate] if batch.truncations.num_rows else []
        return [*deciders, *(partial(decide_range, number) for number in range(len(batch.ranges)))]

    def _decide_range(
        self,
        table: LakeTable,
        staged: pa.Table,
        change: Change,
        truncated: Mapping[str, tuple[DataFile, Numbers]] | None = None,
    ) -> Decision:
        """What the changes of one range of keys make of the version that the table stands at."""
        assert self._remembered is not None
        rules, replayed = self._rules, change.replayed
        tombstones = self._remembered.of(staged.select(list(rules.keys)))
        changes = with_dated_deletions(table, staged, rules, tombstones, replayed=replayed)
        if rules.counts is not None:
            changes = with_counts(table, changes, rules, change.commit_info.get("source"), self.spread)
        folded = fold(changes, rules)
        decision = decide(
            table, folded, rules, tombstones, replayed=replayed, spread=self.spread, truncated=truncated
        )
        others = staged.num_rows - changes.num_rows
        return replace(decision, counts=_with_folded(decision.counts, others))

    def _told(self, table: LakeTable, change: Change, decision: Decision, written: Written) -> dict[str, Any]:
        """The commit info."""
        assert self._numbered is not None
        counts = _with_folded(decision.counts, self._before)
        told = {**change.commit_info, "mode": self.kind, **counts, **_costs(decision, written)}
        if self._former is not None:
            told |= {"kind": FORMER_KEYS_KIND, "keys": list(self._former)}
        elif not change.replayed:
            told["kind"] = self.kind
        if self._brings_keys:
            told["keys"] = list(self._rules.keys)
        if self._numbered.begun:
            told["binlogs"] = dict(self._numbered.begun)
        if self._backwards is not None and not change.replayed:
            source, changes = str(change.commit_info.get("source")), self._numbered.changes
            told[SEQUENCES] = self._backwards.judge(table, source, changes, counts).told()
        if change.reloads is not None:
            told["reloaded"] = change.reloads.to_commit_info(decision.counts["applied"])
        told["rows"] = sum(file.rows for file in written.added)
        return told

    def _replaced(self, table: LakeTable, decision: Decision) -> list[DataFile]:
        """All files, which go with changes of other types. Raises TableError where these leave rows."""
        truncation = truncation_of(decision.tombstones, self._rules)
        if not truncation.num_rows or leaves_rows(table, truncation, self._rules):
            raise TableError(
                f"{table.path}: the new snapshot has columns of other types, and the table has rows that "
                "the snapshot does not replace: they are newer.\n"
                f"Nothing was replaced. `lakefeed table drop {quote(table.path)} --yes` and start again: the "
                "table is created with the types of now."
            )
        return data_files(table)

    def _refuse_rows_that_stay(self, table: LakeTable, reloads: Reloads, decision: Decision) -> None:
        """Raise TableError where a file that is read anew would leave a row as it had made it before.

        Such a key is not in the file any more, or with an older sequence. What an earlier file said of it is
        in no row, so neither can the row stay nor can it go.
        """
        leaving = {edit.file.path: edit.gone for edit in decision.edits}
        keys = pa.schema([table.schema.field(name) for name in self._rules.keys])
        for edit in former_rows(table, reloads):
            left = np.setdiff1d(edit.gone, leaving.get(edit.file.path, []))
            rows = rows_at(table, edit.file, left, keys)
            numbers = np.full(len(left), -1) if decision.index is None else decision.index.find(rows)
            stays = np.flatnonzero(~np.isin(numbers, decision.repeated))
            if len(stays):
                (row,) = rows.slice(int(stays[0]), 1).to_pylist()
                key = ", ".join(f"{name}={value}" for name, value in row.items())
                raise reloads.refused(
                    f"table {table.name}: the rows of {reloads.streams} cannot be replaced: the row {key} is "
                    "of it, and it does not have this key any more, or with an older `sequence_by`"
                )

    def _meets(self, table: LakeTable, index: KeyIndex | None, files: Sequence[DataFile]) -> bool:
        """Whether files that were added since hold rows that the changes are about."""
        return index is None or holds_any(table, files, self._rules.keys, index)

    def landed(self, entry: NewEntry) -> None:
        """Report what is odd about the changes, which are of no use any more."""
        numbered, self._numbered = self._numbered, None
        self._folded = None
        if numbered is None:
            return
        say_what_has_begun(numbered.table, numbered.begun)
        if self._backwards is not None and SEQUENCES in entry.commit_info:
            newest = Newest.of(entry.commit_info[SEQUENCES])
            self._backwards.landed(numbered.table, str(entry.commit_info.get("source")), newest)

    def _read(self, table: LakeTable, change: Change) -> pa.Table:
        """The staged changes of a batch, in the sequences that the table stores."""
        source, staged = change.commit_info.get("source"), self._own(table, change)
        self._oldest = oldest_events(staged, source)
        known, replayed = table.transactions, change.replayed
        columns = self._rules.positions
        numbered = with_binlog_numbers(staged, columns, known, self._pipeline, source, replayed=replayed)
        # Of the changes, only what `Backwards` judges is needed after they have been folded.
        told = numbered.changes.select([PARTITION, *self._rules.sequence_by])
        self._numbered = replace(numbered, changes=told, table=table.path)
        return numbered.changes

    def _without_key(self, table: LakeTable, change: Change) -> NewEntry:
        """The entry for changes of no key: truncations, or nothing besides changes by former keys."""
        count = self._own(table, change).num_rows
        if count and data_files(table):
            raise TableError(
                f"{table.path}: the changes truncate the table, and nothing has said yet which columns are "
                "the key.\nName them with `keys`."
            )
        count += self._before
        told = {**change.commit_info, "mode": self.kind, "kind": self.kind}
        told |= {"changes": count, "folded": count, "rows": 0}
        used = [file.path for file in change.files]
        return NewEntry((), change.transactions, told, becomes=change.becomes, used=used)

    def _learn_keys(self, table: LakeTable, change: Change) -> bool:
        """Take the key columns from the changes, where the file names none; whether any are known."""
        keys = staged_keys(table, change.files) or self._rules.keys or logged_keys(table)
        if not keys:
            return False
        if self._rules.keys and self._rules.keys != keys and not self.follows_keys:
            raise TableError(
                f"{table.path}: the key of the events is {', '.join(keys)} by now, and was "
                f"{', '.join(self._rules.keys)}.\nName the columns of the key with `keys`, and start again."
            )
        if self._rules.keys != keys:
            self._rules = replace(self._rules, keys=keys)
            self._tombstones = self._memory(self._rules, self._age, self._pipeline, self._retype)
        return True

    def _decide(self, table: LakeTable, change: Change) -> Decision:
        """What the changes make of the version that the table stands at."""
        if self._folded is not None and self._folded[0] == change.token:
            folded = self._folded[1]
            tombstones = self._remember(table, folded.rows)
        else:
            folded, tombstones = self._fold(table, change)
        replayed, spread = change.replayed, self.spread
        return decide(table, folded, self._rules, tombstones, replayed=replayed, spread=spread)

    def _own(self, table: LakeTable, change: Change) -> pa.Table:
        """The staged changes, those of former keys apart from the others."""
        staged = read_staged(table, change.files)
        if not change.former_keys:
            self._before = 0
            return staged
        names = pc.binary_join(staged.column(FORMER_KEYS), "\x1f")
        own = names.is_null() if self._former is None else pc.equal(names, "\x1f".join(self._former))
        rows = staged.filter(own).combine_chunks()
        self._before = staged.num_rows - rows.num_rows if self._former is None else 0
        return rows

    def _remember(self, table: LakeTable, rows: pa.Table) -> pa.Table:
        """The tombstones of the keys of some rows, as the table has them now."""
        self._remembered = self._tombstones.load(table, self._oldest)
        return self._remembered.of(rows.select(list(self._rules.keys)))

    def _fold(self, table: LakeTable, change: Change) -> tuple[Folded, pa.Table]:
        """The same for every try, unless it depends on rows that the table has."""
        staged = self._read(table, change)
        own = self._with_stream_truncations(table, staged, change)
        tombstones = self._remember(table, own)
        changes = with_values_before_moves(table, own, self._rules)
        changes = with_dated_deletions(table, changes, self._rules, tombstones, replayed=change.replayed)
        if self._rules.counts is not None:
            counted = with_counts(table, changes, self._rules, change.commit_info.get("source"), self.spread)
            self._before += changes.num_rows - counted.num_rows
            changes = counted
        folded = fold(changes, self._rules)
        if changes is staged:
            self._folded = change.token, folded
        return folded, tombstones

    def _takes_several_streams(self, table: LakeTable, change: Change) -> bool:
        partitions = map(named_partition, {*table.transactions, *change.transactions})
        # The rows of a snapshot have a partition of their own, such as `public.orders:rows`.
        return len({one.rpartition("/")[2].partition(":")[0] for one in partitions if one}) > 1

    def _with_stream_truncations(self, table: LakeTable, staged: pa.Table, change: Change) -> pa.Table:
        """The changes, where truncations are of one stream. Where there is no other, they are of all rows."""
        if change.becomes is not None or not self._takes_several_streams(table, change):
            return staged
        changes = with_stream_truncations(table, staged, self._rules)
        self._before += staged.num_rows - changes.num_rows
        return changes

    def _feed(self, table: LakeTable, decision: Decision) -> Sequence[WrittenFile]:
        # Rows from before have values that columns of other types do not hold: readers take the files.
        if table.is_emptied or not is_on(table.properties) or not (decision.edits or decision.rows.num_rows):
            return ()
        return write_feed(table, self._targets(table.shape), decision.edits, decision.rows, self._identity)

    @property
    def _identity(self) -> tuple[str, ...]:
        """The columns by which a row is the same before and after a change."""
        return self._rules.keys

    def _write_rows(self, table: LakeTable, decision: Decision) -> Written:
        if not decision.edits and not decision.rows.num_rows:
            return Written()
        target = self._targets(table.shape)
        edits, rows = decision.edits, decision.rows
        return self._layout.write(table, target, self._rules.keys, edits, rows, self.spread)


def _with_folded(counts: Mapping[str, int], others: int) -> dict[str, int]:
    """The counts with so many changes more that others have taken the place of.

    Below 0: so many changes are no events, as those that a truncation of one stream is made into.
    """
    found = {**counts, "changes": counts["changes"] + others, "folded": counts["folded"] + max(0, others)}
    surplus = max(0, -others)
    for name in ("applied", "stale", "folded"):
        less = min(surplus, found[name])
        found[name], surplus = found[name] - less, surplus - less
    return found


def _costs(decision: Decision, written: Written) -> dict[str, int]:
    return {
        "touched": decision.touched,
        "copied": written.copied,
        "looked_at": decision.looked_at,
        "rewritten": len(written.removed),
        **written.more,
    }
