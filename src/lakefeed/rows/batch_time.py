"""The time at which a batch was planned, for SQL that asks for it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakefeed.columns.column_types import TIMESTAMP
from lakefeed.sql.expression import Expression
from lakefeed.sql.projection import BATCH_TIME


class BatchTime:
    """Adds the column `_batch_time` to rows of which an expression reads it."""

    def __init__(self, expressions: Sequence[Expression], planned: int) -> None:
        """`planned` is in microseconds since 1970."""
        self._wanted = any(BATCH_TIME in one.columns() for one in expressions)
        self._moment = pa.scalar(planned, TIMESTAMP)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows as the expressions see them."""
        if not self._wanted or BATCH_TIME in batch.schema.names:
            return batch
        return batch.append_column(BATCH_TIME, pa.repeat(self._moment, batch.num_rows))
