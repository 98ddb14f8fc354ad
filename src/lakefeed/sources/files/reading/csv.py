"""Records of CSV files: lines, but for line breaks in quotes; each may carry the header of its file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lakefeed.formats.csv.record_ends import record_ends
from lakefeed.sources.files.reading.lines import CHUNK, MARK, Records, bounded
from lakefeed.sources.files.reading.opening import Stream


def csv_records(stream: Stream, delimiter: str, quote: str, *, header: bool) -> Iterator[Records]:
    """All records, each with its number, from 0. With `header`, the first record stands before each of them.

    Lines of white space are no records.
    """
    number, head = 0, b""
    for lines in _record_lines(stream, delimiter.encode(), quote.encode()):
        kept = [at for at, line in enumerate(lines) if line and not line.isspace()]
        if header and not head and kept:
            head, first = lines[kept[0]] + b"\n", kept[0] + 1
            lines, kept = lines[first:], [at - first for at in kept[1:]]
        offsets = np.arange(number, number + len(lines))[kept]
        number += len(lines)
        yield [head + lines[at] for at in kept], offsets


def _record_lines(stream: Stream, delimiter: bytes, quote: bytes) -> Iterator[list[bytes]]:
    """The records as they stand there, some at a time, without the line breaks at their ends."""
    rest, is_first = b"", True
    while True:
        chunk = bytes(stream.read(CHUNK))
        text = rest + chunk
        if is_first:
            text, is_first = text.removeprefix(MARK), False
        ends = record_ends(text, delimiter, quote)
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
