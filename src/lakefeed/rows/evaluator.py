"""Who evaluates the expressions of `where`, `select` and `expect`: Arrow, in the task itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from lakefeed.columns.column_types import TIMESTAMP
from lakefeed.rows import Rows
from lakefeed.sql.arrow.value import Errors
from lakefeed.sql.evaluation import evaluate_rows
from lakefeed.sql.expression import Expression
from lakefeed.sql.projection import BATCH_TIME

Evaluate = Callable[[Sequence[Expression], Rows], tuple[list[pa.Array], Errors]]
"""The values of expressions for each row, and the rows for which one of them throws."""


class ByArrow:
    """Evaluates by Arrow's kernels."""

    def __init__(self, planned: int) -> None:
        """`planned` is when the batch was planned, in microseconds since 1970."""
        self._moment = pa.scalar(planned, TIMESTAMP)

    def __call__(self, expressions: Sequence[Expression], rows: Rows) -> tuple[list[pa.Array], Errors]:
        """The values for each row, and the rows for which Spark would throw."""
        batch = rows.batch
        if BATCH_TIME not in batch.schema.names and any(BATCH_TIME in one.columns() for one in expressions):
            batch = batch.append_column(BATCH_TIME, pa.repeat(self._moment, batch.num_rows))
        return evaluate_rows(expressions, batch)
