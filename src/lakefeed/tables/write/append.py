"""Append: the files of a batch are added to those that are there."""

from __future__ import annotations

import time
from collections.abc import Callable

from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.commit import commit
from lakefeed.tables.write.mode import Change, NewEntry


class AppendMode:
    """Adds files and removes none, so nothing of the table needs to be read."""

    def check(self, shape: Shape, path: str) -> None:
        """Every table that may be fed can be appended to."""

    def entry(self, table: LakeTable, change: Change) -> NewEntry:
        """The change as it is."""
        return NewEntry(change.files, change.transactions, change.commit_info)

    def landed(self, entry: NewEntry) -> None:
        """Nothing needs to be known of it."""


def append(
    table: LakeTable, change: Change, *, retries: int, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Commit a change that only adds, and return its version; see `commit`."""
    return commit(table, change, AppendMode(), retries=retries, sleep=sleep).version
