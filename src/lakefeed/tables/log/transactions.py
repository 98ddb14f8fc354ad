"""Positions in a Delta log: every `txn` action of a table, read without asking for each application by name.

delta-rs answers for one application id at a time and needs up to some milliseconds for each; a topic with
many partitions has many ids, and some are not known in advance. The log itself holds them all in one place.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefeed.errors import TableError
from lakefeed.stores import store_path

_LOG = "_delta_log"
_FILES = (b'{"add"', b'{"remove"', b'{"cdc"')


@dataclass
class LogEntry:
    """What one version of a table says about positions and about itself."""

    transactions: dict[str, int] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    reshapes: bool = False
    """Whether it changes what a table is: its columns, properties or protocol."""
    digest: bytes = b""
    """By which the same content is known again."""


def read_entry(store: pafs.FileSystem, version: int) -> LogEntry:
    """Read one commit. Raises FileNotFoundError when the log has been cleaned past it."""
    with store.open_input_stream(f"{_LOG}/{version:020d}.json") as stream:
        content = stream.read()
    entry = LogEntry(digest=hashlib.sha256(content).digest())
    for line in content.splitlines():
        if line.startswith(_FILES) or not line.strip():
            continue
        action = _action(line, store, version)
        if "txn" in action:
            entry.transactions[action["txn"]["appId"]] = action["txn"]["version"]
        elif "commitInfo" in action:
            entry.info = action["commitInfo"]
        elif "metaData" in action or "protocol" in action:
            entry.reshapes = True
    if missing := _promised(entry.info) - entry.transactions.keys():
        raise _torn(store, version, f"it holds no position for {', '.join(sorted(missing)[:3])}")
    return entry


def _transactions_in(content: bytes) -> dict[str, int]:
    actions = (orjson.loads(line)["txn"] for line in content.splitlines() if line.startswith(b'{"txn"'))
    return {action["appId"]: action["version"] for action in actions}


def _action(line: bytes, store: pafs.FileSystem, version: int) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise _torn(store, version, str(error)) from error


def _promised(info: dict[str, Any]) -> set[str]:
    """The application ids that an entry must hold by its own account, which stands before them.

    A disk that lost its power may have kept the beginning of an entry, rows included. Whoever believed it
    would read the events of these rows again.
    """
    text = info.get("lakefeed")
    commit_info = json.loads(text) if isinstance(text, str) else {}
    match commit_info.get("kind"):
        case "rows" | "overwrite" | "position":
            head = f"{commit_info['pipeline']}/{commit_info['source']}"
            return {f"{head}/{partition}" for partition in commit_info["ranges"]}
        case "letters":
            return set(commit_info["letters"])
        case _:
            return set()


def _torn(store: pafs.FileSystem, version: int, why: str) -> TableError:
    return TableError(
        f"{store_path(store)}: version {version} of the table's log is damaged: {why}.\n"
        f"Nothing was written. Bring {_LOG}/{version:020d}.json back from a backup; "
        "if it is the newest version, you may delete it instead:\nits events are read again."
    )


def read_transactions(store: pafs.FileSystem, version: int) -> dict[str, int]:
    """The last transaction version by application id, as of one version of the table."""
    transactions, start = _from_checkpoint(store, version)
    for number in range(start, version + 1):
        transactions.update(read_entry(store, number).transactions)
    return transactions


def _from_checkpoint(store: pafs.FileSystem, version: int) -> tuple[dict[str, int], int]:
    """Transactions of the newest checkpoint at or before `version`, and the first version after it."""
    paths = _checkpoint_paths(store, version)
    transactions: dict[str, int] = {}
    for path in paths:
        if path.endswith(".json"):
            with store.open_input_stream(path) as stream:
                transactions.update(_transactions_in(stream.read()))
            continue
        file = pq.ParquetFile(store.open_input_file(path))
        if "txn" not in file.schema_arrow.names:
            continue
        column = pa.chunked_array(file.read(columns=["txn"]).column("txn"))
        present = column.filter(pc.is_valid(column))
        for action in present.to_pylist():
            transactions[action["appId"]] = action["version"]
    return transactions, (_version_of(paths[0]) + 1 if paths else 0)


def _checkpoint_paths(store: pafs.FileSystem, version: int) -> list[str]:
    hint = last_checkpoint(store)
    if hint is None or hint > version:
        names = [
            info.path
            for info in store.get_file_info(pafs.FileSelector(_LOG))
            if ".checkpoint." in info.base_name
        ]
        found = [
            name for name in names if name.endswith((".parquet", ".json")) and _version_of(name) <= version
        ]
        hint = max(map(_version_of, found), default=None)
        if hint is None:
            return []
    single = f"{_LOG}/{hint:020d}.checkpoint.parquet"
    if store.get_file_info(single).type == pafs.FileType.File:
        return [single]
    listed = store.get_file_info(pafs.FileSelector(_LOG))
    return sorted(info.path for info in listed if info.base_name.startswith(f"{hint:020d}.checkpoint."))


def last_checkpoint(store: pafs.FileSystem) -> int | None:
    """The version of the newest checkpoint, by what its writer left beside it; None where nothing is said."""
    try:
        with store.open_input_stream(f"{_LOG}/_last_checkpoint") as stream:
            return int(orjson.loads(stream.read())["version"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _version_of(path: str) -> int:
    return int(path.rsplit("/", 1)[-1].partition(".")[0])
