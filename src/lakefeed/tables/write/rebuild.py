"""Rebuild: the files of another table take the place of all rows, with its columns and its layout."""

from __future__ import annotations

from lakefeed.tables.data_files import data_files
from lakefeed.tables.log.data_file import row_count
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.mode import Change, NewEntry, refuse_append_only


class RebuildMode:
    """Removes every file of the version before, and gives the table the files and the shape of the change."""

    def check(self, shape: Shape, path: str) -> None:
        """Raise TableError for a table whose rows must stay."""
        refuse_append_only(shape, path, "a rebuild replaces all rows", "another path")

    def entry(self, table: LakeTable, change: Change) -> NewEntry:
        """All files of the version that the table stands at go, whoever has added them."""
        self.check(table.shape, table.path)
        gone = data_files(table)
        removed = {"removed": {"files": len(gone), "rows": row_count(gone)}}
        info = {**change.commit_info, **removed}
        return NewEntry(change.files, change.transactions, info, gone, blind=False, becomes=change.becomes)

    def landed(self, entry: NewEntry) -> None:
        """Nothing needs to be known of it."""
