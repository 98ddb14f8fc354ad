"""Records of CSV files: lines, but for line breaks in quotes; each may carry the header of its file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lakefeed.sources.files.reading.lines import CHUNK, MARK, FileOffsets, Records, bounded
from lakefeed.sources.files.reading.opening import Stream


def csv_records(stream: Stream, quote: str, *, header: bool) -> Iterator[Records]:
    """All records, each with its number, from 0. With `header`, the first line stands before each of them."""
    number, head = 0, b""
    for lines in _record_lines(stream, quote.encode()):
        if header and not head:
            head, lines = lines[0] + b"\n", lines[1:]
        kept = [at for at, line in enumerate(lines) if line]
        offsets = np.arange(number, number + len(lines))[kept]
        number += len(lines)
        yield [head + lines[at] for at in kept], offsets


def _record_lines(stream: Stream, quote: bytes) -> Iterator[list[bytes]]:
    """The records as they stand there, some at a time, without the line breaks at their ends."""
    rest, is_first = b"", True
    while True:
        chunk = bytes(stream.read(CHUNK))
        text = rest + chunk
        if is_first:
            text, is_first = text.removeprefix(MARK), False
        ends = _ends(text, quote)
        if not chunk and text and (not len(ends) or ends[-1] != len(text) - 1):
            ends = np.append(ends, len(text))
        starts = np.concatenate([[0], ends + 1])
        pairs = zip(starts.tolist(), ends.tolist(), strict=False)
        lines = [text[start:end].removesuffix(b"\r") for start, end in pairs]
        rest = bounded(text[starts[-1] :])
        if lines:
            yield lines
        if not chunk:
            return


def _ends(text: bytes, quote: bytes) -> FileOffsets:
    """The line breaks that end a record: an even number of quotes is before each."""
    signs = np.frombuffer(text, np.uint8)
    breaks = np.flatnonzero(signs == ord("\n"))
    if quote not in text:
        return breaks
    quotes = np.flatnonzero(signs == ord(quote))
    found: FileOffsets = breaks[np.searchsorted(quotes, breaks) % 2 == 0]
    return found
