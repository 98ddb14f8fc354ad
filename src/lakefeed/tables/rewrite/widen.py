"""Widening: every file of a table is written again with wider types, in one commit that changes no data.

Readers that follow the rows of the table have read them already, so the entry says of all files that they
bring none. Each file keeps its rows, their order and its partition: the layout of the table stays.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pyarrow as pa

from lakefeed.backoff import backoff
from lakefeed.errors import Conflict, StoreUnavailable
from lakefeed.files import WrittenFile
from lakefeed.files.parquet import FileTarget, write_files
from lakefeed.stores import drop_files
from lakefeed.tables.data_files import data_files, read_file, refuse_missing
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.log.vector import DeletionVector
from lakefeed.tables.operations.checkpoint import checkpoint_when_due
from lakefeed.tables.operations.operation import CommitInfo
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable, commit_info_of
from lakefeed.tables.write.entry import try_entry
from lakefeed.tables.write.mode import NewEntry

_TRIES = 20
_FIRST_WAIT, _LONGEST_WAIT = 0.02, 1.0

Convert = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Gives rows of the table the wider types. Raises what ends the rewrite."""


def widen(
    table: LakeTable,
    becomes: Shape,
    target: FileTarget,
    convert: Convert,
    commit_info: CommitInfo,
    written: Callable[[], None] = lambda: None,
) -> int:
    """Give the table another shape and all its files the types of that; the version of the commit.

    `becomes` names only the properties that change. Another writer may append meanwhile: its files are
    written again as well. Raises Conflict, and leaves nothing behind, when it changes columns.
    """
    shape, token = table.shape, uuid.uuid4().hex
    files: dict[tuple[str, DeletionVector | None], list[WrittenFile]] = {}
    may_be_there = False
    try:
        for attempt in range(_TRIES):
            there = data_files(table)
            refuse_missing(table.store, [one for one in there if (one.path, one.vector) not in files])
            for one in there:
                if (one.path, one.vector) not in files:
                    files[one.path, one.vector] = _again(table, one, target, convert)
            written()
            added = [new for one in there for new in files[one.path, one.vector]]
            entry = NewEntry(added, {}, commit_info, there, blind=False, data_change=False, becomes=becomes)
            tried, may_be_there = table.next_version, True
            failure = try_entry(table, entry, token)
            passed = table.refresh()
            for version, info in passed.items():
                if commit_info_of(info).get("commit") == token:
                    checkpoint_when_due(table, version)
                    _drop(table, files, {one.path for one in added})
                    return version
            # Once another entry is there, this one never comes.
            may_be_there = tried not in passed
            if shape.difference(table.shape):
                raise Conflict(
                    f"{table.path}: another writer changed its columns while they were widened; nothing was "
                    "committed.\nRun it again."
                )
            time.sleep(backoff(attempt + 1, _FIRST_WAIT, _LONGEST_WAIT))
    except BaseException:
        # Where the entry may be in the log, only vacuum knows whether files are needed.
        if not may_be_there:
            _drop(table, files)
        raise
    raise StoreUnavailable(f"{table.path}: the commit failed {_TRIES} times, last with: {failure}")


def _again(table: LakeTable, file: DataFile, target: FileTarget, convert: Convert) -> list[WrittenFile]:
    rows = read_file(table.store, file, table.schema)
    return write_files(table.store, target, (pa.Table.from_batches([convert(batch)]) for batch in rows))


def _drop(
    table: LakeTable,
    files: dict[tuple[str, DeletionVector | None], list[WrittenFile]],
    kept: set[str] | frozenset[str] = frozenset(),
) -> None:
    drop_files(table.store, (new.path for group in files.values() for new in group if new.path not in kept))
