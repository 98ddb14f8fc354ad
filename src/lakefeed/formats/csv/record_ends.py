"""Line breaks that end a record of separated values, as Python's csv module reads them.

A quote opens a field only where the field begins: in `1,5" pipe` it is a character like any other.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]


def record_ends(text: bytes, delimiter: bytes, quote: bytes) -> Offsets:
    """Where the line breaks are that are in no quoted field of a text, which begins with a record."""
    signs = np.frombuffer(text, np.uint8)
    breaks = np.flatnonzero(signs == ord("\n"))
    if quote not in text:
        return breaks
    if len(quote) == 1 and len(delimiter) == 1:
        quotes = np.flatnonzero(signs == ord(quote))
        if _all_open_a_field(signs, quotes, ord(delimiter)):
            return _in_even_gaps(breaks, quotes)
    edges = [edge for field in _quoted_field(delimiter, quote).finditer(text) for edge in field.span()]
    return _in_even_gaps(breaks, np.array(edges, np.int64))


def _all_open_a_field(signs: npt.NDArray[np.uint8], quotes: Offsets, delimiter: int) -> bool:
    """Whether every other quote is where a field begins, or repeats the quote before it."""
    opening = quotes[::2]
    before = signs[opening - 1]
    opens = (opening == 0) | (before == delimiter) | (before == ord("\n"))
    opens[1:] |= opening[1:] == quotes[1::2][: len(opening) - 1] + 1
    return bool(opens.all())


def _in_even_gaps(breaks: Offsets, edges: Offsets) -> Offsets:
    """The line breaks with an even number of edges before them."""
    outside: Offsets = breaks[np.searchsorted(edges, breaks, side="right") % 2 == 0]
    return outside


@lru_cache(maxsize=16)
def _quoted_field(delimiter: bytes, quote: bytes) -> re.Pattern[bytes]:
    """A field in quotes, up to its closing quote or to the end of the text."""
    start, sign = re.escape(delimiter), re.escape(quote)
    other = rb"[^%b]++" % sign if len(quote) == 1 else rb"(?!%b)(?s:.)" % sign
    return re.compile(
        rb"(?:\A|(?<=\n)|(?<=%b))%b(?:%b|%b%b)*+(?:%b|\Z)" % (start, sign, other, sign, sign, sign)
    )
