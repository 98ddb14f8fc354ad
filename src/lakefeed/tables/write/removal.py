"""Removal: rows leave a table in one commit, beside those that come. The caller decides which ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakefeed.files import WrittenFile
from lakefeed.files.parquet import FileTarget, write_files
from lakefeed.stores import drop_files
from lakefeed.tables.data_files import read_rows
from lakefeed.tables.log.change_feed import TYPE, is_on
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.log.listing import CHANGES
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed.copy_on_write import CopyOnWrite
from lakefeed.tables.write.keyed.keys import Numbers
from lakefeed.tables.write.keyed.layout import Edit, Written
from lakefeed.tables.write.keyed.lookup import rows_at
from lakefeed.tables.write.mode import Change, NewEntry, refuse_append_only

NO_ROWS: Numbers = np.zeros(0, np.int64)
_PIECE_ROWS = 250_000
"""So many rows of a file are held at a time."""


class RemovalMode:
    """Takes rows out that `find` names in the version examined. One object for one commit."""

    def __init__(
        self,
        targets: Callable[[Shape], FileTarget],
        column: str,
        find: Callable[[LakeTable], Sequence[Edit]],
    ) -> None:
        """`column` is one of the table's that values can be compared of."""
        self._targets, self._column, self._find = targets, column, find
        self.count = 0
        """How many rows the commit has taken out."""

    def check(self, shape: Shape, path: str) -> None:
        """Raise TableError for a table whose rows must stay."""
        refuse_append_only(shape, path, "dead letters are to leave", "another path for `dead_letters`")

    def entry(self, table: LakeTable, change: Change) -> NewEntry:
        """The change, without these rows; their number is `dead_letters` in the commit info."""
        edits = self._find(table)
        if edits:
            self.check(table.shape, table.path)
        self.count = sum(len(edit.gone) for edit in edits)
        info = {"dead_letters": self.count}
        return entry_without(table, change, edits, self._targets(table.shape), self._column, info)

    def landed(self, entry: NewEntry) -> None:
        """Nothing needs to be known of it."""


def entry_without(
    table: LakeTable,
    change: Change,
    edits: Sequence[Edit],
    target: FileTarget,
    column: str | None,
    info: dict[str, Any],
) -> NewEntry:
    """The entry of a change beside which rows leave. Without `column`, whole files of rows leave."""
    written = _without(table, target, column, edits)
    made = [file.path for file in written.added]
    try:
        feed = _feed(table, change, target, edits) if edits and is_on(table.properties) else []
    except BaseException:
        drop_files(table.store, made)
        raise
    return NewEntry(
        [*change.files, *written.added],
        change.transactions,
        {**change.commit_info, **info},
        written.removed,
        feed=feed,
        blind=False,
        made=[*made, *(file.path for file in feed)],
    )


def _without(table: LakeTable, target: FileTarget, column: str | None, edits: Sequence[Edit]) -> Written:
    """The files without these rows; a file that nothing is left of just goes."""
    whole = [edit.file for edit in edits if len(edit.gone) == edit.file.rows]
    partly = [edit for edit in edits if len(edit.gone) != edit.file.rows]
    if not partly:
        return Written(removed=whole)
    assert column is not None, "without a column, whole files go"
    written = CopyOnWrite().write(table, target, [column], partly, table.schema.empty_table())
    return replace(written, removed=[*whole, *written.removed])


def _feed(table: LakeTable, change: Change, target: FileTarget, edits: Sequence[Edit]) -> list[WrittenFile]:
    """The change data feed of the entry: its readers look at nothing else."""
    schema = pa.schema([*table.schema, pa.field(TYPE, pa.string())])
    target = replace(target, schema=schema, sort_by=(), folder=f"{CHANGES}/", prefix="cdc")
    parts = (part.cast(schema) for part in _changes(table, change.files, edits))
    return write_files(table.store, target, parts)


def _changes(table: LakeTable, files: Sequence[WrittenFile], edits: Sequence[Edit]) -> Iterator[pa.Table]:
    """The rows that leave, and those that come."""
    for edit in edits:
        for start in range(0, len(edit.gone), _PIECE_ROWS):
            gone = edit.gone[start : start + _PIECE_ROWS]
            yield _typed(rows_at(table, edit.file, gone, table.schema), "delete")
    for file in files:
        own = DataFile(file.path, file.path, file.size, file.rows, tuple(file.partition_values.items()))
        for batch in read_rows(table, [own]):
            yield _typed(pa.Table.from_batches([batch]), "insert")


def _typed(rows: pa.Table, kind: str) -> pa.Table:
    return rows.append_column(TYPE, pa.repeat(pa.scalar(kind), rows.num_rows))
