"""Elements of one JSON array, cut out of its text as they stand there: no number loses a digit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lakefeed.sources.files.reading.lines import MARK, Records
from lakefeed.sources.files.reading.opening import Unreadable
from lakefeed.sources.json_array import SPACE, ArrayScan

_AT_A_TIME = 50_000


def is_array(beginning: bytes) -> bool:
    """Whether a text that begins so is an array."""
    return beginning.removeprefix(MARK).lstrip(SPACE).startswith(b"[")


def elements(text: bytes) -> Iterator[Records]:
    """The elements of the array that a text is, each with the byte that it begins at. Raises Unreadable."""
    scan = ArrayScan(text)
    if scan.end is None:
        raise Unreadable("bad_json", "the array has no end: the file is cut off, or is no JSON")
    if text[scan.end + 1 :].strip(SPACE):
        raise Unreadable("bad_json", f"byte {scan.end + 2:,}: something follows the end of the array")
    starts, ends = scan.bounds()
    if len(starts) == 1 and not text[starts[0] : ends[0]].strip(SPACE):
        return
    for first in range(0, len(starts), _AT_A_TIME):
        some = slice(first, first + _AT_A_TIME)
        parts = [text[start:end] for start, end in zip(starts[some], ends[some], strict=True)]
        before = [len(part) - len(part.lstrip(SPACE)) for part in parts]
        yield [part.strip(SPACE) for part in parts], np.array(starts[some]) + np.array(before)
