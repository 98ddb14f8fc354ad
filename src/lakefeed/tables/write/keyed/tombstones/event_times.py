"""How old tombstones are by the clock of their events.

Events are read long after they happened, after a pause or from the beginning of a topic. So a deletion is as
old as the events that came since are newer than it, and what is compared are events of one partition of one
source: another one may be days ahead. One event from the future makes all others old. That is why a tombstone
has expired only if it was written long ago as well.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.staged import CLOCK, TIME
from lakefeed.tables.write.keyed.keys import Mask, one_array


def of_source(rows: pa.Table, source: str | None) -> pa.Table:
    """Changes whose clocks have the name of their source before that of the partition."""
    at = rows.schema.get_field_index(CLOCK)
    named = pc.binary_join_element_wise(source or "", rows.column(at), "/")
    return rows.set_column(at, rows.schema.field(at), named)


def oldest_events(changes: pa.Table, source: str | None) -> dict[str, int]:
    """By clock: the time of the oldest event of a batch, in microseconds since 1970."""
    return _by_clock(of_source(changes.select([TIME, CLOCK]), source), "min")


def within(tombstones: pa.Table, age: int, oldest: Mapping[str, int]) -> Mask:
    """Which tombstones are no more than so many microseconds older than what came since.

    That is the newest deletion so far, and every event of the batch at hand. Its newest event does not count:
    after a pause, a batch may hold days, and with them changes that are late by an hour.
    """
    newest = _by_clock(tombstones, "max")
    limits = {clock: max(time, oldest.get(clock, time)) - age for clock, time in newest.items()}
    clocks = one_array(tombstones.column(CLOCK)).dictionary_encode()
    # What has no clock has no time, and is older than everything.
    by_clock = np.array([limits.get(name, 0) for name in clocks.dictionary.to_pylist()] + [0], np.int64)
    clock_of = clocks.indices.fill_null(len(clocks.dictionary)).to_numpy(zero_copy_only=False)
    times = one_array(tombstones.column(TIME)).cast(pa.int64())
    recent = pc.greater_equal(times, pa.array(by_clock[clock_of]))
    found: Mask = recent.fill_null(False).to_numpy(zero_copy_only=False)
    return found


def _by_clock(rows: pa.Table, function: str) -> dict[str, int]:
    times = rows.set_column(rows.schema.get_field_index(TIME), TIME, rows.column(TIME).cast(pa.int64()))
    found = times.select([TIME, CLOCK]).group_by(CLOCK).aggregate([(TIME, function)])
    pairs = zip(found.column(CLOCK).to_pylist(), found.column(f"{TIME}_{function}").to_pylist(), strict=True)
    return {clock: time for clock, time in pairs if clock is not None and time is not None}
