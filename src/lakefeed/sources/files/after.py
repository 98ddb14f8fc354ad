"""After the commit: files that every table has are deleted, or moved away; done again, it does no harm."""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from lakefeed.errors import LakefeedError
from lakefeed.sources.files.known import DELETED, MOVED
from lakefeed.sources.files.piece import FoundFile
from lakefeed.sources.files.reading.opening import FileOpener
from lakefeed.sources.files.source import FilesSource
from lakefeed.stores import local_folder, open_store, store_errors, sync

_log = logging.getLogger("lakefeed")


class After:
    """Takes files away that were read: into the folder `move`, or for good where there is none."""

    MOST: ClassVar[int] = 1000
    """Files that are taken away before the source is looked at again."""

    def __init__(self, source: FilesSource, opener: FileOpener) -> None:
        self._base, self._delay, self._opener = source.scope.base, source.after_delay or 0.0, opener
        self._store = open_store(self._base, source.storage)
        self._into = None if source.moves_to is None else open_store(source.moves_to, source.storage)
        self._told = False

    @property
    def state(self) -> str:
        """What becomes of a file."""
        return DELETED if self._into is None else MOVED

    def due(self, rows: pa.Table) -> tuple[pa.Table, bool]:
        """Those of some rows of the ledger whose files may go, and whether others may go later."""
        # Without counts nobody knows that it was read: it may lie before `start`, or be unreadable.
        read = rows.filter(pc.is_valid(rows["rows"]))
        limit = int((time.time() - self._delay) * 1_000_000)
        due = read.filter(pc.less_equal(read["read_at"].cast(pa.int64()), limit))
        return due, due.num_rows < read.num_rows

    def take_away(self, due: pa.Table) -> pa.Table:
        """Take the files away; returns the rows of those that are gone by now.

        One that has changed since it was read stays where it is, and so does one that cannot be taken away.
        """
        times = due["modified"].cast(pa.int64()).to_pylist()
        done = []
        for row, modified in zip(due.to_pylist(), times, strict=True):
            file = FoundFile(row["number"], row["path"], row["size"], modified, row["etag"])
            done.append(self._is_gone(file))
        return due.filter(pa.array(done, pa.bool_()))

    def _is_gone(self, file: FoundFile) -> bool:
        inside = file.path.removeprefix(self._base.rstrip("/") + "/")
        try:
            self._opener.check(file)
            with store_errors(file.path):
                if self._into is not None:
                    self._copy(file, inside)
                    self._opener.check(file)
                if local_folder(self._store) is None:
                    # No store that obstore knows deletes only what has a certain etag.
                    self._store.delete_file(inside)
                else:
                    self._delete_on_disk(file)
        except FileNotFoundError:
            # By a run before this one, which was killed before it could say so.
            if local_folder(self._store) is not None:
                with suppress(FileNotFoundError, LakefeedError):
                    self._delete_on_disk(file)
            return True
        except LakefeedError as error:
            if not self._told:
                _log.warning("%s stays where it is: %s", file.path, str(error).splitlines()[0])
                self._told = True
            return False
        return True

    def _delete_on_disk(self, file: FoundFile) -> None:
        """Delete the file that was read, and no other one that takes its place this moment.

        It gets a name that nobody lists before it is looked at for the last time. A kill leaves it there
        until this is called again. Raises FileNotFoundError where there is neither of them.
        """
        path = Path(file.path)
        aside = path.with_name(f".{path.name}.{file.number}.read")
        if not aside.exists():
            path.rename(aside)
        try:
            self._opener.check(replace(file, path=str(aside)))
        except LakefeedError:
            # One that has come since is newer than what lay there a moment ago.
            with suppress(FileExistsError):
                _link(aside, path)
            aside.unlink(missing_ok=True)
            raise
        aside.unlink()

    def _copy(self, file: FoundFile, inside: str) -> None:
        """Bring the content to the other folder. A file of that name there gets company, not replaced."""
        assert self._into is not None
        name = inside
        found = self._into.get_file_info(name)
        if found.type == pafs.FileType.File:
            if found.size == file.size and self._is_copy(file, name):
                # By a run that was killed before it could delete the file.
                return self._sync(name)
            name = f"{inside}.{file.number}"
        folder = name.rpartition("/")[0]
        with suppress(NotImplementedError):
            self._into.create_dir(folder or ".", recursive=True)
        part = f"{folder}/.{name.rpartition('/')[2]}.tmp" if folder else f".{name}.tmp"
        with self._opener.open(file.path) as source, self._into.open_output_stream(part) as target:
            while content := source.read(1 << 20):
                target.write(content)
        self._into.move(part, name)
        self._sync(name)

    def _sync(self, name: str) -> None:
        """Let a copy outlive a power cut: the original goes next. A store has confirmed it already."""
        if self._into is not None and (into := local_folder(self._into)) is not None:
            sync([into / name, *(into / name).parents][: name.count("/") + 2])

    def _is_copy(self, file: FoundFile, name: str) -> bool:
        """Whether a file of the same size in the other folder has the same content."""
        assert self._into is not None
        with self._opener.open(file.path) as source, self._into.open_input_stream(name) as there:
            while content := source.read(1 << 20):
                if content != there.read(1 << 20):
                    return False
        return True


def _link(old: Path, new: Path) -> None:
    """Give a file another name. Raises FileExistsError where it is taken."""
    try:
        os.link(old, new)
    except FileExistsError:
        raise
    except OSError:
        # A disk on the network, or one for a camera, may have no links.
        if new.exists():
            raise FileExistsError(new) from None
        old.rename(new)
