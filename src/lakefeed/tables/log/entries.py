"""The log of a table, entry by entry: what each version added, removed and said about itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import orjson
import pyarrow.fs as pafs
import pyarrow.parquet as pq

LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*parquet")


@dataclass
class Entry:
    """One version, as far as its files are concerned. Actions are those of Delta's protocol."""

    version: int
    written: int
    """When its file was written, in milliseconds since 1970."""
    info: dict[str, Any] = field(default_factory=dict)
    adds: list[dict[str, Any]] = field(default_factory=list)
    removes: list[dict[str, Any]] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] | None = None

    @property
    def timestamp(self) -> int:
        """When it was committed, in milliseconds since 1970, by what it says or by its file.

        The later of the two counts, because what is young is kept.
        """
        said = [self.info.get(key) for key in ("inCommitTimestamp", "timestamp")]
        return max([self.written, *(moment for moment in said if isinstance(moment, int))])


def versions(store: pafs.FileSystem) -> dict[int, int]:
    """The versions whose entries are still there, oldest first, with when each was written."""
    found = {}
    for info in store.get_file_info(pafs.FileSelector(LOG)):
        match = _COMMIT.fullmatch(info.base_name)
        if match:
            found[int(match[1])] = (info.mtime_ns or 0) // 1_000_000
    return dict(sorted(found.items()))


def entries(store: pafs.FileSystem, first: int = 0, last: int | None = None) -> Iterator[Entry]:
    """The entries from `first` to `last` that are still there, oldest first."""
    for version, written in versions(store).items():
        if version >= first and (last is None or version <= last):
            yield read(store, version, written)


def read(store: pafs.FileSystem, version: int, written: int = 0) -> Entry:
    """One entry. Raises FileNotFoundError when the log has been cleaned past it."""
    with store.open_input_stream(f"{LOG}/{version:020d}.json") as stream:
        content = stream.read()
    entry = Entry(version, written)
    into = {"add": entry.adds, "remove": entry.removes, "cdc": entry.changes}
    for line in content.splitlines():
        if not line.strip():
            continue
        kind, action = next(iter(orjson.loads(line).items()))
        if kind in into:
            into[kind].append(action)
        elif kind == "commitInfo":
            entry.info = action
        elif kind == "metaData":
            entry.metadata = action
    return entry


def plain_path(action: Mapping[str, Any]) -> str:
    """The path of an action as it lies in the store; the log has it URL-encoded."""
    return unquote(action["path"])


def metadata(store: pafs.FileSystem) -> dict[str, Any] | None:
    """The newest `metaData` action: name, schema, partition columns, properties."""
    for version in reversed(versions(store)):
        found = read(store, version).metadata
        if found is not None:
            return found
    for file in _newest_checkpoint(store):
        for batch in file.iter_batches(columns=["metaData"]):
            for action in batch.column("metaData").drop_null().to_pylist():
                shape = action["format"]
                return {
                    **action,
                    "format": {**shape, "options": dict(shape["options"] or [])},
                    "configuration": dict(action["configuration"] or []),
                }
    return None


def checkpoint_version(store: pafs.FileSystem) -> int:
    """The version of the newest checkpoint, -1 where there is none."""
    names = [info.base_name for info in store.get_file_info(pafs.FileSelector(LOG))]
    return max((int(match[1]) for name in names if (match := _CHECKPOINT.fullmatch(name))), default=-1)


def tombstones(store: pafs.FileSystem, since: int) -> set[str]:
    """Paths that the newest checkpoint tells as removed at `since` (in milliseconds) or later."""
    paths: set[str] = set()
    for file in _newest_checkpoint(store):
        if "remove" not in file.schema_arrow.names:
            continue
        for batch in file.iter_batches(columns=["remove.path", "remove.deletionTimestamp"]):
            for action in batch.column("remove").drop_null().to_pylist():
                if (action["deletionTimestamp"] or 0) >= since:
                    paths.add(plain_path(action))
    return paths


def last_checkpoint(store: pafs.FileSystem) -> int | None:
    """The version of the newest checkpoint."""
    return max((version for version, _ in _checkpoints(store)), default=None)


def _newest_checkpoint(store: pafs.FileSystem) -> Iterator[pq.ParquetFile]:
    newest = last_checkpoint(store)
    for version, name in _checkpoints(store):
        if version == newest:
            yield pq.ParquetFile(store.open_input_file(f"{LOG}/{name}"))


def _checkpoints(store: pafs.FileSystem) -> list[tuple[int, str]]:
    names = [info.base_name for info in store.get_file_info(pafs.FileSelector(LOG))]
    return [(int(match[1]), name) for name in names if (match := _CHECKPOINT.fullmatch(name))]
