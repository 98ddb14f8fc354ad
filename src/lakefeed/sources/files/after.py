"""After the commit: files that every table has are deleted, or moved away; done again, it does no harm."""

from __future__ import annotations

import logging
import time
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from lakefeed.errors import LakefeedError
from lakefeed.sources.files.ledger import DELETED, MOVED, READ, with_state
from lakefeed.sources.files.piece import FoundFile
from lakefeed.sources.files.reading.opening import FileOpener
from lakefeed.sources.files.source import FilesSource
from lakefeed.stores import open_store, store_errors

_log = logging.getLogger("lakefeed")
_AT_A_TIME = 1000
"""Files that are taken away before the source is looked at again."""


class After:
    """Takes files away that were read: into the folder `move`, or for good where there is none."""

    def __init__(self, source: FilesSource, opener: FileOpener) -> None:
        self._base, self._delay, self._opener = source.scope.base, source.after_delay or 0.0, opener
        self._store = open_store(self._base, source.storage)
        self._into = None if source.moves_to is None else open_store(source.moves_to, source.storage)
        self._told = False

    def due(self, rows: pa.Table, read_to: int) -> pa.Table:
        """Rows of the ledger whose files may go: read by every table, and for so long."""
        read = rows.filter(pc.and_(pc.equal(rows["state"], READ), pc.less(rows["number"], read_to)))
        # Without counts nobody knows that it was read: it may lie before `start`, or be unreadable.
        read = read.filter(pc.is_valid(read["rows"]))
        limit = int((time.time() - self._delay) * 1_000_000)
        due = read.filter(pc.less_equal(read["read_at"].cast(pa.int64()), limit))
        # What lies at a path is its last number; those before were overwritten.
        there = rows.filter(pc.is_in(rows["path"], value_set=due["path"]))
        newest = there.group_by("path").aggregate([("number", "max")])["number_max"]
        return due.filter(pc.is_in(due["number"], value_set=newest)).slice(0, _AT_A_TIME)

    def take_away(self, due: pa.Table) -> pa.Table:
        """Take the files away; returns the rows that the ledger gets for those that are gone by now.

        One that has changed since it was read stays where it is, and so does one that cannot be taken away.
        """
        times = due["modified"].cast(pa.int64()).to_pylist()
        done = []
        for row, modified in zip(due.to_pylist(), times, strict=True):
            file = FoundFile(row["number"], row["path"], row["size"], modified, row["etag"])
            done.append(self._is_gone(file))
        gone = due.filter(pa.array(done, pa.bool_()))
        return with_state(gone, DELETED if self._into is None else MOVED)

    def _is_gone(self, file: FoundFile) -> bool:
        inside = file.path.removeprefix(self._base.rstrip("/") + "/")
        try:
            self._opener.check(file)
            with store_errors(file.path):
                if self._into is not None:
                    self._copy(file, inside)
                    self._opener.check(file)
                self._store.delete_file(inside)
        except FileNotFoundError:
            # By a run before this one, which was killed before it could say so.
            return True
        except LakefeedError as error:
            if not self._told:
                _log.warning("%s stays where it is: %s", file.path, str(error).splitlines()[0])
                self._told = True
            return False
        return True

    def _copy(self, file: FoundFile, inside: str) -> None:
        """Bring the content to the other folder. A file of that name there gets company, not replaced."""
        assert self._into is not None
        name = inside
        found = self._into.get_file_info(name)
        if found.type == pafs.FileType.File:
            if found.size == file.size and self._is_copy(file, name):
                # By a run that was killed before it could delete the file.
                return
            name = f"{inside}.{file.number}"
        folder = name.rpartition("/")[0]
        with suppress(NotImplementedError):
            self._into.create_dir(folder or ".", recursive=True)
        part = f"{folder}/.{name.rpartition('/')[2]}.tmp" if folder else f".{name}.tmp"
        with self._opener.open(file.path) as source, self._into.open_output_stream(part) as target:
            while content := source.read(1 << 20):
                target.write(content)
        self._into.move(part, name)

    def _is_copy(self, file: FoundFile, name: str) -> bool:
        """Whether a file of the same size in the other folder has the same content."""
        assert self._into is not None
        with self._opener.open(file.path) as source, self._into.open_input_stream(name) as there:
            while content := source.read(1 << 20):
                if content != there.read(1 << 20):
                    return False
        return True
