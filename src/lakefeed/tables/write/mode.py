"""The contract of a write mode: how what the tasks of a batch have written becomes one commit of a table.

All modes share what makes them exactly once (`lakefeed.tables.write.commit`): rows and positions are in one
entry of the log, right behind a version that was examined, and that version holds the positions from which
the batch was read. A mode decides what else the entry holds. It is asked again before every try, because the
version before it may be another one by then.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lakefeed.errors import RowsNotReplaced, TableError
from lakefeed.events import Reload
from lakefeed.files import WrittenFile
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.log.vector import DeletionVector
from lakefeed.tables.shape import Shape, is_on
from lakefeed.tables.table import LakeTable
from lakefeed.text import listed


@dataclass(frozen=True)
class Reloads:
    """The files, or other parts of a source, that a batch reads anew, and where a table has their rows."""

    files: Sequence[Reload]
    pipeline: str
    source: str
    partition: str
    column: str | None = None
    """The column with the stream of each row; None where the table has none."""
    folders: Sequence[str] = ()
    """The folders that the sources of the table read now, where each file has its own path."""
    commands: tuple[str, ...] = ()
    """What makes the table anew, and the tables that it feeds, where its rows cannot be replaced."""
    by_hand: str = ""
    """How the table gets the right rows where it cannot be made anew."""

    @property
    def streams(self) -> str:
        """The files by their names, in words."""
        return listed([one.stream for one in self.files])

    @property
    def former(self) -> list[tuple[int, int]]:
        """The ranges of offsets whose rows go."""
        return sorted(span for one in self.files for span in one.former)

    def refused(self, problem: str) -> RowsNotReplaced:
        """The error of a table that cannot replace the rows."""
        return RowsNotReplaced(problem, self.commands, self.by_hand)

    def to_commit_info(self, rows: int) -> dict[str, Any]:
        """The offsets that each file had, and how many rows have gone."""
        return {
            "files": {one.stream: [list(span) for span in one.former] for one in self.files},
            "rows": rows,
        }


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
    becomes: Shape | None = None
    """What the table is after the commit, which then replaces all rows; None: its shape stays."""
    replayed: bool = False
    """Whether its events come behind later ones of their partitions, as dead letters that are sent again."""
    former_keys: Sequence[tuple[str, ...]] = ()
    """Keys by which some of its changes name their rows, from before the source had another key."""
    reloads: Reloads | None = None
    """What it reads anew: the rows that the table has of that leave."""
    counted: Mapping[str, int] = field(default_factory=dict)
    """Transactions that the commit increments, each to more than the number given here."""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    """By which the commit is known again when its answer is lost."""


FORMER_KEYS_KIND = "former_keys"
"""The kind of a commit with changes by keys that the source had before. It has no positions."""


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
    meets: Callable[[Sequence[DataFile]], bool] | None = None
    """Whether rows that another writer has added in these files could have changed what it holds.

    With it, the entry depends on nothing but rows, its own files and tombstones, so that other commits may
    come between. None: it holds only right after the version that was examined.
    """
    becomes: Shape | None = None
    """The shape that the table gets, in which its columns have other types; None: it stays."""
    used: Sequence[str] = ()
    """Files that nobody needs any more once the entry is in the log: staged changes."""

    @property
    def is_own(self) -> bool:
        """Whether it holds what delta-rs cannot write: deletion vectors, files of the change feed, types."""
        return bool(self.marked or self.feed or self.becomes) or any(file.vector for file in self.removed)


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
