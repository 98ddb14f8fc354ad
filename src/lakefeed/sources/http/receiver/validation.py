"""What tables would refuse of a request, asked before it is taken: in slices, each of which is soon done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from lakefeed.sources.http.journal.frame import Payloads
from lakefeed.sources.http.receiver.records import LARGE, parsing_cost

_ROWS = 1_000
_CELLS = 250_000
"""Values of a slice: payloads times columns."""
_CELL = 16
"""Bytes of memory that a value costs in the columns of Arrow, at most."""


class Validator(Protocol):
    """What of some payloads the tables of a source would refuse. Called from several threads."""

    def columns(self, stream: str) -> int:
        """The columns that a payload of a stream is decoded into, those of nested ones counted."""

    def __call__(self, stream: str, payloads: list[bytes]) -> dict[int, str]:
        """Which payloads would be dead letters, by index, and why."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Some payloads of a request, one after the other."""

    first: int
    """The number of the first one among all."""
    payloads: list[bytes]
    cost: int
    """Bytes of memory that it takes to decode them, about."""


def slices(payloads: Payloads, columns: int) -> Iterator[Slice]:
    """All payloads in their order, in slices for tables of so many columns."""
    ends = payloads.ends()
    most = max(1, min(_ROWS, _CELLS // max(1, columns)))
    first = start = 0
    while first < len(ends):
        fitting = int(np.searchsorted(ends, start + LARGE, side="right"))
        behind = max(first + 1, min(first + most, fitting))
        cuts = [start, *ends[first:behind].tolist()]
        texts = [payloads.data[one:other] for one, other in pairwise(cuts)]
        # An item of a list of structs takes as many values as a payload.
        rows = max(len(texts), payloads.data.count(b"{", start, cuts[-1]))
        cost = rows * columns * _CELL + 2 * parsing_cost(payloads.data, start, cuts[-1])
        yield Slice(first, texts, cost)
        first, start = behind, cuts[-1]
