"""Intervals: what the changes of each key make of its history, as if they had come in order.

A change is a point in the sequence of its key: from there on the row has its values, or there is none. Points
with the same values in the tracked columns, one right behind the other, are one interval. All is done for
many keys at once, and without a loop over rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.keys import Mask, Numbers, equal, one_array, values_at

IMPLIED, IN_TABLE, REMEMBERED, NEW = -1, 0, 1, 2
"""Where a point is known from; of the same key and time the last counts, but a deletion wins, unless the
order of a change stream decides.

An interval that ends where no other begins implies a deletion, unless anything else is known of that time.
"""


@dataclass(frozen=True)
class Points:
    """Changes of some keys, in any order."""

    numbers: Numbers
    """Whose they are."""
    times: Numbers
    """When they are, by rank."""
    layers: Numbers
    deleted: Mask
    values: Numbers
    """Which row of all rows has their values; -1 for a deletion."""
    order: Numbers
    """Which comes later of the same key, time and layer."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self.numbers)

    def chosen(self, at: Numbers | Mask) -> Points:
        """Some of them."""
        return Points(*(getattr(self, name.name)[at] for name in fields(self)))

    def sorted(self, rules: KeyRules) -> Points:
        """By key and time; what counts of the same time comes last."""
        last = ~self.deleted if rules.deletions_first else self.deleted & (self.layers != IMPLIED)
        if rules.ties_by_position:
            # Truncations have no position.
            last = self.deleted & (self.order < 0)
        return self.chosen(np.lexsort((self.order, self.layers, last, self.times, self.numbers)))

    @property
    def last(self) -> Mask:
        """Of sorted points, which count: the last of each key and time."""
        same = (self.numbers[1:] == self.numbers[:-1]) & (self.times[1:] == self.times[:-1])
        return np.append(~same, True) if len(self) else np.zeros(0, np.bool_)


def joined_points(parts: Sequence[Points]) -> Points:
    """All points of several groups."""
    return Points(*(np.concatenate([getattr(one, name.name) for one in parts]) for name in fields(Points)))


@dataclass(frozen=True)
class Runs:
    """Intervals of sorted points that count, deletions aside. `first` and `last` are indexes of points."""

    first: Numbers
    last: Numbers
    ends: Numbers
    """The index of the point that ends each; -1 for one that is open."""


def runs(points: Points, same: Mask) -> Runs:
    """The intervals of points that count; `same` says which continue the point before them."""
    begins = np.flatnonzero(~same)
    last = np.append(begins[1:], len(points)) - 1 if len(begins) else begins
    upserts = ~points.deleted[begins]
    first, last = begins[upserts], last[upserts]
    following = np.minimum(last + 1, max(len(points) - 1, 0))
    has_end = (last + 1 < len(points)) & (points.numbers[following] == points.numbers[last])
    return Runs(first, last, np.where(has_end, following, -1))


@dataclass(frozen=True)
class Values:
    """The values of points: by column, which row of all rows each has; -1 where it has none."""

    rows: pa.Table
    own: Numbers
    other: Mapping[str, Numbers]
    """Of columns that some points have from another row than their own."""

    def at(self, name: str, points: Numbers) -> pa.ChunkedArray:
        """The values that these points have in a column."""
        indexes = self.other.get(name, self.own)[points]
        return values_at(self.rows.column(name), np.maximum(indexes, 0), indexes < 0)

    def lacking(self, name: str) -> Mask:
        """Which points have none in a column."""
        indexes = self.other.get(name, self.own)
        nulls = one_array(self.rows.column(name).is_null()).to_numpy(zero_copy_only=False)
        found: Mask = np.append(nulls, True)[indexes]
        return found

    def chosen(self, mask: Mask) -> Values:
        """Those of some points."""
        return Values(self.rows, self.own[mask], {name: one[mask] for name, one in self.other.items()})


def continues(points: Points, values: Values, tracked: Sequence[str]) -> Mask:
    """Which points have the values of the one before, in the tracked columns."""
    found = np.zeros(len(points), np.bool_)
    beside = np.flatnonzero(
        (points.numbers[1:] == points.numbers[:-1]) & ~points.deleted[1:] & ~points.deleted[:-1]
    )
    for name in tracked:
        if not len(beside):
            break
        same = equal(values.at(name, beside), values.at(name, beside + 1))
        beside = beside[same]
    found[beside + 1] = True
    return found


def sources(points: Points, said: Mask) -> Numbers:
    """Of sorted points, which row has the value of a column, where some points say nothing about it.

    It is that of the newest point before that says something, of the same key and behind its last deletion;
    -1 where there is none. `said` is by row of values.
    """
    ordinals = np.arange(len(points))
    speaks = ~points.deleted & said[points.values]
    newest = np.maximum.accumulate(np.where(speaks, ordinals, -1)) if len(ordinals) else ordinals
    fresh = np.maximum.accumulate(np.where(points.deleted, ordinals, -1)) if len(ordinals) else ordinals
    first = np.searchsorted(points.numbers, points.numbers)
    known = (newest >= first) & (newest > fresh) & ~points.deleted
    return np.where(known, points.values[np.maximum(newest, 0)], -1)
