"""Listing: the files that are there now, as columns. The only module that knows how stores list."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from stat import S_ISDIR

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.sources.files.discovery import FoundFiles
from lakefeed.sources.files.scope import LOG, Scope
from lakefeed.stores import found_objects, listed_objects, local_folder, open_store, store_errors

LISTED = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("modified", pa.timestamp("us", "UTC")),
        ("etag", pa.string()),
    ]
)
"""A file that is there: its whole path, and what tells one content from the next."""

Wanted = Callable[[pa.Table], npt.NDArray[np.bool_]]

_log = logging.getLogger("lakefeed")
_AT_A_TIME = 100_000
_Found = tuple[str, int, int, str | None]
"""The path below the base, the size, the time in microseconds, and the etag of a store."""


class Listing:
    """Lists the files of one scope, again and again. Raises FileNotFoundError or TableError.

    `wanted` says which of some listed files are of interest: the others do not stay in memory.
    """

    def __init__(self, scope: Scope, storage: Mapping[str, str], wanted: Wanted | None = None) -> None:
        self._scope, self._storage, self._wanted = scope, storage, wanted
        self._tables: set[str] = set()
        """Folders of a store that are Delta tables: a part of a listing may not show that."""
        self.last: str | None = None
        """The last name in the order of a store that was listed, of interest or not."""

    def everything(self) -> FoundFiles:
        """Every file that counts, but for empty ones."""
        scope = self._scope
        if (missing := missing_folder(scope.base)) is not None:
            raise FileNotFoundError(missing)
        with store_errors(scope.base):
            store = open_store(scope.base, self._storage)
            folder = local_folder(store)
            if folder is None:
                self._tables = set()
                return self._in_store(listed_objects(store))
            if folder.is_dir():
                return self._found(_on_disk(folder, scope), f"{folder.as_posix().rstrip('/')}/")
            status = folder.stat()
            one = (folder.as_posix(), status.st_size, status.st_mtime_ns // 1000, None)
            return self._found(iter([one]), "")

    def after(self, path: str) -> FoundFiles:
        """The files of a store whose paths sort behind one of them; asks for no others."""
        with store_errors(self._scope.base):
            store = open_store(self._scope.base, self._storage)
            return self._in_store(listed_objects(store, self._below(path)))

    def at(self, paths: Sequence[str]) -> FoundFiles:
        """Those of some files of a store that are there and count."""
        with store_errors(self._scope.base):
            inside = [self._below(path) for path in paths]
            self._tables |= {_table_of(one) for one in inside if f"{LOG}/" in one}
            wanted = [one for one in inside if self._scope.takes(one)]
            store = open_store(self._scope.base, self._storage)
            return self._in_store(iter(found_objects(store, wanted)))

    def _in_store(self, objects: Iterator[_Found]) -> FoundFiles:
        found = self._found(filter(self._counts, objects), self._head)
        # The log of a table may be listed behind its files.
        found.left_out = tuple(self._head + table for table in self._tables)
        return found

    def _counts(self, found: _Found) -> bool:
        if f"{LOG}/" in found[0]:
            self._tables.add(_table_of(found[0]))
            return False
        inside_a_table = any(found[0].startswith(table) for table in self._tables)
        return bool(found[1]) and self._scope.takes(found[0]) and not inside_a_table

    def _found(self, files: Iterator[_Found], head: str) -> FoundFiles:
        return FoundFiles(map(self._of_interest, _tables(files, head)))

    def _of_interest(self, files: pa.Table) -> pa.Table:
        self.last = max(self.last or "", pc.max(files["path"]).as_py(), key=str.encode)
        return files if self._wanted is None else files.filter(pa.array(self._wanted(files)))

    def _below(self, path: str) -> str:
        return path.removeprefix(self._head)

    @property
    def _head(self) -> str:
        return f"{self._scope.base.rstrip('/')}/"


def _table_of(path: str) -> str:
    """The folder of a table, given something in its log."""
    return path.split(f"{LOG}/")[0]


def missing_folder(base: str) -> str | None:
    """The folder on a disk that is not there."""
    folder = local_folder(open_store(base, {})) if "://" not in base else None
    return None if folder is None or folder.exists() else str(folder)


def is_local(scope: Scope, storage: Mapping[str, str]) -> bool:
    """Whether the files lie on a disk, where one can see them while they are written."""
    return local_folder(open_store(scope.base, storage)) is not None


def _tables(found: Iterator[_Found], head: str) -> Iterator[pa.Table]:
    while some := list(islice(found, _AT_A_TIME)):
        paths, sizes, times, etags = zip(*some, strict=True)
        columns = [
            pa.array([head + path for path in paths], pa.string()),
            pa.array(sizes, pa.int64()),
            pa.array(times, pa.int64()).cast(LISTED.field("modified").type),
            pa.array(etags, pa.string()),
        ]
        yield pa.Table.from_arrays(columns, schema=LISTED)


def _on_disk(base: Path, scope: Scope) -> Iterator[_Found]:
    """Walk the folders. A link to a file counts as the file, one to a folder is not followed."""
    waiting = [(str(base), "")]
    while waiting:
        folder, below = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                inside = list(entries)
        except (FileNotFoundError, NotADirectoryError):
            if not below:
                raise
            # Removed or renamed since the folder above was listed.
            continue
        if any(entry.name == LOG for entry in inside):
            # A Delta table has rows of its own, and perhaps it is one that this pipeline writes.
            continue
        for entry in inside:
            if not entry.name.isascii() and not _is_text(entry.path):
                continue
            if entry.is_dir(follow_symlinks=False):
                if scope.enters(entry.name):
                    waiting.append((entry.path, f"{below}{entry.name}/"))
            elif scope.takes(below + entry.name):
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue
                if status.st_size and not S_ISDIR(status.st_mode):
                    yield below + entry.name, status.st_size, status.st_mtime_ns // 1000, None


def _is_text(path: str) -> bool:
    """Whether a name can be written into a table."""
    try:
        path.encode()
    except UnicodeEncodeError:
        _tell_left_out(path)
        return False
    return True


@cache
def _tell_left_out(path: str) -> None:
    """Warn once of each: folders are listed again and again."""
    shown = path.encode(errors="backslashreplace").decode()
    _log.warning("%s is left out: its name is not UTF-8; rename it, and it is read", shown)
