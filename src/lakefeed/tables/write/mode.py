"""The contract of a write mode: how what the tasks of a batch have written becomes one commit of a table.

All modes share what makes them exactly once (`lakefeed.tables.write.commit`): rows and positions are in one
entry of the log, right behind a version that was examined, and that version holds the positions from which
the batch was read. A mode decides what else the entry holds. It is asked again before every try, because the
version before it may be another one by then.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lakefeed.errors import TableError
from lakefeed.files import WrittenFile
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.log.vector import DeletionVector
from lakefeed.tables.shape import Shape, is_on
from lakefeed.tables.table import LakeTable


@dataclass(frozen=True)
class Change:
    """What a batch brings to one table: files, the positions that it moves, and the commit info.

    `expected` are the transactions that the table must hold when the commit lands (None: none yet). That
    the table still holds them is what keeps a second instance, or a repeated batch, from adding the same
    events again. `shape` is what the table was when its files were planned; None: as it is when the commit
    begins.
    """

    files: Sequence[WrittenFile]
    transactions: Mapping[str, int]
    expected: Mapping[str, int | None]
    commit_info: Mapping[str, Any]
    shape: Shape | None = None
    replayed: bool = False
    """Whether its events come behind later ones of their partitions, as dead letters that are sent again."""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    """By which the commit is known again when its answer is lost."""


@dataclass(frozen=True)
class NewEntry:
    """What the next entry of the log holds."""

    added: Sequence[WrittenFile]
    transactions: Mapping[str, int]
    commit_info: Mapping[str, Any]
    removed: Sequence[DataFile] = ()
    """Files of the version before."""
    marked: Sequence[tuple[DataFile, DeletionVector]] = ()
    """Files of the version before that stay, each with the deletion vector that it gets."""
    feed: Sequence[WrittenFile] = ()
    """Files of the change data feed, which say what the entry changes row by row."""
    blind: bool = True
    """Whether it was decided without a look at these files; otherwise it stands right behind that version."""
    data_change: bool = True
    """Whether rows come or go with its files: a compaction changes files only."""
    made: Sequence[str] = ()
    """Files that were written for this entry alone, and are of no use when it is refused."""
    used: Sequence[str] = ()
    """Files that nobody needs any more once the entry is in the log: staged changes."""

    @property
    def is_own(self) -> bool:
        """Whether it holds what delta-rs cannot write: deletion vectors, or files of the change feed."""
        return bool(self.marked or self.feed) or any(file.vector for file in self.removed)


def refuse_append_only(shape: Shape, path: str, what: str, instead: str) -> None:
    """Raise TableError for a table whose rows must stay, with what would be done to them."""
    if is_on(shape.properties, "delta.appendOnly"):
        raise TableError(
            f"{path}: {what}, and the table has delta.appendOnly=true.\n"
            f"Set the property to false, or choose {instead}."
        )


class WriteMode(Protocol):
    """How a table takes a batch."""

    def check(self, shape: Shape, path: str) -> None:
        """Raise TableError for a table that cannot be written in this mode."""
        ...

    def entry(self, table: LakeTable, change: Change) -> NewEntry:
        """The entry for a change, if it lands right behind the version that `table` stands at."""
        ...

    def landed(self, entry: NewEntry) -> None:
        """Take note that the entry is in the log."""
        ...
