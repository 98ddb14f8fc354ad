"""Upsert: the newest change of each key is the row of the table, whatever order changes come in.

The driver folds the staged changes of a batch, finds the rows that they are about, and lets the layout of the
table write what becomes of them. All of it stands in one entry right behind the version that was examined; if
another writer was faster, it is decided anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from lakefeed.errors import TableError
from lakefeed.files import WrittenFile
from lakefeed.files.parquet import FileTarget
from lakefeed.pipeline.options.changes import column_problems
from lakefeed.tables.log.change_feed import is_on
from lakefeed.tables.positions import tombstones_id
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.feed import write_feed
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.decision import Decision, decide
from lakefeed.tables.write.keyed.fold import Folded, fold
from lakefeed.tables.write.keyed.layout import Layout, Written
from lakefeed.tables.write.keyed.moved import with_values_before_moves
from lakefeed.tables.write.keyed.staged import logged_keys, read_staged, staged_keys
from lakefeed.tables.write.keyed.tombstones import Tombstones
from lakefeed.tables.write.keyed.tombstones.event_times import oldest_events
from lakefeed.tables.write.keyed.undated import with_dated_deletions
from lakefeed.tables.write.mode import Change, NewEntry, refuse_append_only
from lakefeed.tables.write.spread import Spread, in_threads

Targets = Callable[[Shape], FileTarget]
"""How the files of a table of this shape are written."""


class UpsertMode:
    """Applies changes by key. One object for one table and process."""

    kind = "upsert"
    spread: Spread = staticmethod(in_threads)
    """How work on many files is done; the engine may have more cores for it."""
    _memory: type[Tombstones] = Tombstones

    def __init__(
        self, pipeline: str, rules: KeyRules, targets: Targets, layout: Layout, tombstones: float
    ) -> None:
        self._pipeline, self._rules, self._targets, self._layout = pipeline, rules, targets, layout
        self._tombstones, self._age = self._memory(rules, tombstones), tombstones
        self._brings_keys = not rules.keys
        self._folded: tuple[str, Folded] | None = None
        self._oldest: Mapping[str, int] = {}
        """The oldest event of each clock in the batch that is applied."""

    def check(self, shape: Shape, path: str) -> None:
        """Raise TableError for a table whose rows must stay, or that cannot have these keys."""
        refuse_append_only(shape, path, f"`mode: {self.kind}` changes rows", "`mode: append`")
        columns = {field.name: field for field in shape.schema}
        named = {"keys": self._rules.keys, "sequence_by": self._rules.sequence_by}
        for option, problem in column_problems(named, columns):
            raise TableError(f"{path}: `{option}`: {problem}")

    def entry(self, table: LakeTable, change: Change) -> NewEntry:
        """What the changes of a batch make of the version that the table stands at."""
        if not change.files:
            return NewEntry((), change.transactions, change.commit_info)
        if self._brings_keys:
            self._learn_keys(table, change)
        self.check(table.shape, table.path)
        decision = self._decide(table, change)
        written = self._write_rows(table, decision)
        transactions = dict(change.transactions)
        feed = self._feed(table, decision)
        made = [*(file.path for file in (*written.added, *feed)), *written.made]
        if decision.tombstones.num_rows:
            source = change.commit_info.get("source")
            number, path = self._tombstones.add(table, decision.tombstones, source, self._oldest)
            transactions[tombstones_id(self._pipeline)] = number
            made.append(path)
        told = {**change.commit_info, "mode": self.kind, **decision.counts, **_costs(decision, written)}
        if not change.replayed:
            told["kind"] = self.kind
        if self._brings_keys:
            told["keys"] = list(self._rules.keys)
        told["rows"] = sum(file.rows for file in written.added)
        return NewEntry(
            written.added,
            transactions,
            told,
            written.removed,
            written.marked,
            feed,
            blind=False,
            made=made,
            used=[file.path for file in change.files],
        )

    def landed(self, entry: NewEntry) -> None:
        """The changes are of no use any more."""
        self._folded = None

    def _learn_keys(self, table: LakeTable, change: Change) -> None:
        """Take the names of the key columns from the changes, where the pipeline file names none."""
        keys = staged_keys(table, change.files) or self._rules.keys or logged_keys(table)
        if not keys:
            raise TableError(
                f"{table.path}: the first changes of the table truncate it, and nothing has said yet which "
                "columns are the key.\nName them with `keys`."
            )
        if self._rules.keys and self._rules.keys != keys:
            raise TableError(
                f"{table.path}: the key of the events is {', '.join(keys)} by now, and was "
                f"{', '.join(self._rules.keys)}.\nName the columns of the key with `keys`, and start again."
            )
        if not self._rules.keys:
            self._rules = replace(self._rules, keys=keys)
            self._tombstones = self._memory(self._rules, self._age)

    def _decide(self, table: LakeTable, change: Change) -> Decision:
        """What the changes make of the version that the table stands at."""
        staged = None
        if self._folded is None or self._folded[0] != change.token:
            staged = read_staged(table, change.files)
            self._oldest = oldest_events(staged, change.commit_info.get("source"))
        tombstones = self._tombstones.load(table, self._oldest)
        folded = self._fold(table, change, staged, tombstones)
        replayed, spread = change.replayed, self.spread
        return decide(table, folded, self._rules, tombstones, replayed=replayed, spread=spread)

    def _fold(
        self, table: LakeTable, change: Change, staged: pa.Table | None, tombstones: pa.Table
    ) -> Folded:
        """The same for every try, unless it depends on rows that the table has."""
        if staged is None:
            assert self._folded is not None
            return self._folded[1]
        changes = with_values_before_moves(table, staged, self._rules)
        changes = with_dated_deletions(table, changes, self._rules, tombstones, replayed=change.replayed)
        folded = fold(changes, self._rules)
        if changes is staged:
            self._folded = change.token, folded
        return folded

    def _feed(self, table: LakeTable, decision: Decision) -> Sequence[WrittenFile]:
        if not is_on(table.properties) or not (decision.edits or decision.rows.num_rows):
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


def _costs(decision: Decision, written: Written) -> dict[str, int]:
    return {
        "touched": decision.touched,
        "copied": written.copied,
        "looked_at": decision.looked_at,
        "rewritten": len(written.removed),
        **written.more,
    }
