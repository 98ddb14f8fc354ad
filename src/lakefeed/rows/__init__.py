"""Rows are shaped: one file for each step between decoding and writing, and the contract that they keep.

A step takes rows and returns rows and refusals. It knows nothing of the steps before and behind it, and not
of the table that the rows are for but what it was made with; `engine/batch/steps.py` composes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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

    def origin(self) -> pa.RecordBatch:
        """Where each row came from."""
        whole = len(self.indexes) == len(self.events)
        return self.events.origin(None if whole else self.indexes)

    def of(self, batch: pa.RecordBatch) -> Rows:
        """The same rows with other columns."""
        return replace(self, batch=batch)

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
        )


Step = Callable[[Rows], tuple[Rows, list[Refused]]]
"""One step. A refused row is not among the rows that it returns."""
