"""Rewriting: files of a table are replaced by others with the same rows, whoever else commits meanwhile.

delta-rs's own optimize does not see that another optimize has removed the same files, and then every row of
them is there twice. So files are rewritten here, and a commit lands only right behind a version that has been
looked at.
"""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import pyarrow as pa

from lakefeed.backoff import backoff
from lakefeed.errors import Conflict, StoreUnavailable
from lakefeed.files import WrittenFile
from lakefeed.files.parquet import TableWriter
from lakefeed.stores import store_errors
from lakefeed.tables.data_files import data_files, refuse_other_columns, refuse_respelled
from lakefeed.tables.log.data_file import DataFile, Extent, Partition, extent
from lakefeed.tables.log.entry import read_entry
from lakefeed.tables.operations.checkpoint import checkpoint_when_due
from lakefeed.tables.operations.operation import CommitInfo, Report
from lakefeed.tables.protocol import refuse_unkept
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable, commit_info_of
from lakefeed.tables.write.entry import try_entry
from lakefeed.tables.write.mode import NewEntry

_TRIES = 20
_FIRST_WAIT = 0.02
_LONGEST_WAIT = 0.2


Writers = Callable[[LakeTable, str, int], TableWriter]
"""Opens a writer for a table, a compression and a target size; `lakefeed.upkeep.file_writer` has the one."""


@dataclass(frozen=True)
class Step:
    """The files of one partition that are rewritten in one commit.

    A kill between two steps leaves a table that is half as untidy, and nothing else.
    """

    partition: Partition
    files: tuple[DataFile, ...]

    @property
    def before(self) -> Extent:
        """What is rewritten."""
        return extent(self.files)


S = TypeVar("S", bound=Step)


@dataclass(frozen=True)
class RewritePlan(ABC, Generic[S]):
    """Which files would be rewritten, oldest partition first; nothing has been changed."""

    kind: ClassVar[str]
    version: int
    target_size: int
    steps: tuple[S, ...]
    table: Extent
    codec: str

    @property
    def before(self) -> Extent:
        """What would be rewritten."""
        return sum((step.before for step in self.steps), Extent())

    @abstractmethod
    def run_step(self, table: LakeTable, step: S, commit_info: CommitInfo, writers: Writers) -> int:
        """Rewrite the files of one step in one commit that says it changes no data; its version."""


def run(table: LakeTable, plan: RewritePlan[S], commit_info: CommitInfo, writers: Writers) -> Report:
    """Rewrite every partition of the plan, oldest first, one commit each. Raises Conflict between commits."""
    made = tuple(plan.run_step(table, step, commit_info, writers) for step in plan.steps)
    return Report(plan.kind, plan.table, extent(data_files(table)), made)


def files_to_rewrite(table: LakeTable, operation: str, where: str | None) -> list[DataFile]:
    """The files that may be rewritten, of the partitions that meet a condition.

    Raises TableError for a table that this would break.
    """
    refuse_unkept(table, operation)
    if where is not None:
        refuse_other_columns(table, where)
    table.refresh()
    files = data_files(table, where)
    refuse_respelled(table, files)
    return files


def rewrite(
    table: LakeTable,
    old: Sequence[DataFile],
    rows: Iterator[pa.RecordBatch],
    writer: TableWriter,
    commit_info: CommitInfo,
    *,
    feed: Sequence[WrittenFile] | None = None,
) -> int:
    """Write the rows into new files and replace the old ones by them, in one commit; its version.

    The rows must be those of the old files; with `feed` they may have other values, which these files of the
    change data feed name. Appends that land meanwhile are no conflict. Raises Conflict, and leaves nothing
    behind, when an old file is no longer in the table.
    """
    shape = table.shape
    try:
        for batch in rows:
            writer.write(batch)
        files = writer.close()
    except BaseException:
        writer.abort()
        raise
    changed = feed is not None
    entry = NewEntry(files, {}, commit_info, old, feed=feed or (), blind=False, data_change=changed)
    try:
        return _replace(table, entry, shape)
    except Conflict:
        # After any other error, the entry may be in the log: only vacuum knows whether files are needed.
        writer.abort()
        raise


def _replace(table: LakeTable, entry: NewEntry, shape: Shape) -> int:
    table.refresh()
    old = entry.removed
    there = {file.path: file.vector for file in data_files(table)}
    # A file of which others are deleted rows by now is not the one that was read.
    gone = [file.path for file in old if file.path not in there or there[file.path] != file.vector]
    if gone:
        raise _conflict(table, gone[0])
    token = uuid.uuid4().hex
    failure: Exception | None = None
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(backoff(attempt, _FIRST_WAIT, _LONGEST_WAIT))
        if shape.difference(table.shape):
            raise _conflict(table, "its columns")
        seen = table.version
        failure = try_entry(table, entry, token)
        for version, info in table.refresh().items():
            if commit_info_of(info).get("commit") == token:
                checkpoint_when_due(table, version)
                return version
        _check_between(table, seen, {file.path for file in old})
    raise StoreUnavailable(f"{table.path}: the commit failed {_TRIES} times, last with: {failure}")


def _check_between(table: LakeTable, seen: int, paths: set[str]) -> None:
    """Look at the versions that others have made since: nothing of ours may have been removed."""
    with store_errors(table.path):
        for version in range(seen + 1, table.version + 1):
            removed = {file.path for file in read_entry(table.store, version).removes} & paths
            if removed:
                raise _conflict(table, next(iter(removed)))


def _conflict(table: LakeTable, what: str) -> Conflict:
    return Conflict(
        f"{table.path}: another writer changed {what} while files were rewritten; nothing was committed.\n"
        "Run it again."
    )
