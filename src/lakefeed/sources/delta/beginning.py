"""Where a reader of a Delta table begins, and whether it can go on where it was."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Collection

import pyarrow.fs as pafs

from lakefeed.errors import DataLoss, SourceError, StoreUnavailable, TableError
from lakefeed.sources.delta.history import History
from lakefeed.sources.delta.offset import BEGINNING, DeltaOffset, version_start
from lakefeed.sources.delta.source import DeltaSource
from lakefeed.stores import located, store_errors
from lakefeed.tables.log.change_feed import INSERT
from lakefeed.tables.log.commit_info import commit_info_of

_log = logging.getLogger("lakefeed")


class Beginning:
    """The first offset that is read of a table, for those who have read nothing and for those who go on."""

    def __init__(self, source: DeltaSource, name: str, history: History) -> None:
        self._source, self._name, self._history = source, name, history
        self._whose = source.called(name)

    def first(self) -> DeltaOffset:
        """Where `start` of the pipeline file is. Raises SourceError."""
        history, start = self._history, self._source.start
        if history.newest < 0:
            if not self._source.waits:
                raise SourceError(
                    f"{self._whose}: there is no Delta table at {self._source.path}.\n"
                    "Create it or correct `path`, then start again."
                )
            return BEGINNING
        match start:
            case "earliest":
                history.snapshot(history.newest)
                return DeltaOffset(False, history.newest)
            case "latest":
                return version_start(history.newest + 1)
            case {"version": int(version)}:
                if version > history.newest + 1:
                    raise SourceError(
                        f"{self._whose}: `start` names version {version}, but the newest version of "
                        f"{self._source.path} is {history.newest}."
                    )
                return self.served(version_start(version))
            case dt.datetime():
                return self._at(start)
        raise AssertionError(start)

    def again(self, dead_letters: Collection[int]) -> DeltaOffset | None:
        """The snapshot in which dead letters were counted, or one right before the first of them.

        None where there are no letters, or where not all that was read from there on can be read again.
        """
        letters = [DeltaOffset.of(number) for number in dead_letters]
        before = min((one.version for one in letters), default=0) - 1
        version = max((one.version for one in letters if not one.past), default=before)
        return DeltaOffset(False, version) if self._has_only_grown_since(version) else None

    def _has_only_grown_since(self, version: int) -> bool:
        """Whether all rows of a version are still rows, and all files can be read that have come with it."""
        history = self._history
        if not 0 <= version <= history.newest:
            return False
        try:
            pieces = list(history.snapshot(version).pieces)
            for number in range(version + 1, history.newest + 1):
                added = history.version(number)
                changes = any(piece.change not in (None, INSERT) for piece in added.pieces)
                if changes or added.stops is not None or number in history.restores:
                    return False
                pieces += added.pieces
            there = {piece.path for piece in history.snapshot(history.newest).pieces}
            return all(map(self._is_there, {piece.path for piece in pieces} - there))
        except StoreUnavailable:
            raise
        except TableError:
            return False

    def has_all_rows_since(self, version: int, until: int) -> bool:
        """Whether each row of a version is still a row of a later one, perhaps with other types or layout.

        A rebuild makes other rows of the same events, and loses none of these.
        """
        log = self._history.log
        if log is None:
            return False
        for number in range(version + 1, until + 1):
            if number not in log.versions:
                return False
            entry = log.entry(number)
            ours = commit_info_of(entry.info)
            kind = ours.get("kind")
            rewritten = kind == "rebuild" or (kind == "replace" and "partition_by" in ours)
            if not rewritten and any(file.data_change for file in entry.removes):
                return False
        return True

    def _is_there(self, file: str) -> bool:
        with store_errors(self._source.path):
            store, path = located(self._history.store, file)
            return bool(store.get_file_info(path).type == pafs.FileType.File)

    def _at(self, moment: dt.datetime) -> DeltaOffset:
        """Before the first version that was committed at that time or later."""
        log, wanted = self._history.log, moment.timestamp() * 1000
        assert log is not None
        first = self._history.newest + 1
        for version in sorted(log.versions, reverse=True):
            if log.entry(version).timestamp < wanted:
                break
            first = version
        if first == min(log.versions) and first > 0:
            raise SourceError(
                f"{self._whose}: `start` is {moment.isoformat()}, but the log of {self._source.path} goes "
                f"back to version {first} only.\nUse `start: earliest`, which begins with all rows."
            )
        return version_start(first)

    def served(self, at: DeltaOffset) -> DeltaOffset:
        """The offset itself where everything from there on can be read; else DataLoss, or a later one."""
        history = self._history
        if history.newest < 0:
            return at
        if at > self._history.end:
            raise DataLoss(
                f"{self._whose}: {at} comes next, but the newest version of {self._source.path} is "
                f"{history.newest}: its log was brought back to an older state.\n"
                "Drop the tables that it has fed, and start again."
            )
        first = at.version if at.past else at.version + 1
        log = history.log
        assert log is not None
        gone = [number for number in range(first, log.newest + 1) if number not in log.versions]
        what = f"version {gone[0]}" if gone else ""
        if len(gone) > 1:
            what = f"versions {gone[0]} to {gone[-1]}"
        if not gone and not at.past:
            try:
                history.snapshot(at.version)
            except StoreUnavailable:
                raise
            except TableError:
                gone, what = [at.version], f"the content of version {at.version}"
        if not gone:
            return at
        if at == BEGINNING:
            # The table was waited for and nothing of it was read: whatever is there now is new.
            history.snapshot(history.newest)
            return DeltaOffset(False, history.newest)
        text = (
            f"{self._whose}: {at} comes next, but the log of {self._source.path} no longer has {what}: "
            "it was cleaned up before that was read"
        )
        if self._source.on_data_loss == "skip":
            _log.warning("%s. Continuing at version %d (`on_data_loss: skip`).", text, gone[-1] + 1)
            return version_start(gone[-1] + 1)
        declare = "Set" if not self._source.waits else f"Declare `{self._name}` in `sources` with"
        raise DataLoss(
            f"{text}.\n{declare} `on_data_loss: skip` to continue at version {gone[-1] + 1} without them, or "
            "drop the table that was fed: it begins anew, with all rows."
        )
