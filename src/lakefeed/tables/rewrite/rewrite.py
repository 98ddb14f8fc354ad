"""Rewriting: files of a table are replaced by others with the same rows, whoever else commits meanwhile.

delta-rs's own optimize does not see that another optimize has removed the same files, and then every row of
them is there twice. So files are rewritten here, and a commit lands only right behind a version that has been
looked at.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from lakefeed.errors import Conflict, LakefeedError, StoreUnavailable, TableError
from lakefeed.files import WrittenFile
from lakefeed.stores import store_errors
from lakefeed.tables.data_files import data_files
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.log.entry import read_entry
from lakefeed.tables.operations.operation import CommitInfo
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable, commit_info_of, commit_properties

_TRIES = 20
_FIRST_WAIT = 0.02


class FileWriter(Protocol):
    """Writes rows into new files of a table; see `lakefeed.files.parquet.TableWriter`."""

    def write(self, rows: pa.RecordBatch) -> None: ...  # noqa: D102
    def close(self) -> Sequence[WrittenFile]: ...  # noqa: D102
    def abort(self) -> None: ...  # noqa: D102


Writers = Callable[[LakeTable, str, int], FileWriter]
"""Opens a writer for a table, a compression and a target size; `lakefeed.upkeep.file_writer` has the one."""


def rewrite(
    table: LakeTable,
    old: Sequence[DataFile],
    rows: Iterator[pa.RecordBatch],
    writer: FileWriter,
    commit_info: CommitInfo,
) -> int:
    """Write the rows into new files and put these in the place of the old ones, in one commit; its version.

    The rows must be those of the old files. Appends that land meanwhile are no conflict. Raises Conflict, and
    leaves nothing behind, when an old file is no longer in the table.
    """
    shape = table.shape
    try:
        for batch in rows:
            writer.write(batch)
        return _replace(table, old, writer.close(), shape, commit_info)
    except (StoreUnavailable, KeyboardInterrupt, SystemExit):
        # The commit may have landed: what is not in the table is left for vacuum.
        raise
    except BaseException:
        writer.abort()
        raise


def refuse_vectors(table: LakeTable) -> None:
    """Raise TableError when deletion vectors hide rows: reading files alone would bring them back."""
    if "deletionVectors" not in (table.delta.protocol().reader_features or ()):
        return
    with store_errors(table.path):
        masked = pa.RecordBatchReader.from_stream(table.delta.deletion_vectors()).read_all().num_rows
    if masked:
        raise TableError(
            f"{table.path}: {masked} of the table's files have deletion vectors, which `table optimize` "
            "cannot keep.\nRun Spark's REORG TABLE ... APPLY (PURGE) first."
        )


def _replace(
    table: LakeTable,
    old: Sequence[DataFile],
    new: Sequence[WrittenFile],
    shape: Shape,
    commit_info: CommitInfo,
) -> int:
    table.refresh()
    gone = {file.path for file in old} - {file.path for file in data_files(table.delta)}
    if gone:
        raise _conflict(table, next(iter(gone)))
    token = uuid.uuid4().hex
    failure: Exception | None = None
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_FIRST_WAIT * attempt * random.uniform(0.5, 1.5))
        if shape.difference(table.shape):
            raise _conflict(table, "its columns")
        seen = table.version
        failure = _try(table, old, new, {**commit_info, "commit": token})
        for version, info in table.refresh().items():
            if commit_info_of(info).get("commit") == token:
                return version
        _check_between(table, seen, {file.path for file in old})
    raise StoreUnavailable(f"{table.path}: the commit failed {_TRIES} times, last with: {failure}")


def _try(
    table: LakeTable, old: Sequence[DataFile], new: Sequence[WrittenFile], commit_info: CommitInfo
) -> Exception | None:
    now = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [
        RemoveAction(file.path, False, now, file.size, dict(file.partition)) for file in old
    ]
    actions += [
        AddAction(file.path, file.size, file.partition_values, now, False, file.stats) for file in new
    ]
    properties = commit_properties({}, commit_info)
    # Only right behind the version that has been looked at: delta-rs would pass commits that remove the same.
    properties.max_commit_retries = 0
    properties.custom_metadata = {**(properties.custom_metadata or {}), "isBlindAppend": False}
    try:
        with store_errors(table.path):
            table.delta.create_write_transaction(
                actions, "append", table.delta.schema(), table.partition_columns, commit_properties=properties
            )
    except (CommitFailedError, LakefeedError) as error:
        if isinstance(error, LakefeedError) and not error.retryable:
            raise
        return error
    return None


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
