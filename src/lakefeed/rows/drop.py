"""Columns that a table has and that `drop` names since: null from now on."""

from __future__ import annotations

import pyarrow as pa

from lakefeed.columns.column_types import stored
from lakefeed.rows import Rows, StepResult


class NullColumns:
    """Adds columns without a value."""

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = stored(columns)

    def __call__(self, rows: Rows) -> StepResult:
        """Each of them behind the columns that are there."""
        batch = rows.batch
        for field in self._columns:
            batch = batch.append_column(field, pa.nulls(batch.num_rows, field.type))
        return StepResult(rows.of(batch))
