"""Rows are shaped: one file for each step between decoding and writing, and the contract that they keep.

A step takes rows and returns rows, and what became of the others. It knows nothing of the steps before and
behind it, and not of the table that the rows are for but what it was made with; `engine/task/steps.py`
composes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefeed.events import Events, Refused

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """Rows in the making, and the events that they were made of."""

    batch: pa.RecordBatch
    events: Events
    indexes: Sequence[int]
    """For each row, the index of its event; often an array of numpy's."""
    rescued: pa.Array | None = None
    """For each row what did not fit its columns, as JSON text or null; None when everything fitted."""
    ops: pa.Array | None = None
    """For each row what it does to that of its key, in a table of changes; None: all of them upsert."""
    unchanged: pa.Array | None = None
    """For each row the columns that it says nothing about; None when all say something about each."""

    def origin(self) -> pa.RecordBatch:
        """Where each row came from."""
        return self.events.origin(self._chosen)

    def partitions(self) -> pa.Array:
        """The partition of the source that each row came from."""
        return self.events.partitions(self._chosen)

    def shown(self) -> pa.RecordBatch:
        """The same as metadata columns have it."""
        return self.events.shown(self._chosen)

    @property
    def _chosen(self) -> Sequence[int] | None:
        whole = isinstance(self.indexes, range) and len(self.indexes) == len(self.events)
        return None if whole else self.indexes

    def of(self, batch: pa.RecordBatch) -> Rows:
        """The same rows with other columns."""
        return replace(self, batch=batch)

    def with_ops(self, ops: pa.Array) -> Rows:
        """The same rows, which do other things."""
        return replace(self, ops=ops)

    def without(self, refused: Sequence[int]) -> Rows:
        """The rows but those at these indexes."""
        mask = np.ones(self.batch.num_rows, np.bool_)
        mask[list(refused)] = False
        return self.where(mask)

    def where(self, mask: Mask) -> Rows:
        """The rows at the indexes where the mask is true."""
        kept = pa.array(mask)
        return Rows(
            self.batch.filter(kept),
            self.events,
            self.indexes_at(mask),
            None if self.rescued is None else self.rescued.filter(kept),
            None if self.ops is None else self.ops.filter(kept),
            None if self.unchanged is None else self.unchanged.filter(kept),
        )

    def indexes_at(self, mask: Mask) -> Sequence[int]:
        """The indexes of the events whose rows the mask is true for."""
        indexes = np.flatnonzero(mask)
        if isinstance(self.indexes, range) and self.indexes == range(len(mask)):
            return cast("Sequence[int]", indexes)
        # Arrays have this, and so have indexes that are searched for only when somebody asks.
        known: Any = self.indexes if hasattr(self.indexes, "take") else np.asarray(self.indexes, np.int64)
        return cast("Sequence[int]", known.take(indexes))


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
    failed: Mapping[str, str] = field(default_factory=dict)
    """Expectations that stop the table when they are not met, each with one row for which it was not."""
    unknown: pa.Schema | None = None
    """Columns that the rows have and the table has not: nothing is written until it has them."""


Step = Callable[[Rows], StepResult]
"""One step between decoding and writing."""
