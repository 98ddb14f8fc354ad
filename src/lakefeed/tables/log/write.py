"""The next entry of a log, a file that only one writer can make: its cost does not grow with the table.

delta-rs keeps every file of a table in its snapshot and goes through all of them at each commit, and through
every entry of the log: at 100,000 files that is half a second. An append needs neither.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import orjson
import pyarrow.fs as pafs
from deltalake import DeltaTable

from lakefeed import __version__
from lakefeed.stores import is_conditional, local_folder, put_entry, sync, tag
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.log.entry import LOG, entry_name
from lakefeed.tables.log.vector import DeletionVector

OWN_ENTRY = "lakefeed:"
"""How the engine of an entry that was written here begins."""
UNQUOTED = "/!$&'()+,-.:;=@_~"
"""What delta-rs leaves as it is in a path, besides letters and digits."""


def writes_entries(delta: DeltaTable, store: pafs.FileSystem) -> bool:
    """Whether the entries of a table may be written here; otherwise delta-rs must do it.

    That is a table on a disk, reached without options, or in a store that writes on condition. What its
    features ask of a commit is not looked at: a table of which one asks anything is not fed at all.
    """
    # The handle has no public name for its options.
    return puts_entries(store, delta._storage_options)


def puts_entries(store: pafs.FileSystem, options: Mapping[str, str] | None) -> bool:
    """The same of a table that delta-rs would reach with these options."""
    return not options if local_folder(store) is not None else is_conditional(store)


def footprint(store: pafs.FileSystem, version: int) -> Hashable | None:
    """By which an entry differs from another of the same version; None where there is none."""
    return tag(store, entry_name(version))


def add_action(
    path: str,
    size: int,
    partition_values: Mapping[str, str | None],
    stats: str,
    now: int,
    *,
    data_change: bool = True,
) -> dict[str, Any]:
    """A file that the entry adds. `path` is as it lies on the disk."""
    return {
        "add": {
            "path": quote(path, safe=UNQUOTED),
            "partitionValues": dict(partition_values),
            "size": size,
            "modificationTime": now,
            "dataChange": data_change,
            "stats": stats,
        }
    }


def remove_action(file: DataFile, now: int, *, data_change: bool = True) -> dict[str, Any]:
    """A file that the entry removes. Which one it is, is told by its path and its deletion vector."""
    vector = {"deletionVector": file.vector.action} if file.vector else {}
    return {
        "remove": {
            "path": file.logged,
            "deletionTimestamp": now,
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": dict(file.partition),
            "size": file.size,
            **vector,
        }
    }


def marked_actions(file: DataFile, vector: DeletionVector, now: int) -> Iterator[dict[str, Any]]:
    """A file that stays in the table, with another deletion vector than it had."""
    # Numbers as they are written: a decimal bound that is rounded would hide rows.
    verbatim = orjson.Fragment
    stats = json.loads(file.stats, parse_float=verbatim, parse_int=verbatim) if file.stats else {}
    # What the statistics say of the smallest and largest value is true, though such a row may be deleted.
    stats["tightBounds"] = False
    yield remove_action(file, now)
    yield {
        "add": {
            "path": file.logged,
            "partitionValues": dict(file.partition),
            "size": file.size,
            "modificationTime": file.modified or now,
            "dataChange": True,
            "stats": orjson.dumps(stats).decode(),
            "deletionVector": vector.action,
        }
    }


def feed_action(path: str, size: int, partition_values: Mapping[str, str | None]) -> dict[str, Any]:
    """A file of the change data feed. `path` is as it lies on the disk."""
    return {
        "cdc": {
            "path": quote(path, safe=UNQUOTED),
            "partitionValues": dict(partition_values),
            "size": size,
            "dataChange": False,
        }
    }


def commit_info(
    partition_columns: list[str], metadata: Mapping[str, Any], now: int, *, blind: bool = True
) -> dict[str, Any]:
    """What the entry says about itself; it stands first. A `blind` one was decided without reading files."""
    parameters = {
        "mode": "Append" if blind else "Overwrite",
        "partitionBy": orjson.dumps(partition_columns).decode(),
    }
    return {
        "commitInfo": {
            "timestamp": now,
            "operation": "WRITE",
            "operationParameters": parameters,
            "isBlindAppend": blind,
            "engineInfo": f"{OWN_ENTRY}{__version__}",
            **metadata,
        }
    }


def write_entry(
    store: pafs.FileSystem, version: int, actions: Iterable[Mapping[str, Any]], *, durable: bool = False
) -> tuple[bytes, Hashable | None]:
    """Put an entry in place, whole or not at all; its content and its footprint.

    Raises FileExistsError where the version exists already. On an object store it may be this very one, when
    an answer was lost on the way: whoever cares looks at it. A `durable` one on a disk outlives a power cut.
    """
    content = b"\n".join(orjson.dumps(action) for action in actions)
    return content, put_entry(store, entry_name(version), content, durable=durable)


def sync_folder(store: pafs.FileSystem) -> None:
    """Let the folder of a new table outlive a power cut."""
    folder = local_folder(store)
    if folder is not None:
        sync([folder, folder.parent])


def sync_checkpoint(store: pafs.FileSystem, version: int) -> None:
    """Let a checkpoint and what points to it outlive a power cut."""
    folder = local_folder(store)
    if folder is not None:
        log = folder / LOG
        sync([*log.glob(f"{version:020d}.checkpoint*"), log / "_last_checkpoint"])
        sync([log])


def sync_entry(store: pafs.FileSystem, version: int) -> None:
    """Let an entry that somebody else wrote outlive a power cut, where that is not the store's matter."""
    folder = local_folder(store)
    entry = folder and folder / entry_name(version)
    # Where it was cleaned away, a checkpoint stands for it.
    if entry and entry.exists():
        sync([entry])
        sync([entry.parent])
