"""Changes of a table from version to version: its change data feed, or its appends where that is off.

Read from the log, entry by entry: delta-rs's own reader of the feed does not find files whose paths are
encoded, and fails on timestamps in ISO 8601 as partition values.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from lakefeed.errors import UsageError
from lakefeed.tables.data_files import MissingFile, read_rows
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.log.entry import Entry
from lakefeed.tables.log.roaring import NONE, Positions
from lakefeed.tables.log.vector import read_vector
from lakefeed.tables.protocol import refuse_unkept
from lakefeed.tables.table import LakeTable

TYPE, VERSION, TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
_FEED = "delta.enableChangeDataFeed"


@dataclass
class Changes:
    """The changes between two versions, both included, and the versions that had to be left out."""

    first: int
    last: int
    feed: bool
    """Whether they come from the change data feed; else only appends are shown."""
    left_out: dict[int, str] = field(default_factory=dict)
    """Versions that took rows away, with the operation: appends do not show which rows."""
    batches: Iterator[pa.RecordBatch] = field(default_factory=lambda: iter(()))


def changes(table: LakeTable, first: int, last: int | None = None) -> Changes:
    """Open the changes from one version to another, by default to the newest.

    Raises UsageError when the log no longer holds them, or the feed was off at one of them.
    """
    refuse_unkept(table, "changes")
    end = table.version if last is None else last
    log = table.log()
    _refuse_missing(table, first, end, log.versions)
    feed = _is_on(table.properties)
    found = Changes(first, end, feed)
    wanted = list(log.entries(first, end))
    if feed:
        _refuse_gaps(table, wanted)
    else:
        for entry in wanted:
            if any(file.data_change for file in entry.removes):
                found.left_out[entry.version] = str(entry.info.get("operation", "unknown"))
    found.batches = _rows(table, [entry for entry in wanted if entry.version not in found.left_out])
    return found


def _refuse_missing(table: LakeTable, first: int, end: int, there: Collection[int]) -> None:
    """Raise UsageError unless the log has the entries of these versions."""
    oldest = min(there, default=0)
    if (beyond := max(first, end)) > table.version:
        raise UsageError(
            f"{table.path} has no version {beyond} yet: the newest is {table.version}.\n"
            f"Choose versions from {oldest} to {table.version}."
        )
    if first > end:
        raise UsageError(f"version {first} is after version {end}: give the older one as --from-version.")
    if first not in there:
        raise UsageError(
            f"{table.path}: version {first} is no longer in the log, the oldest is {oldest}.\n"
            f"Choose versions from {oldest} to {table.version}."
        )


def version_at(table: LakeTable, moment: dt.datetime, *, first: bool = False) -> int:
    """The newest version of that time; with `first`, the oldest since. Raises UsageError where none is."""
    wanted = int(moment.timestamp() * 1000)
    stamped = [(entry.version, entry.timestamp) for entry in table.log().entries(0, table.version)]
    if first:
        found = next((version for version, at in stamped if at >= wanted), None)
    else:
        found = max((version for version, at in stamped if at <= wanted), default=None)
    if found is None:
        side = "since" if first else "at or before"
        raise UsageError(f"{table.path} has no version {side} {moment.isoformat()}: see its history.")
    return found


def _is_on(properties: dict[str, Any]) -> bool:
    return str(properties.get(_FEED, "")).lower() == "true"


def _refuse_gaps(table: LakeTable, wanted: list[Entry]) -> None:
    """Raise UsageError at a version that took rows away while the feed was off."""
    on = _is_on(dict(table.at(wanted[0].version).metadata().configuration))
    for entry in wanted:
        if entry.metadata is not None:
            on = _is_on(entry.metadata.get("configuration") or {})
        changing = [file for file in (*entry.adds, *entry.removes) if file.data_change]
        if not on and changing:
            raise UsageError(
                f"{table.path}: the change data feed was off at version {entry.version}.\n"
                "Start with the version that turned it on: see lakefeed table history."
            )


def _rows(table: LakeTable, wanted: list[Entry]) -> Iterator[pa.RecordBatch]:
    for entry in wanted:
        if entry.changes:
            with_type = table.schema.append(pa.field(TYPE, pa.string()))
            yield from _read(table, entry, entry.changes, None, with_type)
            continue
        gone = {file.path: file for file in entry.removes if file.data_change}
        come = {file.path: file for file in entry.adds if file.data_change}
        stayed = gone.keys() & come.keys()
        for path in sorted(stayed):
            yield from _of_vectors(table, entry, gone[path], come[path])
        for kind, files in (("delete", gone), ("insert", come)):
            changing = [file for path, file in files.items() if path not in stayed]
            yield from _read(table, entry, changing, kind, table.schema)


def _of_vectors(table: LakeTable, entry: Entry, old: DataFile, new: DataFile) -> Iterator[pa.RecordBatch]:
    """The rows of a file that stayed, and of which others are deleted than before."""
    before, after = (read_vector(table.store, one.vector) if one.vector else NONE for one in (old, new))
    for kind, positions in (
        ("delete", np.setdiff1d(after, before, assume_unique=True)),
        ("insert", np.setdiff1d(before, after, assume_unique=True)),
    ):
        if len(positions):
            yield from _read(table, entry, [new], kind, table.schema, positions)


def _read(
    table: LakeTable,
    entry: Entry,
    files: list[DataFile],
    kind: str | None,
    schema: pa.Schema,
    only: Positions | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of some files with what a reader of changes wants to know; `kind` is None where files say."""
    for file in files:
        try:
            for rows in read_rows(table, [file], schema, only=only):
                yield _marked(rows, entry, kind)
        except MissingFile:
            raise UsageError(
                f"{table.path}: {file.path}, which version {entry.version} needs, was deleted by "
                f"a vacuum.\nStart with a later version."
            ) from None


def _marked(rows: pa.RecordBatch, entry: Entry, kind: str | None) -> pa.RecordBatch:
    moment = pa.scalar(entry.timestamp, pa.timestamp("ms", "UTC"))
    count = rows.num_rows
    if kind is not None:
        rows = rows.append_column(TYPE, pa.repeat(kind, count))
    rows = rows.append_column(VERSION, pa.repeat(pa.scalar(entry.version, pa.int64()), count))
    return rows.append_column(TIMESTAMP, pa.repeat(moment, count))
