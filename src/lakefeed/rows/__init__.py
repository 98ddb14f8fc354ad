"""Rows are shaped: one file for each step between decoding and writing, and the contract that they keep.

A step takes rows and returns rows, and what became of the others. It knows nothing of the steps before and
behind it, and not of the table that the rows are for but what it was made with; `engine/batch/steps.py`
composes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from lakefeed.events import Events, Refused


@dataclass(frozen=True)
class Rows:
    """Rows in the making, and the events that they were made of."""

    batch: pa.RecordBatch
    events: Events
    indexes: Sequence[int]
    """For each row, the index of its event."""
    rescued: pa.Array | None = None
    """For each row what did not fit its columns, as JSON text or null; None when everything fitted."""
    ops: pa.Array | None = None
    """For each row what it does to that of its key, in a table of changes; None: all of them upsert."""
    unchanged: pa.Array | None = None
    """For each row the columns that it says nothing about; None when all say something about each."""

    def origin(self) -> pa.RecordBatch:
        """Where each row came from."""
        whole = len(self.indexes) == len(self.events)
        return self.events.origin(None if whole else self.indexes)

    def of(self, batch: pa.RecordBatch) -> Rows:
        """The same rows with other columns."""
        return replace(self, batch=batch)

    def with_ops(self, ops: pa.Array) -> Rows:
        """The same rows, which do other things."""
        return replace(self, ops=ops)

    def without(self, refused: Sequence[int]) -> Rows:
        """The rows but those at these places."""
        mask = np.ones(len(self.indexes), np.bool_)
        mask[list(refused)] = False
        kept, left = pa.array(mask), np.flatnonzero(mask).tolist()
        return Rows(
            self.batch.filter(kept),
            self.events,
            [self.indexes[place] for place in left],
            None if self.rescued is None else self.rescued.filter(kept),
            None if self.ops is None else self.ops.filter(kept),
            None if self.unchanged is None else self.unchanged.filter(kept),
        )


@dataclass(frozen=True)
class StepResult:
    """What a step made of rows. Rows that are refused or filtered are not among `rows` any more."""

    rows: Rows
    refused: list[Refused] = field(default_factory=list)
    """Events that become dead letters."""
    filtered: Sequence[int] = ()
    """The indexes of events that are left out on purpose, which a table counts and does not keep."""
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """For each expectation, how many rows have passed it, and how many were warned, dropped and so on."""
    unknown: pa.Schema | None = None
    """Columns that the rows have and the table has not: nothing is written until it has them."""


Step = Callable[[Rows], StepResult]
"""One step between decoding and writing."""
