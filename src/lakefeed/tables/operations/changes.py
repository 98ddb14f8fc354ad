"""Changes of a table from version to version: its change data feed, or its appends where that is off."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
from deltalake.exceptions import DeltaError

from lakefeed.columns.mapping import mapped_as_in
from lakefeed.errors import TableError, UsageError
from lakefeed.stores import store_errors
from lakefeed.tables.file_rows import FileRows, arrow_schema, read_file
from lakefeed.tables.log.change_feed import DELETE, TOLD, TYPE, changed_files, committed, is_on, marked
from lakefeed.tables.log.entry import Entry
from lakefeed.tables.protocol import refuse_unkept
from lakefeed.tables.table import LakeTable


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


class _Columns(NamedTuple):
    """The columns of a table as the files of one version have them."""

    entry: Entry
    before: pa.Schema
    """As those have them that leave."""
    after: pa.Schema


def changes(table: LakeTable, first: int, last: int | None = None) -> Changes:
    """Open the changes from one version to another, by default to the newest.

    Raises UsageError when the log no longer holds them, or the feed was off at one of them.
    """
    refuse_unkept(table, "changes")
    end = table.version if last is None else last
    log = table.log()
    _refuse_missing(table, first, end, log.versions)
    feed = is_on(table.properties)
    found = Changes(first, end, feed)
    wanted = list(log.entries(first, end))
    if feed:
        _refuse_gaps(table, wanted)
    else:
        for entry in wanted:
            if any(file.data_change for file in entry.removes):
                found.left_out[entry.version] = str(entry.info.get("operation", "unknown"))
    found.batches = _rows(
        table, [one for one in _with_columns(table, wanted) if one.entry.version not in found.left_out]
    )
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


def _refuse_gaps(table: LakeTable, wanted: list[Entry]) -> None:
    """Raise UsageError at a version that took rows away while the feed was off."""
    on = is_on(dict(table.at(wanted[0].version).metadata().configuration))
    for entry in wanted:
        if entry.metadata is not None:
            on = is_on(entry.metadata.get("configuration") or {})
        changing = [file for file in (*entry.adds, *entry.removes) if file.data_change]
        if not on and changing:
            raise UsageError(
                f"{table.path}: the change data feed was off at version {entry.version}.\n"
                "Start with the version that turned it on: see lakefeed table history."
            )


def _with_columns(table: LakeTable, wanted: list[Entry]) -> Iterator[_Columns]:
    """Each version with the names that its files have for the columns of the table."""
    if not table.shape.is_mapped:
        yield from (_Columns(entry, table.schema, table.schema) for entry in wanted)
        return
    for entry in wanted:
        if entry is wanted[0]:
            # What leaves with other columns is of the version before.
            reshapes = entry.metadata is not None and entry.removes
            before, after = (_columns_at(table, entry.version - at) for at in (bool(reshapes), 0))
        elif entry.metadata is not None:
            after = arrow_schema(entry.metadata["schemaString"])
        yield _Columns(entry, *(pa.schema(mapped_as_in(table.schema, one)) for one in (before, after)))
        before = after


def _columns_at(table: LakeTable, version: int) -> pa.Schema:
    try:
        return arrow_schema(table.at(version).schema().to_json())
    except (TableError, DeltaError) as error:
        raise UsageError(
            f"{table.path}: version {version + 1} takes rows away, and version {version}, which says what "
            "their files call the columns, is no longer in the log.\nStart with a later version."
        ) from error


def _rows(table: LakeTable, wanted: Iterable[_Columns]) -> Iterator[pa.RecordBatch]:
    for entry, before, after in wanted:
        for one in changed_files(entry):
            told = [pa.field(TYPE, pa.string())] if one.kind == TOLD else []
            schema = pa.schema([*(before if one.kind == DELETE else after), *told])
            rows = FileRows(one.file.path, one.file.size, one.file.partition, one.file.vector, one.only)
            with store_errors(table.path):
                try:
                    for batch, _ in read_file(table.store, rows, schema):
                        yield marked(batch, one.kind, entry.version, committed(entry))
                except FileNotFoundError:
                    raise UsageError(
                        f"{table.path}: {one.file.path}, which version {entry.version} needs, was deleted by "
                        f"a vacuum.\nStart with a later version."
                    ) from None
