"""How old tombstones are by the clock of their events.

Events are read long after they happened, after a pause or from the beginning of a topic. So a deletion is as
old as the events that came since are newer than it, and what is compared are events of one partition of one
source: another one may be days ahead. One event from the future makes all others old. That is why a tombstone
has expired only if it was written long ago as well.

A partition that has ended, such as that of a topic for each day, brings no event that could make its
deletions old. So a clock that has not moved while its pipeline was at work for that long counts no more.
Pauses of the pipeline do not count: what it has not read yet may be there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.staged import PARTITION, TIME
from lakefeed.tables.write.keyed.keys import Mask, one_array

DELETED_AT = "_lakefeed_deleted_at"
"""When the deletion was applied, in microseconds since 1970."""
Clocks = Mapping[str, tuple[int | None, int]]
"""By clock, "" for none: the time of the newest event, and when the newest tombstone was written."""
_NEVER = int(np.iinfo(np.int64).max)
CLOCK = "_lakefeed_clock"
"""The clock that the time of an event belongs to: its source and partition. Times of different clocks are not
comparable."""
_PAUSE = 48
"""Between two batches, no more counts as work than the age of tombstones divided by this: an hour of 2d."""


class Activity:
    """How long a pipeline has been at work on a table, and how far it was when each clock moved last.

    In microseconds. It is part of every file of tombstones, so that it goes on in the next process.
    """

    def __init__(self, age: int) -> None:
        self._age = age
        self._worked, self._last = 0, 0
        self._moved: dict[str, tuple[int, int]] = {}
        """By clock: the work when it moved, and when its newest tombstone was written."""

    def begin(self, text: bytes | None) -> None:
        """Go on, in a new process, from what a file of tombstones has; older files have nothing."""
        if text and not self._last:
            told = json.loads(text)
            self._worked, self._last = told["worked"], told["last"]
            self._moved = {clock: (moved, written) for clock, (moved, written) in told["moved"].items()}

    def to_json(self) -> str:
        """For a file of tombstones."""
        return json.dumps({"worked": self._worked, "last": self._last, "moved": self._moved})

    def go_on(self, now: int, oldest: Mapping[str, int], clocks: Clocks) -> None:
        """Take note of a batch with events of these clocks, at a version with tombstones of others."""
        if self._last:
            self._worked += max(0, min(now - self._last, self._age // _PAUSE))
        self._last = now
        moved = {}
        for name, (_, last) in clocks.items():
            before = self._moved.get(name, (0, 0))
            has_moved = name in oldest or last > before[1]
            moved[name] = (self._worked if has_moved else before[0], last)
        self._moved = moved

    def stopped(self) -> frozenset[str]:
        """The clocks that have not moved for as long as tombstones count."""
        return frozenset(name for name, (moved, _) in self._moved.items() if self._worked - moved > self._age)


@dataclass(frozen=True)
class Expiry:
    """Which tombstones count no more for a batch."""

    written: int
    """Those that were written later count."""
    limits: Mapping[str, int]
    """By clock: those whose events are no older than that count."""
    stopped: frozenset[str]
    """The clocks that count no more."""

    @classmethod
    def of(
        cls, age: int, now: int, clocks: Clocks, oldest: Mapping[str, int], stopped: frozenset[str]
    ) -> Expiry:
        """The age is compared with what came since a tombstone.

        That is the newest deletion so far, by `clocks`, and every event of the batch at hand, of which
        `oldest` is the oldest by clock. Its newest event does not count: after a pause, a batch may hold
        days, and with them changes that are late by an hour.
        """
        limits = {
            name: max(newest, oldest.get(name, newest)) - age
            for name, (newest, _) in clocks.items()
            if newest is not None and name
        }
        return cls(now - age, limits, stopped)

    def counting(self, tombstones: pa.Table) -> Mask:
        """Which of them count."""
        written: Mask = one_array(pc.greater(tombstones.column(DELETED_AT), self.written)).to_numpy(
            zero_copy_only=False
        )
        if written.all():
            return written
        clocks = one_array(tombstones.column(CLOCK)).dictionary_encode()
        # What has no clock has no time, and is older than everything.
        limits = [self._limit(name) for name in clocks.dictionary.to_pylist()]
        at = clocks.indices.fill_null(len(limits)).to_numpy(zero_copy_only=False)
        limit = np.array([*limits, _NEVER], np.int64)[at]
        times = one_array(tombstones.column(TIME)).cast(pa.int64()).fill_null(-_NEVER)
        counting: Mask = written | (times.to_numpy(zero_copy_only=False) >= limit)
        return counting

    def has_ended(self, clocks: Clocks) -> bool:
        """Whether none counts of tombstones with these newest times."""
        return all(
            written <= self.written and (newest is None or newest < self._limit(name))
            for name, (newest, written) in clocks.items()
        )

    def _limit(self, clock: str) -> int:
        return _NEVER if clock in self.stopped else self.limits.get(clock, _NEVER)


def clocks_of(tombstones: pa.Table) -> dict[str, tuple[int | None, int]]:
    """The clocks of some tombstones, with the newest event of each and when its newest was written."""
    times = tombstones.column(TIME).cast(pa.int64())
    stored = [tombstones.column(CLOCK), times, tombstones.column(DELETED_AT)]
    rows = pa.Table.from_arrays(stored, [CLOCK, TIME, DELETED_AT])
    found = rows.group_by(CLOCK).aggregate([(TIME, "max"), (DELETED_AT, "max")])
    columns = (found.column(name).to_pylist() for name in (CLOCK, f"{TIME}_max", f"{DELETED_AT}_max"))
    return {name or "": (newest, written) for name, newest, written in zip(*columns, strict=True)}


def with_expired(tombstones: pa.Table, which: pa.Array) -> pa.Table:
    """The same tombstones, some of which have expired."""
    for name, never in ((TIME, None), (CLOCK, None), (DELETED_AT, 0)):
        at, kind = tombstones.schema.get_field_index(name), tombstones.schema.field(name).type
        column = pc.if_else(which, pa.scalar(never, kind), tombstones.column(name))
        tombstones = tombstones.set_column(at, tombstones.schema.field(at), column)
    return tombstones


def newest_of(one: Clocks, other: Clocks) -> dict[str, tuple[int | None, int]]:
    """The newest times of both."""
    found = dict(one)
    for name, (newest, written) in other.items():
        known = found.get(name, (None, written))
        times = [at for at in (newest, known[0]) if at is not None]
        found[name] = (max(times, default=None), max(written, known[1]))
    return found


def with_clocks(rows: pa.Table, source: str | None) -> pa.Table:
    """Changes with their clocks."""
    return rows.append_column(CLOCK, pc.binary_join_element_wise(source or "", rows.column(PARTITION), "/"))


def oldest_events(changes: pa.Table, source: str | None) -> dict[str, int]:
    """By clock: the time of the oldest event of a batch, in microseconds since 1970."""
    return _by_clock(with_clocks(changes.select([TIME, PARTITION]), source), "min")


def _by_clock(rows: pa.Table, function: str) -> dict[str, int]:
    times = rows.set_column(rows.schema.get_field_index(TIME), TIME, rows.column(TIME).cast(pa.int64()))
    found = times.select([TIME, CLOCK]).group_by(CLOCK).aggregate([(TIME, function)])
    pairs = zip(found.column(CLOCK).to_pylist(), found.column(f"{TIME}_{function}").to_pylist(), strict=True)
    return {clock: time for clock, time in pairs if clock is not None and time is not None}
