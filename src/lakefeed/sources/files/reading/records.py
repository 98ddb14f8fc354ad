"""Payloads cut out of a file, in the way that the format of its source asks for."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from lakefeed.sources.files.piece import Piece
from lakefeed.sources.files.reading.arrays import elements, is_array
from lakefeed.sources.files.reading.avro import avro_records
from lakefeed.sources.files.reading.csv import csv_records
from lakefeed.sources.files.reading.lines import Records, byte_lines, numbered_lines
from lakefeed.sources.files.reading.opening import FileOpener, Stream, Unreadable, codec_of
from lakefeed.units import format_size

if TYPE_CHECKING:
    from lakefeed.formats.csv.format import CsvFormat
    from lakefeed.sources.files.source import FilesSource

_BEGINNING = 4096
_CHUNK = 8 * 2**20
_LARGEST = 1 << 30
"""Bytes of a file that has to be in memory whole: an array, or one payload."""


def records(opener: FileOpener, source: FilesSource, piece: Piece) -> Iterator[Records]:
    """The payloads of a piece, each with its offset in the file. Raises Unreadable or FileNotFoundError."""
    kind, plain = source.format.type, codec_of(piece.file.path) is None
    if kind in source.line_formats and plain and source.encoding is None:
        with opener.open(piece.file.path) as raw:
            yield from _plain_lines(raw, piece, may_be_array=kind != "text")
        return
    with opener.content(piece.file) as opened:
        stream = opened if source.encoding is None else _Recoded(opened, source.encoding)
        if kind == "csv":
            options = cast("CsvFormat", source.format)
            yield from csv_records(stream, options.quote, header=options.header)
        elif kind == "avro":
            yield from avro_records(stream)
        elif kind == "bytes":
            yield [_whole(stream)], np.zeros(1, np.int64)
        else:
            yield from _lines(stream, may_be_array=kind != "text")


def _plain_lines(stream: pa.NativeFile, piece: Piece, *, may_be_array: bool) -> Iterator[Records]:
    """Lines, or the elements of an array, that begin in the piece."""
    end = piece.file.size if piece.end is None else piece.end
    if not (may_be_array and is_array(stream.read(_BEGINNING))):
        yield from byte_lines(stream, piece.first, end)
        return
    stream.seek(0)
    try:
        for payloads, offsets in elements(_whole(stream)):
            first, last = np.searchsorted(offsets, (piece.first, end))
            if last > first:
                yield payloads[first:last], offsets[first:last]
    except Unreadable:
        # Told once, by who reads the beginning.
        if not piece.first:
            raise


def _lines(stream: Stream, *, may_be_array: bool) -> Iterator[Records]:
    """All lines, or all elements of an array, by their number."""
    beginning = bytes(stream.read(_BEGINNING))
    whole = _PushedBack(beginning, stream)
    if not (may_be_array and is_array(beginning)):
        yield from numbered_lines(whole)
        return
    number = 0
    for payloads, _ in elements(_whole(whole)):
        yield payloads, np.arange(number, number + len(payloads))
        number += len(payloads)


def _whole(stream: Stream) -> bytes:
    content = bytes(stream.read(_LARGEST + 1))
    if len(content) > _LARGEST:
        raise Unreadable(
            "too_large", f"more than {format_size(_LARGEST)}, and it can only be read as a whole"
        )
    return content


class _PushedBack:
    """A stream, and what was read of it already."""

    def __init__(self, beginning: bytes, stream: Stream) -> None:
        self._beginning, self._stream = beginning, stream

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end."""
        found, self._beginning = self._beginning, b""
        return found + bytes(self._stream.read(size - len(found)))


class _Recoded:
    """A stream of text in another encoding, as UTF-8."""

    def __init__(self, stream: Stream, encoding: str) -> None:
        self._stream, self._encoding = stream, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end. Raises Unreadable where it is no such text."""
        while len(self._rest) < size:
            chunk = bytes(self._stream.read(min(size, _CHUNK)))
            try:
                text = self._decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                raise Unreadable("bad_encoding", f"no text in {self._encoding}: {error.reason}") from None
            self._rest += text.encode()
            if not chunk:
                break
        found, self._rest = self._rest[:size], self._rest[size:]
        return found
