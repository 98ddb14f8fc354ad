"""Where the elements of a JSON array begin and end in its text, so that each is taken as it stands there."""

from __future__ import annotations

import numpy as np

SPACE = b" \t\r\n"
_CHUNK = 4 * 2**20
"""Bytes that are looked at together: several numbers are made for each of them."""


class ArrayScan:
    """The brackets of an array and the commas between its elements; what these hold is not looked at."""

    def __init__(self, text: bytes) -> None:
        self.start = -1
        self.end: int | None = None
        """None where the array does not end."""
        self._commas: list[int] = []
        self._depth = 0
        self._in_text = False
        self._escaped = False
        """Whether a backslash has ended what was looked at."""
        for at in range(0, len(text), _CHUNK):
            self._take(text[at : at + _CHUNK], at)

    def bounds(self) -> tuple[list[int], list[int]]:
        """Where each element begins, and where it ends, with the space around it. An empty array has one."""
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
        if self.start < 0 and (opened := np.flatnonzero(steps == 1)).size:
            self.start = at + int(opened[0])
        closed = np.flatnonzero((depth == 0) & (steps == -1))
        if self.end is None and closed.size:
            self.end = at + int(closed[0])
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
