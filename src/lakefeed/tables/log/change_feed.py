"""The change data feed of a table: which rows of which files a version inserts, updates and deletes.

The files of the feed tell it where a version has some. Elsewhere it follows from the data files that the
version adds and removes, as the protocol says. Read from the log, entry by entry: delta-rs's own reader of
the feed does not find files whose paths are encoded, and fails on timestamps in ISO 8601 as partition values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.log.entry import Entry
from lakefeed.tables.log.vector import DeletionVector

TYPE, VERSION, TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
"""The columns that a reader of changes gets besides those of the table."""
INSERT, DELETE = "insert", "delete"
TOLD = "told"
"""What rows do whose file has the column `_change_type`."""
FEED = "delta.enableChangeDataFeed"


@dataclass(frozen=True)
class ChangedFile:
    """Rows of one file that come or go with a version."""

    file: DataFile
    """Rows that its deletion vector deletes are not among them."""
    kind: str
    """INSERT, DELETE or TOLD."""
    only: DeletionVector | None = None
    """Where it is there: none but these rows of the file."""


def is_on(configuration: Mapping[str, Any]) -> bool:
    """Whether a table with these properties tells its changes."""
    return str(configuration.get(FEED, "")).lower() == "true"


def changed_files(entry: Entry) -> list[ChangedFile]:
    """What a version changes; first what leaves the table, then what comes to it."""
    if entry.changes:
        return [ChangedFile(file, TOLD) for file in entry.changes]
    gone = {file.path: file for file in entry.removes if file.data_change}
    come = {file.path: file for file in entry.adds if file.data_change}
    stayed = sorted(gone.keys() & come.keys())
    return [
        *_remarked(DELETE, [(come[path], come[path].vector, gone[path].vector) for path in stayed]),
        *(ChangedFile(file, DELETE) for path, file in gone.items() if path not in come),
        *_remarked(INSERT, [(come[path], gone[path].vector, come[path].vector) for path in stayed]),
        *(ChangedFile(file, INSERT) for path, file in come.items() if path not in gone),
    ]


def _remarked(
    kind: str, stayed: Iterable[tuple[DataFile, DeletionVector | None, DeletionVector | None]]
) -> Iterator[ChangedFile]:
    """Of files that stay and of which other rows are deleted than before: those in the first vector only."""
    for file, only, without in stayed:
        if only is not None:
            yield ChangedFile(replace(file, vector=without), kind, only)


def committed(entry: Entry) -> int:
    """When a version was committed, in milliseconds since 1970, as Spark's reader of the feed has it."""
    found = entry.info.get("inCommitTimestamp")
    return found if isinstance(found, int) else entry.written or entry.committed or 0


def marked(rows: pa.RecordBatch, kind: str, version: int, moment: int) -> pa.RecordBatch:
    """Rows with what became of them, in which version and when; those of a TOLD file have the first."""
    count = rows.num_rows
    at = pa.scalar(moment * 1000, pa.int64()).cast(pa.timestamp("us", "UTC"))
    told = {
        TYPE: rows.column(TYPE) if kind == TOLD else pa.repeat(kind, count),
        VERSION: pa.repeat(pa.scalar(version, pa.int64()), count),
        TIMESTAMP: pa.repeat(at, count),
    }
    own = [field for field in rows.schema if field.name != TYPE]
    schema = pa.schema([*own, *((name, column.type) for name, column in told.items())])
    columns = [*(rows.column(field.name) for field in own), *told.values()]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
