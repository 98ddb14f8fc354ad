"""Two sides of a copied stream, counted by ranges of the key; the rows of ranges that differ, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from lakefeed.reports.copied_stream import CopiedStream, SomeRows
from lakefeed.reports.row_hashes import Hashes, Numbers, Totals, sorted_pairs
from lakefeed.tables.write.keyed.keys import equal

_MOST_ROWS = 2_000_000
"""Rows of differing ranges that are compared at a time; each takes 16 bytes."""
MOST_KEYS = 1000
"""Differing keys of a stream that a report names."""

What = Literal["missing", "extra", "values"]
Progress = Callable[[int, str], None]


@dataclass
class DifferentRow:
    """A row that the source and its copy do not have alike."""

    key: dict[str, Any]
    what: What
    """`missing` in the copy, `extra` in the copy, or other `values`."""
    columns: list[str] = field(default_factory=list)
    """The columns with other values."""


@dataclass
class DifferentRange:
    """A range of keys in which rows differ."""

    range: str
    source_rows: int
    copy_rows: int
    missing: int = 0
    extra: int = 0
    values: int = 0
    rows: list[DifferentRow] = field(default_factory=list)
    """The first of them."""


@dataclass
class Comparison:
    """A stream and its copy: the source at one moment, the table in one version."""

    stream: str
    moment: str
    """The position of the source's snapshot."""
    position: str
    """The position of the copy."""
    version: int
    columns: list[str]
    """The columns that were compared."""
    left_out: list[str]
    """What was not compared, in words."""
    source_rows: int = 0
    copy_rows: int = 0
    ranges: int = 1
    waiting: int = 0
    """Rows that differ, and have changed between the two positions."""
    different: list[DifferentRange] = field(default_factory=list)


class Comparing:
    """Compares one stream with its copy."""

    def __init__(
        self, pair: CopiedStream, changed: Hashes | None, comparison: Comparison, progress: Progress
    ) -> None:
        """`changed` are hashes of keys that may differ, in order; None: all may."""
        self._pair, self._changed, self._comparison, self._progress = pair, changed, comparison, progress
        self._there, self._here = Totals.of(pair.ranges.count), Totals.of(pair.ranges.count)
        self._found: dict[int, DifferentRange] = {}
        self._named = 0

    def run(self) -> Comparison:
        """Count both sides by ranges, then look at the rows of those that differ."""
        comparison = self._comparison
        for totals, sides, side in (
            (self._there, self._pair.source_rows(), "source"),
            (self._here, self._pair.copy_rows(), "copy"),
        ):
            for some in sides:
                totals.add(some.ranges, some.hashes)
                self._progress(int(totals.counts.sum()), side)
        comparison.source_rows = int(self._there.counts.sum())
        comparison.copy_rows = int(self._here.counts.sum())
        comparison.ranges = self._pair.ranges.count
        for group in self._groups(self._there.differing(self._here)):
            self._look(group)
        comparison.different = [self._found[number] for number in sorted(self._found)]
        return comparison

    def _groups(self, ranges: Numbers) -> Iterator[Numbers]:
        """Differing ranges, as many at a time as memory has room for."""
        sizes = (self._there.counts + self._here.counts)[ranges]
        number = np.cumsum(sizes) // _MOST_ROWS
        for one in np.unique(number):
            yield ranges[number == one]

    def _look(self, group: Numbers) -> None:
        """Find the rows that differ in some ranges."""
        read = [(some.keys, some.hashes) for some in self._pair.source_rows(group)]
        keys, hashes = sorted_pairs([one for one, _ in read], [one for _, one in read])
        matched = np.zeros(len(keys), np.bool_)
        others: dict[int, tuple[DifferentRow, pa.RecordBatch]] = {}
        for some in self._pair.copy_rows(group):
            at, known = _places(keys, some.keys)
            first = np.zeros(len(known), np.bool_)
            first[np.unique(some.keys, return_index=True)[1]] = True
            known &= first
            known[known] = ~matched[at[known]]
            self._note(some, np.flatnonzero(~known), "extra")
            differs = np.flatnonzero(known)
            differs = differs[hashes[at[differs]] != some.hashes[differs]]
            for row, told in self._note(some, differs, "values"):
                others[int(some.keys[row])] = told, some.values.slice(row, 1)
            matched[at[known]] = True
        missing = keys[:0] if self._pair.filters else np.unique(keys[~matched])
        wanted = np.union1d(missing, np.array([*others], np.uint64))
        if len(wanted):
            self._explain(group, wanted, missing, others)

    def _explain(
        self,
        group: Numbers,
        wanted: Hashes,
        missing: Hashes,
        others: Mapping[int, tuple[DifferentRow, pa.RecordBatch]],
    ) -> None:
        """Read the source once more, for the keys of missing rows and the columns that differ."""
        for some in self._pair.source_rows(group):
            some = some.chosen(np.isin(some.keys, wanted))
            self._note(some, np.flatnonzero(np.isin(some.keys, missing)), "missing")
            for row, key in enumerate(some.keys.tolist()):
                if key in others:
                    told, own = others[key]
                    mine = some.values.slice(row, 1)
                    told.columns = [
                        one for one in own.schema.names if not equal(mine.column(one), own.column(one))[0]
                    ]

    def _note(self, some: SomeRows, rows: Numbers, what: What) -> list[tuple[int, DifferentRow]]:
        """Count rows that differ, but for those that wait; returns those that the report names."""
        waits = np.ones(len(rows), np.bool_)
        if self._changed is not None:
            waits = np.isin(some.keys[rows], self._changed)
        self._comparison.waiting += int(waits.sum())
        named = []
        for row in rows[~waits].tolist():
            one = self._range(int(some.ranges[row]))
            setattr(one, what, getattr(one, what) + 1)
            if self._named < MOST_KEYS:
                (key,) = some.values.slice(row, 1).select(self._pair.keys).to_pylist()
                one.rows.append(DifferentRow(key, what))
                named.append((row, one.rows[-1]))
                self._named += 1
        return named

    def _range(self, number: int) -> DifferentRange:
        if number not in self._found:
            counts = int(self._there.counts[number]), int(self._here.counts[number])
            self._found[number] = DifferentRange(self._pair.ranges.words(number), *counts)
        return self._found[number]


def _places(keys: Hashes, wanted: Hashes) -> tuple[Numbers, Any]:
    """Where keys are among others, which are in order, and which of them are there."""
    if not len(keys):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return at, keys[at] == wanted
