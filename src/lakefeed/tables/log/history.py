"""The log of a table as it lies there: every action of a version, the files and positions at any of them.

Read with nothing but a file system, so that also a log that no engine opens any more can be looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import orjson
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefeed.errors import TableError
from lakefeed.stores import store_errors, store_path

_LOG = "_delta_log"
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d+\.\d+)?\.parquet")
_CHECKPOINT_COLUMNS = ("add", "txn")


@dataclass(frozen=True)
class LoggedFile:
    """A data file as the log tells of it; `path` is not URL-encoded, `rows` is None without statistics."""

    path: str
    size: int
    rows: int | None
    values: dict[str, str | None] = field(default_factory=dict)


@dataclass
class LogVersion:
    """One version: who made it, what it adds and removes, and the positions that it sets."""

    version: int
    info: dict[str, Any] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    added: list[LoggedFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    data_change: bool = False
    """Whether rows come or go: a compaction changes files only."""

    @property
    def time(self) -> int | None:
        """When it was committed, in milliseconds since 1970."""
        found = self.info.get("inCommitTimestamp", self.info.get("timestamp"))
        return found if isinstance(found, int) else None


@dataclass
class Snapshot:
    """The files and positions of a table at one version; -1 is the version before the first."""

    version: int = -1
    files: dict[str, LoggedFile] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)

    def apply(self, entry: LogVersion) -> None:
        """Move on by one version."""
        for path in entry.removed:
            self.files.pop(path, None)
        self.files.update((file.path, file) for file in entry.added)
        self.transactions.update(entry.transactions)
        self.version = entry.version

    @property
    def rows(self) -> int | None:
        """All rows; None where a file has no statistics."""
        counts = [file.rows for file in self.files.values()]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.size for file in self.files.values())


class Log:
    """The log of one table at the moment that it was opened."""

    def __init__(self, store: pafs.FileSystem, names: list[str]) -> None:
        self.store = store
        self.versions = sorted(int(found[1]) for name in names if (found := _ENTRY.fullmatch(name)))
        self._checkpoints: dict[int, list[str]] = {}
        for name in sorted(names):
            if found := _CHECKPOINT.fullmatch(name):
                self._checkpoints.setdefault(int(found[1]), []).append(f"{_LOG}/{name}")

    @classmethod
    def open(cls, store: pafs.FileSystem) -> Log | None:
        """List the log; None where there is no table."""
        with store_errors(store_path(store)):
            try:
                names = [info.base_name for info in store.get_file_info(pafs.FileSelector(_LOG))]
            except FileNotFoundError:
                return None
        log = cls(store, names)
        return log if log.versions else None

    @property
    def newest(self) -> int:
        """The newest version."""
        return self.versions[-1]

    @property
    def holes(self) -> list[int]:
        """Versions that are missing between two that are there. Clean-up leaves none."""
        there = set(self.versions)
        return [version for version in range(self.versions[0], self.newest) if version not in there]

    @property
    def oldest(self) -> int | None:
        """The oldest version whose files and positions can be told; None where none can."""
        return next((at for at in self._beginnings() if self._whole_from(at + 1)), None)

    def beginning(self) -> Snapshot | None:
        """The state that all whole versions up to the newest follow on; None where there is none."""
        for at in self._beginnings():
            if self._whole_from(at + 1):
                return self._from_checkpoint(at) if at >= 0 else Snapshot()
        return None

    def after(self, version: int) -> Snapshot | None:
        """The first state at or behind a version that does not need it, to go on where one is unreadable."""
        for at in self._beginnings():
            if at >= version and self._whole_from(at + 1):
                return self._from_checkpoint(at)
        return None

    def entry(self, version: int) -> LogVersion:
        """Read one version. Raises ValueError where it is not what Delta writes."""
        with (
            store_errors(store_path(self.store)),
            self.store.open_input_stream(f"{_LOG}/{version:020d}.json") as stream,
        ):
            content = stream.read()
        found = LogVersion(version)
        for line in content.splitlines():
            if line.strip():
                _take(found, orjson.loads(line))
        return found

    def entries(self, first: int) -> Iterator[LogVersion]:
        """Every version from `first` on."""
        for version in range(first, self.newest + 1):
            yield self.entry(version)

    def snapshot(self, version: int) -> Snapshot:
        """The files and positions at a version. Raises TableError where the log does not tell any more."""
        there = set(self.versions)
        starts = [at for at in self._checkpoints if at <= version] + ([-1] if 0 in there else [])
        for at in sorted(starts, reverse=True):
            if all(number in there for number in range(at + 1, version + 1)):
                state = self._from_checkpoint(at) if at >= 0 else Snapshot()
                for number in range(at + 1, version + 1):
                    state.apply(self.entry(number))
                return state
        raise TableError(
            f"{store_path(self.store)}: the log can no longer rebuild version {version}.\n"
            f"The oldest version that it can rebuild is {self.oldest}."
        )

    def _beginnings(self) -> list[int]:
        return ([-1] if self.versions[0] == 0 else []) + sorted(self._checkpoints)

    def _whole_from(self, first: int) -> bool:
        there = set(self.versions)
        return all(version in there for version in range(first, self.newest + 1))

    def _from_checkpoint(self, version: int) -> Snapshot:
        state = Snapshot(version)
        with store_errors(store_path(self.store)):
            for path in self._checkpoints[version]:
                file = pq.ParquetFile(self.store.open_input_file(path))
                columns = [name for name in _CHECKPOINT_COLUMNS if name in file.schema_arrow.names]
                for batch in file.iter_batches(columns=columns):
                    for action in batch.to_pylist():
                        _remember(state, action)
        return state


def file_sizes(store: pafs.FileSystem) -> dict[str, int]:
    """The size of every file that lies under the table, by its path."""
    with store_errors(store_path(store)):
        found = store.get_file_info(pafs.FileSelector("", recursive=True))
    return {info.path: info.size for info in found if info.type == pafs.FileType.File}


def _take(entry: LogVersion, line: dict[str, Any]) -> None:
    for kind, action in line.items():
        if kind == "commitInfo":
            entry.info = action
        elif kind == "txn":
            entry.transactions[action["appId"]] = action["version"]
        elif kind == "add":
            entry.added.append(_logged(action))
            entry.data_change |= action.get("dataChange", True)
        elif kind == "remove":
            entry.removed.append(unquote(action["path"]))
            entry.data_change |= action.get("dataChange", True)


def _remember(state: Snapshot, action: dict[str, Any]) -> None:
    if action.get("add"):
        file = _logged({**action["add"], "partitionValues": dict(action["add"]["partitionValues"] or ())})
        state.files[file.path] = file
    if action.get("txn"):
        state.transactions[action["txn"]["appId"]] = action["txn"]["version"]


def _logged(action: dict[str, Any]) -> LoggedFile:
    stats = action.get("stats")
    rows = orjson.loads(stats).get("numRecords") if isinstance(stats, str) and stats else None
    return LoggedFile(unquote(action["path"]), action["size"], rows, action.get("partitionValues") or {})
