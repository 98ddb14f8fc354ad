"""Every file in a table's directory by what it is: its data, its log, or not its own."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.fs as pafs

from lakefeed.columns.staged import FOLDER
from lakefeed.stores import local_folder, paged_objects, store_errors, store_path
from lakefeed.tables.log.entry import LOG

CHANGES = "_change_data"
_VECTOR = re.compile(r"deletion_vector_[0-9a-f-]{36}\.bin")


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file in the store. `path` is relative to the table."""

    path: str
    size: int
    modified: int
    """Milliseconds since 1970."""


@dataclass
class Listing:
    """Every file below a table's root, by what it is.

    Only Parquet files count as data: a table consists of nothing else, and a note that somebody left in its
    directory is not the table's to delete.
    """

    data: list[ListedFile] = field(default_factory=list)
    changes: list[ListedFile] = field(default_factory=list)
    """Files of the change data feed."""
    vectors: list[ListedFile] = field(default_factory=list)
    """Deletion vectors."""
    kept: list[ListedFile] = field(default_factory=list)
    """What Lakefeed keeps beside the table's files: staged changes, tombstones."""
    log: list[ListedFile] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    """Files that are not the table's."""
    nested: list[str] = field(default_factory=list)
    """Directories that hold a table of their own."""
    links: list[str] = field(default_factory=list)
    """Symbolic links; they are never followed."""


def listing(store: pafs.FileSystem, partition_columns: Collection[str]) -> Listing:
    """Look at everything below the table's root. Follows no link, and enters no table within the table."""
    found = Listing()
    root = local_folder(store)
    files = _walk(root, found) if root else _list(store, found)
    for file in files:
        _sort(file, partition_columns, found)
    return found


def file_sizes(store: pafs.FileSystem) -> dict[str, int]:
    """The size of every file under the table, by its path."""
    with store_errors(store_path(store)):
        found = store.get_file_info(pafs.FileSelector("", recursive=True))
    return {info.path: info.size for info in found if info.type == pafs.FileType.File}


def companion(path: str) -> str:
    """The checksum that Hadoop's local file system keeps for a file."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.crc" if folder else f".{name}.crc"


def _walk(root: Path, found: Listing) -> Iterator[ListedFile]:
    for folder, folders, names in os.walk(root, followlinks=False):
        here = Path(folder)
        below = here.relative_to(root).as_posix()
        if here != root and LOG in folders:
            found.nested.append(below)
            folders.clear()
            continue
        for name in [name for name in folders if (here / name).is_symlink()]:
            found.links.append((here / name).relative_to(root).as_posix())
        for name in names:
            path = (here / name).relative_to(root).as_posix()
            if (here / name).is_symlink():
                found.links.append(path)
                continue
            status = (here / name).lstat()
            yield ListedFile(path, status.st_size, int(status.st_mtime * 1000))


def _list(store: pafs.FileSystem, found: Listing) -> Iterator[ListedFile]:
    files, nested = [], set()
    for path, size, modified, _ in paged_objects(store):
        if f"/{LOG}/" in path:
            nested.add(path.split(f"/{LOG}/")[0])
        else:
            files.append(ListedFile(path, size, modified // 1000))
    found.nested.extend(sorted(nested))
    below = tuple(f"{folder}/" for folder in found.nested)
    return (file for file in files if not file.path.startswith(below))


def _sort(file: ListedFile, partition_columns: Collection[str], found: Listing) -> None:
    *folders, name = file.path.split("/")
    if folders[:1] == [LOG]:
        found.log.append(file)
    elif folders[:1] == [CHANGES] and name.endswith(".parquet") and not name.startswith("."):
        found.changes.append(file)
    elif folders[:1] == [FOLDER] and name.endswith(".parquet"):
        found.kept.append(file)
    elif any(_hidden(folder, partition_columns) for folder in folders) or name.startswith(("_", ".")):
        found.strange.append(file.path)
    elif _VECTOR.fullmatch(name):
        found.vectors.append(file)
    elif name.endswith(".parquet"):
        found.data.append(file)
    else:
        found.strange.append(file.path)


def _hidden(folder: str, partition_columns: Collection[str]) -> bool:
    """Whether a directory is not for data; that of a partition column is, however its name begins."""
    column, is_partition, _ = folder.partition("=")
    return folder.startswith(("_", ".")) and not (is_partition and column in partition_columns)
