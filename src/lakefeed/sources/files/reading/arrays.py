"""Elements of one JSON array, cut out of its text as they stand there: no number loses a digit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from lakefeed.sources.files.reading.lines import Records
from lakefeed.sources.files.reading.opening import Unreadable

_CHUNK = 4 * 2**20
_SPACE = b" \t\r\n"
_QUOTE, _BACKSLASH, _COMMA = ord('"'), ord("\\"), ord(",")
_AT_A_TIME = 50_000
_Bytes = npt.NDArray[np.uint8]
_Where = npt.NDArray[np.bool_]


def is_array(beginning: bytes) -> bool:
    """Whether a text that begins so is an array."""
    return beginning.removeprefix(b"\xef\xbb\xbf").lstrip(_SPACE).startswith(b"[")


def elements(text: bytes) -> Iterator[Records]:
    """The elements of the array that a text is, each with the byte that it begins at. Raises Unreadable."""
    scan = _Scan()
    for at in range(0, len(text), _CHUNK):
        scan.take(np.frombuffer(text, np.uint8, min(_CHUNK, len(text) - at), at), at)
    if scan.end is None:
        raise Unreadable("bad_json", "the array has no end: the file is cut off, or is no JSON")
    if text[scan.end + 1 :].strip(_SPACE):
        raise Unreadable("bad_json", f"byte {scan.end + 2:,}: something follows the end of the array")
    starts = [scan.start + 1, *(comma + 1 for comma in scan.commas)]
    ends = [*scan.commas, scan.end]
    if len(starts) == 1 and not text[starts[0] : ends[0]].strip(_SPACE):
        return
    for first in range(0, len(starts), _AT_A_TIME):
        some = slice(first, first + _AT_A_TIME)
        parts = [text[start:end] for start, end in zip(starts[some], ends[some], strict=True)]
        before = [len(part) - len(part.lstrip(_SPACE)) for part in parts]
        yield [part.strip(_SPACE) for part in parts], np.array(starts[some]) + np.array(before)


class _Scan:
    """Where an array begins and ends, and the commas between its elements; takes the text in parts."""

    def __init__(self) -> None:
        self.start = -1
        self.end: int | None = None
        self.commas: list[int] = []
        self._depth = 0
        self._in_text = False
        self._escaped = False

    def take(self, text: _Bytes, at: int) -> None:
        """Look at the next part of the text, which begins at a byte."""
        quotes = (text == _QUOTE) & ~self._escapes(text)
        inside = (np.cumsum(quotes) + self._in_text) % 2 == 1
        # `[` and `{` differ in one bit, and so do their counterparts.
        folded = text | 0x20
        steps = (folded == ord("{")).astype(np.int8) - (folded == ord("}")).astype(np.int8)
        steps[inside] = 0
        depth = np.cumsum(steps, dtype=np.int32) + self._depth
        if self.start < 0 and (opened := np.flatnonzero(steps == 1)).size:
            self.start = at + int(opened[0])
        closed = np.flatnonzero((depth == 0) & (steps == -1))
        if self.end is None and closed.size:
            self.end = at + int(closed[0])
        commas = np.flatnonzero((text == _COMMA) & (depth == 1) & ~inside) + at
        self.commas += [comma for comma in commas.tolist() if self.end is None or comma < self.end]
        self._depth, self._in_text = int(depth[-1]), bool(inside[-1])

    def _escapes(self, text: _Bytes) -> _Where:
        """The characters that a backslash before them escapes."""
        escaped = np.zeros(len(text), np.bool_)
        backslashes = np.flatnonzero(text == _BACKSLASH)
        escaped[0] = self._escaped
        self._escaped = False
        skip = 0 if escaped[0] else -1
        for at in backslashes.tolist():
            # Two backslashes are one character, the second of which escapes nothing.
            if at == skip:
                continue
            skip = at + 1
            if skip < len(text):
                escaped[skip] = True
            else:
                self._escaped = True
        return escaped
