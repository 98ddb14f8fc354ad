"""From which event a row came, for rows of a function that does not say: found by calling it again.

The result for a batch is the results of its rows, one after the other. So as many rows come before those of
an event as the function makes of the events before it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, overload

import numpy as np

from lakefeed.errors import TableError

_Indexes = np.ndarray[Any, Any]
_MANY = "The result for a batch must be the results of its rows, one after the other."


class Searched(Sequence[int]):
    """For each row the index of its event, which is looked for when somebody asks."""

    def __init__(self, find: Callable[[int], int], indexes: _Indexes) -> None:
        self._find, self._indexes = find, indexes

    def __len__(self) -> int:
        return len(self._indexes)

    @overload
    def __getitem__(self, row: int) -> int: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[int]: ...
    def __getitem__(self, row: int | slice) -> int | Sequence[int]:
        """The index of the event that a row came from; a slice looks for nothing yet."""
        return self.take(row) if isinstance(row, slice) else self._find(int(self._indexes[row]))

    def take(self, rows: _Indexes | slice) -> Searched:
        """Some of the rows."""
        return Searched(self._find, self._indexes[rows])


class Search:
    """Looks for the event of a row among those that the function was called with, by halving them."""

    def __init__(
        self, count: Callable[[int, int], int], span: tuple[int, int], rows: int, given: Sequence[int]
    ) -> None:
        self._count, self._span, self._given = count, span, given
        self._rows = {span: rows}

    def find(self, row: int) -> int:
        """The index of the event that a row came from."""
        first, end = self._span
        while end - first > 1:
            middle = (first + end) // 2
            left = self._left(first, middle, end)
            if row < left:
                end = middle
            else:
                row, first = row - left, middle
        return int(self._given[first])

    def _left(self, first: int, middle: int, end: int) -> int:
        """How many rows come of the left half."""
        if (first, middle) not in self._rows:
            whole, left = self._rows[first, end], self._count(first, middle)
            if left > whole:
                raise TableError(
                    f"`python` made {left:,} rows of {middle - first:,} events, but {whole:,} of these and "
                    f"{end - middle:,} more.\n{_MANY}"
                )
            self._rows[first, middle], self._rows[middle, end] = left, whole - left
        return self._rows[first, middle]


def joined(pieces: Sequence[Sequence[int]]) -> Sequence[int]:
    """The indexes of rows in several pieces, one after the other."""
    if len(pieces) == 1:
        return pieces[0]
    if not any(isinstance(piece, Searched) for piece in pieces):
        return [index for piece in pieces for index in piece]
    starts = list(accumulate(map(len, pieces), initial=0))

    def find(row: int) -> int:
        piece = bisect_right(starts, row) - 1
        return int(pieces[piece][row - starts[piece]])

    return Searched(find, np.arange(starts[-1]))


def told(indexes: Sequence[int]) -> Sequence[int]:
    """The indexes of rows that are only counted; all of them the first one's where they would be searched."""
    return [indexes[0]] * len(indexes) if isinstance(indexes, Searched) else indexes


def rows_of(indexes: Sequence[int], events: Iterable[int]) -> list[int]:
    """The indexes of all rows that came from these events."""
    if isinstance(indexes, Searched):
        # Looked for in the order of the events.
        spans = [range(bisect_left(indexes, one), bisect_right(indexes, one)) for one in sorted(set(events))]
        return [index for span in spans for index in span]
    found: list[int] = np.flatnonzero(np.isin(np.asarray(indexes), list(events))).tolist()
    return found
