"""Rewrites of a table by delta-rs on the driver: compaction, clustering, deletion and vacuum.

Each is one operation with a handle of its own: delta-rs checks its commit against whatever has landed since,
so appends go on meanwhile, and a rewrite that would undo another change fails and leaves the table as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Protocol
from urllib.parse import unquote

import orjson
import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, WriterProperties

from lakefeed.pipeline.upkeep import SHORTEST_RETENTION
from lakefeed.stores import delta_options, store_errors
from lakefeed.tables.layout import Partition
from lakefeed.tables.table import commit_properties

_SPILL = 512 * 1024**2
"""Bytes that an ordering may hold in memory before it goes on in temporary files."""
_COMMIT_EVERY = 60
"""Seconds after which a long rewrite commits what it has done so far."""
_CODECS = {"none": "UNCOMPRESSED", "lz4": "LZ4_RAW"}


@dataclass(frozen=True)
class Change:
    """What a rewrite did: the files that it took away, and those that stand in their place."""

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


class Rewrites(Protocol):
    """What upkeep can have done to one table, whichever engine does it."""

    def snapshot(self) -> DeltaTable:
        """The newest version, to plan by."""

    def compact(self, partition: Partition, size: int) -> Change:
        """Make files of about `size` of the smaller ones of a partition; every row stays as it is."""

    def cluster(self, partition: Partition, columns: Sequence[str], size: int) -> Change:
        """Write a partition anew, ordered by columns; every row stays as it is."""

    def delete(self, predicate: str) -> Change:
        """Delete the rows for which a SQL predicate holds."""

    def vacuum(self, retain: float, *, on_delete: Callable[[], None]) -> Change:
        """Delete files that no version of the last `retain` seconds needs."""


class DeltaRewrites:
    """Rewrites by delta-rs: one file at a time, with bounded memory."""

    def __init__(
        self,
        path: str,
        storage: Mapping[str, str],
        store: pafs.FileSystem,
        *,
        compression: str,
        account: Mapping[str, Any],
    ) -> None:
        self._path = path
        self._storage = delta_options(path, storage)
        self._store = store
        self._writer = WriterProperties(compression=_CODECS.get(compression, compression.upper()))  # type: ignore[arg-type]
        self._account = account
        self._delta: DeltaTable | None = None

    def snapshot(self) -> DeltaTable:
        """The newest version, in a handle that the stream does not use."""
        with store_errors(self._path):
            if self._delta is None:
                self._delta = DeltaTable(self._path, storage_options=self._storage)
            else:
                self._delta.update_incremental()
            return self._delta

    def compact(self, partition: Partition, size: int) -> Change:
        """Bin packing by `optimize.compact`; a second run finds nothing to do."""
        delta = self.snapshot()
        with store_errors(self._path):
            return _optimized(
                delta.optimize.compact(
                    partition.filters,
                    size,
                    max_concurrent_tasks=1,
                    max_spill_size=_SPILL,
                    min_commit_interval=_COMMIT_EVERY,
                    writer_properties=self._writer,
                    commit_properties=self._commit("compact"),
                )
            )

    def cluster(self, partition: Partition, columns: Sequence[str], size: int) -> Change:
        """Z-order, spilling to temporary files where memory would not do."""
        delta = self.snapshot()
        with store_errors(self._path):
            return _optimized(
                delta.optimize.z_order(
                    list(columns),
                    partition.filters,
                    size,
                    max_concurrent_tasks=1,
                    max_spill_size=_SPILL,
                    writer_properties=self._writer,
                    commit_properties=self._commit("cluster"),
                )
            )

    def delete(self, predicate: str) -> Change:
        """Only files that may hold such rows are read, by their statistics."""
        delta = self.snapshot()
        with store_errors(self._path):
            done = delta.delete(
                predicate, writer_properties=self._writer, commit_properties=self._commit("delete")
            )
            return _of_commit(self._store, delta.version()) if done.get("num_removed_files") else Change()

    def vacuum(self, retain: float, *, on_delete: Callable[[], None]) -> Change:
        """Delete files that are the table's own and that nothing needs any more.

        delta-rs lists what no version refers to. Files that were removed from the table go after `retain`;
        files that no log entry tells about go after 7 days at the least, as they may belong to a batch that
        is still to be committed. Whatever does not look like a data file of this table stays.
        """
        delta = self.snapshot()
        hours = math.ceil(retain / 3600)
        longest = max(hours, math.ceil(SHORTEST_RETENTION / 3600))
        with store_errors(self._path):
            removed = delta.vacuum(hours, dry_run=True, enforce_retention_duration=False)
            forgotten = delta.vacuum(longest, dry_run=True, enforce_retention_duration=False, full=True)
            columns = list(delta.metadata().partition_columns)
            doomed = [path for path in dict.fromkeys([*removed, *forgotten]) if is_data_file(path, columns)]
            sizes = list(self._delete(doomed, on_delete))
        if sizes:
            self._note(delta, {"files": len(sizes), "bytes": sum(sizes)})
        return Change(len(sizes), 0, sum(sizes), 0)

    def _delete(self, paths: Sequence[str], on_delete: Callable[[], None]) -> Iterator[int]:
        for path in paths:
            found = self._store.get_file_info(path)
            if found.type == pafs.FileType.File:
                self._store.delete_file(path)
                yield int(found.size)
                on_delete()

    def _note(self, delta: DeltaTable, figures: Mapping[str, int]) -> None:
        """A commit that changes nothing but tells of the vacuum in the table's history."""
        with store_errors(self._path):
            delta.create_write_transaction(
                [],
                "append",
                delta.schema(),
                list(delta.metadata().partition_columns),
                commit_properties=self._commit("vacuum", figures),
            )

    def _commit(self, kind: str, figures: Mapping[str, int] | None = None) -> CommitProperties:
        return commit_properties({}, {**self._account, "kind": kind, "by": "upkeep", **(figures or {})})


def is_data_file(path: str, partition_columns: Sequence[str]) -> bool:
    """Whether a path inside a table is one that Lakefeed, delta-rs or Spark give to a data file.

    Anything else in the folder is somebody's: a note, another table, a file that was put there by hand.
    """
    *folders, name = PurePosixPath(path).parts
    heads = [unquote(folder).partition("=")[0] for folder in folders]
    laid_out = heads == list(partition_columns) and all("=" in folder for folder in folders)
    return laid_out and name.startswith("part-") and name.endswith(".parquet")


def literal(value: object) -> str:
    """A value in a predicate, as text that both engines read for any type of partition column."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return "'" + text.replace("'", "''") + "'"


def partition_predicate(partition: Partition) -> str:
    """The SQL predicate that holds for the rows of one partition; empty for an unpartitioned table."""
    return " AND ".join(
        f"`{name}` IS NULL" if value is None else f"`{name}` = {literal(value)}"
        for name, value in partition.values
    )


def _of_commit(store: pafs.FileSystem, version: int) -> Change:
    """What one commit took away and put in its place, by its own entry in the log."""
    removed, added = [], []
    with store.open_input_stream(f"_delta_log/{version:020d}.json") as stream:
        for line in stream.read().splitlines():
            action = orjson.loads(line)
            removed += [int(action["remove"].get("size") or 0)] if "remove" in action else []
            added += [int(action["add"]["size"])] if "add" in action else []
    return Change(len(removed), len(added), sum(removed), sum(added))


def _optimized(metrics: Mapping[str, Any]) -> Change:
    added, removed = orjson.loads(metrics["filesAdded"]), orjson.loads(metrics["filesRemoved"])
    return Change(
        int(metrics["numFilesRemoved"]),
        int(metrics["numFilesAdded"]),
        int(removed["totalSize"]),
        int(added["totalSize"]),
    )
