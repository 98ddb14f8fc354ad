"""Differences between what is expected and what is there, column by column, whatever the order of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from lakefeed.pipeline.test_file import json_text

Expected = TypeVar("Expected")
Got = TypeVar("Got")

_LONGEST = 80


@dataclass(frozen=True)
class Difference:
    """One value that differs. `expected` or `got` is None where there is no such row at all."""

    table: str
    place: str
    column: str
    expected: str | None
    got: str | None

    def __str__(self) -> str:
        if self.got is None:
            return f"{self.place}: {self.column}: expected {self.expected}"
        wanted = "no such row" if self.expected is None else self.expected
        return f"{self.place}: {self.column}: expected {wanted}, got {self.got}"


@dataclass(frozen=True)
class Cell:
    """A column of one row, expected and found; equal or not."""

    column: str
    expected: str
    got: str
    equal: bool


def differences(
    table: str,
    noun: str,
    expected: Sequence[Expected],
    got: Sequence[Got],
    compare: Callable[[Expected, Got | None], list[Cell]],
    describe: Callable[[Got], dict[str, Any]],
) -> Iterator[Difference]:
    """Pair what is expected with what is there, and yield the differences.

    `compare` gives a cell for each column that is expected, `describe` the columns of what nobody expects.
    """
    cells = [[compare(one, other) for other in got] for one in expected]
    pairs = _matched([[all(cell.equal for cell in found) for found in row] for row in cells])
    pairs |= _nearest(cells, pairs)
    for at, one in enumerate(expected):
        if at in pairs:
            for cell in cells[at][pairs[at]]:
                if not cell.equal:
                    yield Difference(table, f"{noun} {at + 1} differs", cell.column, cell.expected, cell.got)
            continue
        for cell in compare(one, None):
            yield Difference(table, f"{noun} {at + 1} is missing", cell.column, cell.expected, None)
    for at, other in enumerate(got):
        if at not in pairs.values():
            for column, value in describe(other).items():
                yield Difference(table, f"unexpected {noun}", column, None, shown(value))


def shown(value: Any) -> str:
    """A value as a test would write it, at most 80 characters of it."""
    text = json_text(_plain(value))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"hex": value.hex()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    moment = getattr(value, "isoformat", None)
    return moment().replace("+00:00", "Z") if moment else value


def _matched(fits: list[list[bool]]) -> dict[int, int]:
    """As many pairs of an expected and a found row that fit as there can be.

    A row of few columns fits several; a pair is changed if that allows one more.
    """
    taken: dict[int, int] = {}

    def pair(at: int, tried: set[int]) -> bool:
        for other, fit in enumerate(fits[at]):
            if fit and other not in tried:
                tried.add(other)
                if other not in taken or pair(taken[other], tried):
                    taken[other] = at
                    return True
        return False

    for at in range(len(fits)):
        pair(at, set())
    return {at: other for other, at in taken.items()}


def _nearest(cells: list[list[list[Cell]]], pairs: dict[int, int]) -> dict[int, int]:
    """Pairs of the rows that are left, those first that differ least; rows that share nothing are none."""
    found: dict[int, int] = {}
    wrong = [
        (sum(not cell.equal for cell in row), at, other)
        for at, rows in enumerate(cells)
        for other, row in enumerate(rows)
        if at not in pairs and other not in pairs.values() and any(cell.equal for cell in row)
    ]
    for _, at, other in sorted(wrong):
        if at not in found and other not in found.values():
            found[at] = other
    alone = [at for at in range(len(cells)) if at not in pairs and at not in found]
    free = {other for rows in cells for other in range(len(rows))} - {*pairs.values(), *found.values()}
    # One of each is left: they are compared, however little they share.
    return found | ({alone[0]: free.pop()} if len(alone) == len(free) == 1 else {})
