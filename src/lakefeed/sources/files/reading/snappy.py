"""Snappy in frames, by framing_format.txt of https://github.com/google/snappy."""

from __future__ import annotations

import io
from typing import Any

import cramjam
import pyarrow as pa

_HEAD = b"\xff\x06\x00\x00sNaPpY"
"""How a stream begins; it may come again where files were put together."""


class SnappyFile(io.RawIOBase):
    """The data of framed snappy, a chunk at a time; the checksum of each is compared.

    Raises OSError without a number where the file is not whole, or is none. Raw snappy, without frames, is
    none: it has neither checksums nor an end.
    """

    def __init__(self, raw: pa.NativeFile) -> None:
        self._raw = raw
        self._began = False
        self._data = b""

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Take data of the chunk at hand, else of the next one that has some."""
        while not self._data and (head := self._raw.read(4)):
            self._data = self._next(bytes(head))
        part = self._data[: len(buffer)]
        buffer[: len(part)] = part
        self._data = self._data[len(part) :]
        return len(part)

    def _next(self, head: bytes) -> bytes:
        """The data of the chunk behind its head: at most 64 KB, and none of some kinds."""
        length = int.from_bytes(head[1:], "little")
        chunk = head + bytes(self._raw.read(length))
        if len(chunk) < 4 + length:
            raise OSError("it ends within a chunk")
        if not self._began and chunk != _HEAD:
            raise OSError("it does not begin as a framed stream does")
        self._began = True
        try:
            return bytes(cramjam.snappy.decompress(_HEAD + chunk))
        except cramjam.DecompressionError as error:
            raise OSError(str(error)) from None

    def close(self) -> None:
        """Close the file below, too."""
        self._raw.close()
        super().close()


def snappy_file(raw: pa.NativeFile) -> io.BufferedReader:
    """The data of a framed file from its beginning."""
    return io.BufferedReader(SnappyFile(raw), 1 << 16)
