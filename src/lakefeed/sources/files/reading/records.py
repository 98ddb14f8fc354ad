"""Payloads cut out of a file, in the way that the format of its source asks for."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from lakefeed.sources.files.piece import Piece
from lakefeed.sources.files.reading.avro import avro_records
from lakefeed.sources.files.reading.csv import csv_records
from lakefeed.sources.files.reading.json_values import has_values, is_array, may_have_values, values
from lakefeed.sources.files.reading.lines import LONGEST_LINE, Records, byte_lines, numbered_lines
from lakefeed.sources.files.reading.opening import (
    FileOpener,
    Stream,
    Unreadable,
    codec_by_content,
    codec_of,
    encoding_by_content,
    refuse_workbook,
)
from lakefeed.sources.json_array import SPACE
from lakefeed.units import format_size

if TYPE_CHECKING:
    from lakefeed.formats.csv.format import CsvFormat
    from lakefeed.sources.files.source import FilesSource

_BINARY = ("avro", "bytes")
"""Formats whose files are read as they are, whatever their first bytes."""
_BEGINNING = 4096
_PART = 1 << 20
_CHUNK = 8 * 2**20
_LARGEST = 1 << 30
"""Bytes of a file that has to be in memory whole: JSON that is not lines, or one payload."""


def records(opener: FileOpener, source: FilesSource, piece: Piece) -> Iterator[Records]:
    """The payloads of a piece, each with its offset in the file. Raises Unreadable or FileNotFoundError."""
    kind, codec = source.format.type, codec_of(piece.file.path)
    if kind in _BINARY:
        with opener.content(piece.file, codec) as stream:
            yield from avro_records(stream) if kind == "avro" else [([_whole(stream)], np.zeros(1, np.int64))]
        return
    if codec is None:
        with opener.open(piece.file.path) as raw:
            beginning = bytes(raw.read(_BEGINNING))
            raw.seek(0)
            codec = codec_by_content(beginning)
            if codec is None:
                if kind in source.line_formats and not (source.encoding or encoding_by_content(beginning)):
                    refuse_workbook(beginning)
                    yield from _by_byte(raw, source, piece)
                elif not piece.first:
                    yield from _by_number(raw, source)
                return
    if not piece.first:
        with opener.content(piece.file, codec) as opened:
            yield from _by_number(opened, source)


def _by_byte(stream: pa.NativeFile, source: FilesSource, piece: Piece) -> Iterator[Records]:
    """The records that begin in the piece, by the byte at which they begin."""
    kind, path = source.format.type, source.path_of_records
    end = piece.file.size if piece.end is None else piece.end
    as_values = bool(path) or _look(stream, kind)[1]
    stream.seek(0)
    if not as_values:
        yield from byte_lines(stream, piece.first, end, keep_blank=kind == "text")
        return
    try:
        for payloads, offsets in values(_whole(stream), path):
            first, last = np.searchsorted(offsets, (piece.first, end))
            if last > first:
                yield payloads[first:last], offsets[first:last]
    except Unreadable:
        # The piece with the first byte reports it.
        if not piece.first:
            raise


def _by_number(opened: Stream, source: FilesSource) -> Iterator[Records]:
    """All records of a file, by their number."""
    kind, path = source.format.type, source.path_of_records
    beginning = bytes(opened.read(_BEGINNING))
    refuse_workbook(beginning)
    encoding = source.encoding or encoding_by_content(beginning)
    stream: Stream = _PushedBack(beginning, opened)
    stream = _Recoded(stream, encoding) if encoding else stream
    if kind == "csv":
        options = cast("CsvFormat", source.format)
        yield from csv_records(stream, options.delimiter, options.quote, header=options.header)
        return
    beginning, as_values = (b"", True) if path else _look(stream, kind)
    stream = _PushedBack(beginning, stream)
    if not as_values:
        yield from numbered_lines(stream, keep_blank=kind == "text")
        return
    number = 0
    for payloads, _ in values(_whole(stream), path):
        yield payloads, np.arange(number, number + len(payloads))
        number += len(payloads)


def _look(stream: Stream, kind: str) -> tuple[bytes, bool]:
    """As much of a file as shows whether it has JSON values rather than lines, and whether it has."""
    if kind == "text":
        return b"", False
    beginning = _more(stream, b"", lambda text: b"\n" in text.lstrip(SPACE))
    if is_array(beginning) or not may_have_values(beginning):
        return beginning, is_array(beginning)
    beginning = _more(stream, beginning, lambda _: False)
    return beginning, has_values(beginning)


def _more(stream: Stream, text: bytes, is_enough: Callable[[bytes], bool]) -> bytes:
    """The text and what follows, until it is enough, ends, or has as many bytes as a line may have."""
    parts, size = [text], len(text)
    while size < LONGEST_LINE and not is_enough(parts[-1]):
        part = bytes(stream.read(_BEGINNING if not size else _PART))
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)


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
