"""One entry of a table's log: what a version adds, removes and says about itself."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow.fs as pafs

from lakefeed.errors import StoreUnavailable, TableError
from lakefeed.stores import store_path
from lakefeed.tables.log.commit_info import commit_info_of
from lakefeed.tables.log.data_file import DataFile

LOG = "_delta_log"
_FILES = (b'{"add"', b'{"remove"', b'{"cdc"')


class Cleaned(StoreUnavailable):
    """An entry that is no longer in the log: another process has cleaned the log since it was listed."""

    def __init__(self, store: pafs.FileSystem, version: int) -> None:
        super().__init__(
            f"{store_path(store)}: the log no longer has version {version}: it was cleaned up meanwhile.\n"
            "Nothing is damaged, and a run tries it again; repeat a command."
        )
        self.version = version


class DamagedEntry(TableError):
    """An entry that is not what a writer of Delta leaves."""

    def __init__(self, store: pafs.FileSystem, version: int, reason: str) -> None:
        super().__init__(
            f"{store_path(store)}: version {version} of the table's log is damaged: {reason}.\n"
            f"Nothing was written. Bring {entry_name(version)} back from a backup; "
            "if it is the newest version, you may delete it instead:\nits events are read again."
        )
        self.reason = reason


@dataclass
class Entry:
    """One version of a table, by its actions."""

    version: int
    written: int = 0
    """When its file was written, in milliseconds since 1970; 0 where nobody has looked."""
    info: dict[str, Any] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    adds: list[DataFile] = field(default_factory=list)
    removes: list[DataFile] = field(default_factory=list)
    changes: list[DataFile] = field(default_factory=list)
    """Files of the change data feed."""
    metadata: dict[str, Any] | None = None
    protocol: dict[str, Any] | None = None
    digest: bytes = b""
    """By which the same content is known again."""

    @property
    def reshapes(self) -> bool:
        """Whether it changes what the table is: its columns, properties or protocol."""
        return self.metadata is not None or self.protocol is not None

    @property
    def data_change(self) -> bool:
        """Whether rows come or go: a compaction changes files only."""
        return any(file.data_change for file in (*self.adds, *self.removes))

    @property
    def committed(self) -> int | None:
        """When it was committed, in milliseconds since 1970, by what it says."""
        found = self.info.get("inCommitTimestamp", self.info.get("timestamp"))
        return found if isinstance(found, int) else None

    @property
    def timestamp(self) -> int:
        """When it was committed, by what it says or by its file.

        The later of the two counts, because what is young is kept.
        """
        return max(self.written, self.committed or 0)


def entry_name(version: int) -> str:
    """The path of an entry within its table."""
    return f"{LOG}/{version:020d}.json"


def read_entry(
    store: pafs.FileSystem, version: int, written: int = 0, *, positions_only: bool = False
) -> Entry:
    """Read one version. Raises FileNotFoundError where the log has been cleaned past it, or DamagedEntry.

    With `positions_only`, its files are passed over, of which there may be thousands, and an entry without
    the positions that its own commit info names counts as damaged.
    """
    with store.open_input_stream(entry_name(version)) as stream:
        content = stream.read()
    return parse_entry(store, version, content, written, positions_only=positions_only)


def parse_entry(
    store: pafs.FileSystem, version: int, content: bytes, written: int = 0, *, positions_only: bool = False
) -> Entry:
    """The version that these bytes are; otherwise as `read_entry`."""
    entry = Entry(version, written, digest=hashlib.sha256(content).digest() if positions_only else b"")
    try:
        for line in content.splitlines():
            if line.strip() and not (positions_only and line.startswith(_FILES)):
                for kind, action in orjson.loads(line).items():
                    _take(entry, kind, action)
        missing = _named_positions(entry.info) - entry.transactions.keys() if positions_only else ()
    except KeyError as error:
        raise DamagedEntry(store, version, f"an action has no {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedEntry(store, version, str(error)) from error
    if missing:
        reason = f"it holds no position for {', '.join(sorted(missing)[:3])}"
        raise DamagedEntry(store, version, reason)
    return entry


def _take(entry: Entry, kind: str, action: Any) -> None:
    match kind:
        case "add":
            entry.adds.append(DataFile.of(action))
        case "remove":
            entry.removes.append(DataFile.of(action))
        case "cdc":
            entry.changes.append(DataFile.of(action))
        case "txn":
            entry.transactions[action["appId"]] = action["version"]
        case "commitInfo":
            entry.info = action
        case "metaData":
            entry.metadata = action
        case "protocol":
            entry.protocol = action


def _named_positions(info: dict[str, Any]) -> set[str]:
    """The application ids that an entry must hold by its own commit info, which stands before them.

    A disk that lost its power may have kept the beginning of an entry, rows included. Whoever believed it
    would read the events of these rows again.
    """
    commit_info = commit_info_of(info)
    match commit_info.get("kind"):
        case "rows" | "overwrite" | "position" | "upsert" | "history" | "deduplicate":
            head = f"{commit_info['pipeline']}/{commit_info['source']}"
            return {f"{head}/{partition}" for partition in commit_info["ranges"]}
        case "refresh":
            head = f"{commit_info['pipeline']}/#query"
            return {head, *(f"{head}/{table}" for table in commit_info["inputs"])}
        case "dead_letters":
            return set(commit_info["dead_letters"])
        case _:
            return set()
