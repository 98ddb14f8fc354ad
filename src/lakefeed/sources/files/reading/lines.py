"""Lines of a file, cut out of it with the byte at which each begins."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefeed.sources.files.reading.opening import Stream, Unreadable
from lakefeed.units import format_size

CHUNK = 8 * 2**20
LONGEST_LINE = 64 * 2**20
MARK = b"\xef\xbb\xbf"

FileOffsets = npt.NDArray[np.int64]
Records = tuple[list[bytes], FileOffsets]
"""Payloads, and the offset of each in its file."""


def byte_lines(stream: pa.NativeFile, first: int, end: int, *, keep_blank: bool = False) -> Iterator[Records]:
    """The lines that begin in a range of bytes, each with the byte that it begins at.

    Empty lines are left out, and unless `keep_blank` lines of white space are too.

    A line belongs to the range that its first byte is in, so ranges that follow each other share no line.
    """
    at = max(0, first - 1)
    stream.seek(at)
    rest = b""
    skipping = first > 0
    while at < end:
        chunk = stream.read(CHUNK)
        text = rest + chunk
        if skipping and text:
            cut = text.find(b"\n") + 1
            if not cut and chunk:
                at, rest = at + len(text), b""
                continue
            at, text, skipping = at + cut, text[cut:] if cut else b"", False
        if at >= end:
            return
        whole = text.rfind(b"\n") + 1 if chunk else len(text)
        if not whole and chunk:
            rest = bounded(text)
            continue
        payloads, offsets = _cut(text[:whole], at, keep_blank=keep_blank)
        if at + whole > end:
            wanted = int(np.searchsorted(offsets, end))
            payloads, offsets = payloads[:wanted], offsets[:wanted]
        if payloads:
            yield payloads, offsets
        at, rest = at + whole, text[whole:]
        if not chunk:
            return


def numbered_lines(stream: Stream, *, keep_blank: bool = False) -> Iterator[Records]:
    """All lines, each with its number, from 0; those that are left out are counted."""
    rest, number = b"", 0
    while True:
        chunk = bytes(stream.read(CHUNK))
        text = rest + chunk
        whole = text.rfind(b"\n") + 1 if chunk else len(text)
        rest = bounded(text[whole:])
        if whole:
            lines = _lines(text[:whole], is_first=not number)
            numbers = np.arange(number, number + len(lines))
            payloads, offsets = _filled(text[:whole], lines, numbers, keep_blank=keep_blank)
            number += len(lines)
            yield payloads, offsets
        if not chunk:
            return


def _cut(text: bytes, at: int, *, keep_blank: bool) -> Records:
    lines = _lines(text, is_first=at == 0)
    lengths = np.fromiter(map(len, lines), np.int64, len(lines)) + 1
    if at == 0 and text.startswith(MARK):
        lengths[0] += len(MARK)
    return _filled(text, lines, at + np.cumsum(lengths) - lengths, keep_blank=keep_blank)


def _lines(text: bytes, *, is_first: bool) -> list[bytes]:
    lines = text.removesuffix(b"\n").split(b"\n")
    if is_first:
        lines[0] = lines[0].removeprefix(MARK)
    return lines


def _filled(text: bytes, lines: list[bytes], offsets: FileOffsets, *, keep_blank: bool) -> Records:
    """The lines that are records, without the carriage returns of Windows."""
    if b"\r" in text:
        lines = [line.removesuffix(b"\r") for line in lines]
    # A blank line begins with white space, as few lines do.
    may_be_blank = not keep_blank and (text[:1].isspace() or b"\n " in text or b"\n\t" in text)
    if b"" not in lines and not may_be_blank:
        return lines, offsets
    kept = [at for at, line in enumerate(lines) if line and not (may_be_blank and line.isspace())]
    return [lines[at] for at in kept], offsets[kept]


def bounded(text: bytes) -> bytes:
    """A part of a record that has not ended yet. Raises Unreadable where it is too long."""
    if len(text) > LONGEST_LINE:
        raise Unreadable("too_large", f"a line of more than {format_size(LONGEST_LINE)}")
    return text
