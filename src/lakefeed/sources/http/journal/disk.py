"""Segments of a journal as files in a folder of this machine."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from lakefeed.errors import Fenced, SourceError
from lakefeed.sources.http.journal.segments import KEYS, segment_name, segment_numbers
from lakefeed.stores import sync

_LOCK = "lock"
_RESERVE = 32 * 1024


class DiskSegments:
    """Files that grow by appends, each of which is on the disk when the call returns."""

    grows = True
    """Whether a segment takes more than one write."""
    first = 0

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._open: tuple[int, int] | None = None

    def __str__(self) -> str:
        return str(self._folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the journal for the length of a run: two writers would give one number to two events."""
        try:
            self._make_folder()
            lock = (self._folder / _LOCK).open("a+")
        except OSError as error:
            raise SourceError(
                f"the journal {self._folder} cannot be written: {error.strerror}.\n"
                "Set `journal` to a folder that can, on a disk that survives a restart of the machine."
            ) from error
        with lock:
            _take(lock, self._folder)
            self._fill_reserve(len(self.keys()))
            yield
            self._close()

    def _make_folder(self) -> None:
        """With the folders above it; their names must outlive a power cut as the events do."""
        folder = self._folder.absolute()
        missing = [one for one in (folder, *folder.parents) if not one.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        if missing:
            sync([one.parent for one in missing])

    def numbers(self) -> list[int]:
        """The segments that there are, in their order."""
        with suppress(FileNotFoundError):
            return segment_numbers(file.name for file in self._folder.iterdir())
        return []

    def read(self, number: int, start: int = 0, end: int | None = None) -> bytes:
        """Some bytes of a segment. Raises FileNotFoundError."""
        with self._file(number).open("rb") as file:
            file.seek(start)
            return file.read(-1 if end is None else end - start)

    def append(self, number: int, at: int, parts: list[bytes]) -> None:
        """Write behind the bytes that are there, and wait for the disk; on an error nothing has changed.

        Raises OSError; if even the way back fails, `cut` must succeed before the next append.
        """
        file = self._opened(number, new=at == 0)
        _write(file, b"".join(parts), at)
        os.fdatasync(file)
        if at == 0:
            sync([self._folder])

    def confirm(self) -> None:
        """The lock keeps every other run away."""

    def cut(self, number: int, size: int) -> None:
        """Take back all bytes of a segment from a byte on; the whole file if nothing stays."""
        if size == 0:
            self._close()
            self._file(number).unlink(missing_ok=True)
            sync([self._folder])
            return
        file = self._opened(number, new=False)
        os.ftruncate(file, size)
        os.fsync(file)

    def delete(self, number: int) -> None:
        """Let a segment go."""
        if self._open and self._open[0] == number:
            self._close()
        self._file(number).unlink(missing_ok=True)

    def save_keys(self, data: bytes) -> None:
        """Replace what is kept of segments that are about to go, in one step.

        On a disk that the journal itself has filled, segments could never go without the space in reserve.
        """
        try:
            self._replace_keys(data)
        except OSError:
            self._reserve.unlink(missing_ok=True)
            self._replace_keys(data)
        self._fill_reserve(len(data))

    def _replace_keys(self, data: bytes) -> None:
        new = self._folder / f"{KEYS}.new"
        try:
            new.write_bytes(data)
            sync([new])
            new.replace(self._folder / KEYS)
        except OSError:
            new.unlink(missing_ok=True)
            raise
        sync([self._folder])

    def _fill_reserve(self, keys: int) -> None:
        """Hold space for the keys of later; whoever cannot have it has no space for events either."""
        size = _RESERVE + 2 * keys
        with suppress(OSError), self._reserve.open("ab") as file:
            if file.tell() < size:
                os.posix_fallocate(file.fileno(), 0, size)

    @property
    def _reserve(self) -> Path:
        return self._folder / "reserve"

    def keys(self) -> bytes:
        """What `save_keys` has kept; nothing if it was never called."""
        with suppress(FileNotFoundError):
            return (self._folder / KEYS).read_bytes()
        return b""

    def _file(self, number: int) -> Path:
        return self._folder / segment_name(number)

    def _opened(self, number: int, *, new: bool) -> int:
        if self._open is None or self._open[0] != number:
            self._close()
            flags = os.O_WRONLY | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if new else 0)
            self._open = number, os.open(self._file(number), flags, 0o600)
        return self._open[1]

    def _close(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None


def _write(file: int, data: bytes, at: int) -> None:
    """All of it: a disk that is nearly full takes a part."""
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, at)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view, at = view[written:], at + written


def _take(lock: IO[str], folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Fenced(
            f"the journal {folder} is in use by another run.\n"
            "Stop that run first, or give this source a `journal` of its own."
        ) from None
