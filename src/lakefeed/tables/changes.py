"""Changes of a table from version to version: its change data feed, or its appends where that is off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from deltalake.exceptions import DeltaError

from lakefeed.errors import UsageError
from lakefeed.stores import store_errors
from lakefeed.tables.log import Entry, entries, plain_path, versions
from lakefeed.tables.operation import place
from lakefeed.tables.protocol import refuse_unkept
from lakefeed.tables.rewrite import read_rows
from lakefeed.tables.snapshot import DataFile, Partition
from lakefeed.tables.table import LakeTable

TYPE, VERSION, TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
_FEED = "delta.enableChangeDataFeed"


@dataclass
class Changes:
    """The changes between two versions, both included, and the versions that could not be told."""

    first: int
    last: int
    feed: bool
    """Whether they come from the change data feed; else only appends are told."""
    left_out: dict[int, str] = field(default_factory=dict)
    """Versions that took rows away, with the operation: appends cannot tell which rows."""
    batches: Iterator[pa.RecordBatch] = field(default_factory=lambda: iter(()))


def changes(table: LakeTable, first: int, last: int | None = None) -> Changes:
    """Open the changes from one version to another, by default to the newest.

    Raises UsageError when the log no longer holds them, or the feed was off at one of them.
    """
    refuse_unkept(table, "changes")
    end = table.version if last is None else last
    there = versions(table.store)
    if first > end or end > table.version or first not in there:
        oldest = min(there, default=0)
        raise UsageError(
            f"--from-version {first} --to-version {end}: {place(table)} can tell versions {oldest} to "
            f"{table.version}."
        )
    if table.properties.get(_FEED, "").lower() == "true":
        return Changes(first, end, True, batches=_feed(table, first, end))
    found = Changes(first, end, False)
    told = list(entries(table.store, first, end))
    for entry in told:
        if any(action.get("dataChange", True) for action in entry.removes):
            found.left_out[entry.version] = str(entry.info.get("operation", "unknown"))
    found.batches = _appends(table, [entry for entry in told if entry.version not in found.left_out])
    return found


def _feed(table: LakeTable, first: int, last: int) -> Iterator[pa.RecordBatch]:
    """One version after the other, since delta-rs tells the kinds of change in an order of its own."""
    for version in range(first, last + 1):
        try:
            feed = table.delta.load_cdf(starting_version=version, ending_version=version)
            for batch in pa.RecordBatchReader.from_stream(feed):
                at = batch.schema.get_field_index(TIMESTAMP)
                moments = batch.column(at).cast(pa.timestamp("ms", "UTC"))
                yield batch.set_column(at, TIMESTAMP, moments)
        except DeltaError as error:
            raise UsageError(
                f"{place(table)}: version {version} has no change data feed that could be read: "
                f"{str(error).strip().splitlines()[-1]}\n"
                "The feed begins with the version that turned it on: see lakefeed table history."
            ) from error


def _appends(table: LakeTable, told: list[Entry]) -> Iterator[pa.RecordBatch]:
    for entry in told:
        files = [_file(action) for action in entry.adds if action.get("dataChange", True)]
        with store_errors(table.path):
            for rows in read_rows(table, files):
                yield _marked(rows, entry)


def _file(action: dict[str, object]) -> DataFile:
    values = action.get("partitionValues")
    partition: Partition = tuple(values.items()) if isinstance(values, dict) else ()
    # The log writes the empty text for null.
    plain = tuple((name, value or None) for name, value in partition)
    return DataFile(plain_path(action), str(action["path"]), 0, None, plain, 0)


def _marked(rows: pa.RecordBatch, entry: Entry) -> pa.RecordBatch:
    moment = pa.scalar(entry.timestamp, pa.timestamp("ms", "UTC"))
    count = rows.num_rows
    rows = rows.append_column(TYPE, pa.repeat("insert", count))
    rows = rows.append_column(VERSION, pa.repeat(pa.scalar(entry.version, pa.int64()), count))
    return rows.append_column(TIMESTAMP, pa.repeat(moment, count))
