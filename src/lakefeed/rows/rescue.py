"""The column that keeps what did not fit the others."""

from __future__ import annotations

import pyarrow as pa

from lakefeed.pipeline.options.evolve import RESCUED
from lakefeed.rows import Rows, StepResult


def add_rescued(rows: Rows) -> StepResult:
    """The rows with the column; null where everything fitted."""
    rescued = pa.nulls(rows.batch.num_rows, pa.string()) if rows.rescued is None else rows.rescued
    return StepResult(rows.of(rows.batch.append_column(RESCUED, rescued)))
