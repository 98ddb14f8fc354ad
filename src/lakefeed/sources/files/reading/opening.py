"""Files opened on a worker, from a disk or a store, plain or compressed; checked against the ledger."""

from __future__ import annotations

import lzma
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.fs as pafs

from lakefeed.errors import SourceUnavailable
from lakefeed.sources.files.piece import FoundFile
from lakefeed.sources.files.reading.snappy import snappy_file
from lakefeed.stores import StoreError, local_folder, open_store, tag
from lakefeed.units import format_size

_CODECS = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".bz2": "bz2",
    ".xz": "xz",
    ".sz": "framed snappy",
    ".snappy": "framed snappy",
}
"""What each end of a name means, as messages call it."""
_CODEC_MARKS = {
    "gzip": re.compile(rb"\x1f\x8b\x08"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "bz2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\0"),
}
"""The first bytes of compressed files; those of an empty bzip2 file differ."""
_ENCODING_MARKS = {
    b"\xff\xfe\0\0": "utf-32",
    b"\0\0\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
"""The first bytes of text, as editors and spreadsheets on Windows write it."""
_WORKBOOK_MARKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
MOST_EXPANSION = 1000
"""How many times larger a compressed file may become: what is more is no data, but a trap."""
_ALWAYS_ALLOWED = 64 * 2**20
_SECOND = 1_000_000
IN_MEMORY = 64 * 2**20
"""Bytes of a file that is held in memory whole."""


class Stream(Protocol):
    """What records are cut out of, from its beginning to its end."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end."""


class Unreadable(Exception):
    """A file that cannot be read, now or later: `code` and text are those of its dead letter."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def tells_of_content(error: Exception) -> bool:
    """Whether an error of a reader is about what is in a file, and not about the disk or the store."""
    return not isinstance(error, OSError) or (error.errno is None and not isinstance(error, StoreError))


def codec_of(path: str) -> str | None:
    """How a file is compressed, by the end of its name."""
    return _CODECS.get(f".{path.rpartition('.')[2].lower()}")


def codec_by_content(beginning: bytes) -> str | None:
    """How a file is compressed, by its first bytes."""
    return next((codec for codec, mark in _CODEC_MARKS.items() if mark.match(beginning)), None)


def encoding_by_content(beginning: bytes) -> str | None:
    """The encoding of a text, by its byte order mark; None for UTF-8."""
    return next((name for mark, name in _ENCODING_MARKS.items() if beginning.startswith(mark)), None)


def refuse_workbook(beginning: bytes) -> None:
    """Raise Unreadable for Excel workbooks and other archives."""
    if beginning.startswith(_WORKBOOK_MARKS):
        raise Unreadable(
            "bad_encoding", "an Excel workbook or a ZIP archive, which is not read; save each sheet as CSV"
        )


class FileOpener:
    """Opens the files of one source."""

    def __init__(self, base: str, storage: Mapping[str, str]) -> None:
        self._store = open_store(base, storage)
        self._local = local_folder(self._store) is not None
        self._base = base
        self._head = base.rstrip("/") + "/"

    def check(self, file: FoundFile) -> None:
        """Raise SourceUnavailable where another content than the one that was found is there by now.

        The driver then lists again, and decides by `on_change`. Raises FileNotFoundError.
        """
        if not self._is_same(file):
            raise SourceUnavailable(f"{file.path} has changed since it was found; the files are listed again")

    def exists(self, file: FoundFile) -> bool:
        """Whether there is a file at its path, with whichever content."""
        try:
            self._is_same(file)
        except FileNotFoundError:
            return False
        return True

    def holds(self, file: FoundFile) -> bool:
        """Whether a file is as it was found."""
        try:
            return self._is_same(file)
        except FileNotFoundError:
            return False

    def confirm_folder(self, file: FoundFile) -> None:
        """Raise SourceUnavailable where the folder of all files is away: then no file of it is gone."""
        folder = Path(file.path).parent if file.path == self._base else Path(self._base)
        if self._local and not folder.exists():
            raise SourceUnavailable(f"{folder} cannot be seen from here: its files are not read")

    def _is_same(self, file: FoundFile) -> bool:
        if file.etag is not None:
            found = tag(self._store, self._inside(file.path))
            if found is None:
                raise FileNotFoundError(file.path)
            return found == file.etag
        size, modified = self._status(file.path)
        # Stores tell the time of a listed file in other units than that of one asked about.
        unit = 1 if self._local else _SECOND
        return size == file.size and modified // unit == file.modified // unit

    def _status(self, path: str) -> tuple[int, int]:
        if self._local:
            status = Path(path).stat()
            return status.st_size, status.st_mtime_ns // 1000
        info = self._store.get_file_info(self._inside(path))
        if info.type != pafs.FileType.File:
            raise FileNotFoundError(path)
        return info.size, (info.mtime_ns or 0) // 1000

    def open(self, path: str) -> pa.NativeFile:
        """The bytes as they are. Raises FileNotFoundError."""
        return pa.OSFile(path) if self._local else self._store.open_input_file(self._inside(path))

    def content(self, file: FoundFile, codec: str | None) -> IO[Any] | pa.NativeFile:
        """The content from its beginning, decompressed. A compressed file is decompressed to its end before.

        Raises Unreadable.
        """
        if codec is None:
            return self.open(file.path)
        limit = max(_ALWAYS_ALLOWED, file.size * MOST_EXPANSION)
        parts, size = [], 0
        with self.open(file.path) as raw:
            stream = _decompressed(raw, codec)
            while part := _read(stream, codec):
                size += len(part)
                if size > limit:
                    raise Unreadable(
                        "too_large", f"more than {format_size(limit)} when decompressed, 1,000 times its size"
                    )
                if size <= IN_MEMORY:
                    parts.append(part)
                else:
                    parts.clear()
        if size <= IN_MEMORY:
            return pa.BufferReader(b"".join(parts))
        return _decompressed(self.open(file.path), codec)

    def _inside(self, path: str) -> str:
        return path.removeprefix(self._head)


def _decompressed(raw: pa.NativeFile, codec: str) -> IO[Any] | pa.NativeFile:
    if codec == "xz":
        return lzma.LZMAFile(raw)
    if codec == "framed snappy":
        return snappy_file(raw)
    return pa.CompressedInputStream(raw, codec)


def _read(stream: IO[Any] | pa.NativeFile, codec: str) -> bytes:
    try:
        return bytes(stream.read(1 << 20))
    except (EOFError, lzma.LZMAError, pa.ArrowInvalid, OSError) as error:
        if not tells_of_content(error):
            raise
        raise Unreadable("bad_compression", f"not whole, or not {codec}: {error}") from None
