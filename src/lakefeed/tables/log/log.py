"""The log of a table as it lies in the store: its versions, and the files and positions at any of them.

Read with nothing but a file system, so that also a log that no engine opens any more can be looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow.fs as pafs

from lakefeed.errors import TableError
from lakefeed.stores import names_after, parallel_map, store_errors, store_path
from lakefeed.tables.log.checkpoint import checkpoints
from lakefeed.tables.log.data_file import DataFile, row_count, stored_paths
from lakefeed.tables.log.entry import LOG, Cleaned, Entry, entry_name, read_entry

_ENTRY = re.compile(r"(\d{20})\.json")


@dataclass
class Snapshot:
    """The files and positions of a table at one version; -1 is the version before the first."""

    version: int = -1
    files: dict[str, DataFile] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)

    def apply(self, entry: Entry) -> None:
        """Move on by one version."""
        for file in entry.removes:
            self.files.pop(file.path, None)
        self.files.update((file.path, file) for file in entry.adds)
        self.transactions.update(entry.transactions)
        self.version = entry.version

    @property
    def rows(self) -> int | None:
        """All rows; None where a file has no statistics."""
        return row_count(self.files.values())


class Log:
    """The log of one table at the moment that it was opened."""

    def __init__(self, store: pafs.FileSystem, files: Iterable[tuple[str, int]]) -> None:
        """`files` are the names in the folder of the log, with when each was written (milliseconds)."""
        self.store = store
        # There may be hundreds of thousands: their names are not kept.
        written: dict[str, int] = {}
        entries: dict[int, int] = {}
        for name, at in files:
            if found := _ENTRY.fullmatch(name):
                entries[int(found[1])] = at
            else:
                written[name] = at
        in_order = all(one < other for one, other in pairwise(entries))
        self.versions = entries if in_order else dict(sorted(entries.items()))
        """The versions whose entries are there, oldest first, with when each was written (milliseconds)."""
        self.checkpoints = checkpoints(written)
        self.checkpoint_times = {
            version: max(written[path.removeprefix(f"{LOG}/")] for path in checkpoint.paths)
            for version, checkpoint in self.checkpoints.items()
        }
        """When each checkpoint was written (milliseconds)."""

    @classmethod
    def open(cls, store: pafs.FileSystem) -> Log | None:
        """List the log; None where there is no table."""
        with store_errors(store_path(store)):
            try:
                infos = store.get_file_info(pafs.FileSelector(LOG))
            except FileNotFoundError:
                return None
        log = cls(store, ((info.base_name, (info.mtime_ns or 0) // 1_000_000) for info in infos))
        return log if log.versions or log.checkpoints else None

    @classmethod
    def open_from(cls, store: pafs.FileSystem, version: int) -> Log | None:
        """List the log from one version on, without times; None where the entry of that version is gone."""
        with store_errors(store_path(store)):
            try:
                names = names_after(store, entry_name(version - 1))
            except FileNotFoundError:
                return None
        log = cls(store, ((name, 0) for name in names))
        return log if version in log.versions else None

    @property
    def newest(self) -> int:
        """The newest version."""
        return max([*self.versions, *self.checkpoints])

    @property
    def newest_checkpoint(self) -> int:
        """The version of the newest checkpoint, -1 where there is none."""
        return max(self.checkpoints, default=-1)

    @property
    def since_checkpoint(self) -> int:
        """How many entries a reader has to read behind the newest checkpoint."""
        return sum(version > self.newest_checkpoint for version in self.versions)

    @property
    def holes(self) -> list[int]:
        """Versions that are missing between two that are there. Clean-up leaves none."""
        there = self.versions
        return [
            version for version in range(min(there, default=0), max(there, default=0)) if version not in there
        ]

    @property
    def oldest(self) -> int | None:
        """The oldest version whose files and positions are known; None where none is."""
        return next((max(0, at) for at in self._beginnings()), None)

    def beginning(self, since: int = -1) -> Snapshot | None:
        """The state that all whole versions up to the newest follow on; None where there is none.

        With `since`, the first at or behind that version that does not need it, as it cannot be read.
        """
        return next((self._from_checkpoint(at) for at in self._beginnings() if at >= since), None)

    def entry(self, version: int) -> Entry:
        """Read one version. Raises Cleaned where it is gone, and DamagedEntry where it is not whole."""
        with store_errors(store_path(self.store)):
            try:
                return read_entry(self.store, version, self.versions.get(version, 0))
            except FileNotFoundError:
                raise Cleaned(self.store, version) from None

    def newest_entries(self, count: int) -> Iterator[Entry]:
        """Up to so many of the newest entries, oldest first, without their files.

        Entries that were cleaned up since the listing are left out.
        """

        def read(version: int) -> Entry | None:
            with store_errors(store_path(self.store)), suppress(FileNotFoundError):
                return read_entry(self.store, version, self.versions[version], positions_only=True)
            return None

        found = parallel_map(self.store, read, list(self.versions)[-count:])
        return (entry for entry in found if entry is not None)

    def entries(self, first: int = 0, last: int | None = None) -> Iterator[Entry]:
        """The entries from `first` to `last` that are there, oldest first."""
        wanted = (at for at in self.versions if at >= first and (last is None or at <= last))
        return parallel_map(self.store, self.entry, wanted)

    def snapshot(self, version: int) -> Snapshot:
        """The files and positions at a version. Raises TableError where the log no longer has them."""
        for at in sorted([-1, *self.checkpoints], reverse=True):
            if at <= version and self._is_whole(at + 1, version):
                state = self._from_checkpoint(at)
                for entry in parallel_map(self.store, self.entry, range(at + 1, version + 1)):
                    state.apply(entry)
                return state
        raise TableError(
            f"{store_path(self.store)}: the log can no longer rebuild version {version}.\n"
            f"The oldest version that it can rebuild is {self.oldest}."
        )

    def metadata(self) -> dict[str, Any] | None:
        """The newest `metaData` action: name, schema, partition columns, properties."""
        for version in reversed(self.versions):
            if version <= self.newest_checkpoint:
                break
            if (found := self.entry(version).metadata) is not None:
                return found
        return self.checkpoint_metadata(self.newest_checkpoint) if self.checkpoints else None

    def checkpoint_metadata(self, version: int) -> dict[str, Any] | None:
        """The `metaData` action of the checkpoint of a version."""
        with store_errors(store_path(self.store)):
            actions = self.checkpoints[version].actions(self.store, "metaData")
            return next((action for _, action in actions), None)

    def removed(self, version: int) -> dict[str, int]:
        """The paths that a checkpoint lists as removed, and when (milliseconds since 1970).

        Deletion vectors are among it, as theirs are files too.
        """
        found: dict[str, int] = {}
        with store_errors(store_path(self.store)):
            for _, action in self.checkpoints[version].actions(self.store, "remove"):
                file = DataFile.of(action)
                for path in stored_paths([file]):
                    found[path] = max(file.modified, found.get(path, 0))
        return found

    def _beginnings(self) -> Iterator[int]:
        """The versions, oldest first, from which on every entry up to the newest is there."""
        return (at for at in sorted([-1, *self.checkpoints]) if self._is_whole(at + 1, self.newest))

    def _is_whole(self, first: int, last: int) -> bool:
        return all(version in self.versions for version in range(first, last + 1))

    def _from_checkpoint(self, version: int) -> Snapshot:
        state = Snapshot(version)
        if version < 0:
            return state
        with store_errors(store_path(self.store)):
            for kind, action in self.checkpoints[version].actions(self.store, "add", "txn"):
                if kind == "add":
                    file = DataFile.of(action)
                    state.files[file.path] = file
                else:
                    state.transactions[action["appId"]] = action["version"]
        return state


class LiveFiles:
    """The files of a table's newest version, kept from version to version instead of read anew.

    Used by one thread at a time.
    """

    def __init__(self, store: pafs.FileSystem) -> None:
        self._store = store
        self._state: Snapshot | None = None

    def at(self, version: int) -> Snapshot:
        """The files at a version, which is not to be changed. Raises TableError where the log is gone."""
        state = self._state
        if state is not None and state.version <= version and self._move(state, version):
            return state
        log = Log.open(self._store)
        if log is None:
            raise TableError(f"there is no log any more, of which version {version} was wanted")
        self._state = log.snapshot(version)
        return self._state

    def forget(self) -> None:
        """Begin anew: the log may be another one."""
        self._state = None

    def _move(self, state: Snapshot, version: int) -> bool:
        try:
            for number in range(state.version + 1, version + 1):
                state.apply(read_entry(self._store, number))
        except FileNotFoundError:
            # Cleaned away: a checkpoint knows the files.
            return False
        return True
