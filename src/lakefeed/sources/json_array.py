"""Where values of a JSON text begin and end, so that each is cut out of it byte for byte."""

from __future__ import annotations

import numpy as np

SPACE = b" \t\r\n"
_CHUNK = 512 * 1024
"""Bytes that are looked at together: several numbers are made for each of them."""


class ArrayScan:
    """The outermost objects and arrays of a text, and the commas of the first; nothing deeper is parsed."""

    def __init__(self, text: bytes, most: int | None = None) -> None:
        """Raises OverflowError where the first array has more than `most` elements."""
        self.starts: list[int] = []
        self.ends: list[int] = []
        """The brackets of each outermost value. The last value has no end where the text is cut off."""
        self._commas: list[int] = []
        self._depth = 0
        self._in_text = False
        self._escaped = False
        """Whether a backslash has ended what was looked at."""
        for at in range(0, len(text), _CHUNK):
            self._take(text[at : at + _CHUNK], at)
            if most is not None and len(self._commas) >= most:
                raise OverflowError

    @property
    def start(self) -> int:
        """The opening bracket of the first value; -1 where there is none."""
        return self.starts[0] if self.starts else -1

    @property
    def end(self) -> int | None:
        """The closing bracket of the first value; None where it is missing."""
        return self.ends[0] if self.ends else None

    def bounds(self) -> tuple[list[int], list[int]]:
        """The start and the end of each element of the first array, or member of the first object.

        They include the space around it. An empty array has one element.
        """
        assert self.end is not None
        return [self.start + 1, *(comma + 1 for comma in self._commas)], [*self._commas, self.end]

    def _take(self, chunk: bytes, at: int) -> None:
        signs = np.frombuffer(self._without_escapes(chunk), np.uint8)
        inside = (np.cumsum(signs == ord('"')) + self._in_text) % 2 == 1
        # `[` and `{` differ in one bit, and so do their counterparts.
        folded = signs | 0x20
        steps = (folded == ord("{")).astype(np.int8) - (folded == ord("}")).astype(np.int8)
        steps[inside] = 0
        depth = np.cumsum(steps, dtype=np.int32) + self._depth
        self.starts += (np.flatnonzero((depth == 1) & (steps == 1)) + at).tolist()
        is_first = not self.ends
        self.ends += (np.flatnonzero((depth == 0) & (steps == -1)) + at).tolist()
        if is_first:
            commas = np.flatnonzero((signs == ord(",")) & (depth == 1) & ~inside) + at
            self._commas += [comma for comma in commas.tolist() if self.end is None or comma < self.end]
        self._depth, self._in_text = int(depth[-1]), bool(inside[-1])

    def _without_escapes(self, chunk: bytes) -> bytes:
        """As many bytes, without quotes that a backslash escapes: those that are left begin or end a text."""
        text = b"\\" + chunk if self._escaped else chunk
        if b"\\" not in text:
            return chunk
        # Two backslashes are one character, the second of which escapes nothing.
        text = text.replace(b"\\\\", b"__")
        self._escaped = text.endswith(b"\\")
        return text.replace(b'\\"', b"__")[-len(chunk) :]
