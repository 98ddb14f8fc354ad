"""The files of a table's newest version, kept from version to version instead of read anew."""

from __future__ import annotations

import pyarrow.fs as pafs

from lakefeed.errors import TableError
from lakefeed.tables.log.entry import read_entry
from lakefeed.tables.log.log import Log, Snapshot


class LiveFiles:
    """Moves on by the entries that have come since. Used by one thread at a time."""

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
