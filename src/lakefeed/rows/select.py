"""`where` and `select`: rows are left out, and columns are made of others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import type_text
from lakefeed.columns.staged import DELETIONS
from lakefeed.events import Refused
from lakefeed.rows import Rows, StepResult
from lakefeed.rows.conform import conformed
from lakefeed.rows.evaluator import Evaluate
from lakefeed.sql.arrow.value import Errors
from lakefeed.sql.projection import Projection

STAGE = "select"


class Where:
    """Leaves out rows that do not meet a condition; null is not met.

    A deletion is left out only where the condition is false: it may bring no more than its key, and a row
    that it leaves behind would stay for good.
    """

    def __init__(self, projection: Projection, evaluate: Evaluate) -> None:
        assert projection.where is not None
        self._where = projection.where
        self._evaluate = evaluate

    def __call__(self, rows: Rows) -> StepResult:
        """The rows that meet it, those that do not, and those for which it throws."""
        (met,), thrown = self._evaluate([self._where], rows)
        deletes = False if rows.ops is None else pc.is_in(rows.ops, pa.array(DELETIONS, pa.int8()))
        mask = np.array(pc.coalesce(met, deletes, False).to_numpy(zero_copy_only=False))
        gone = ~mask
        if thrown:
            mask[list(thrown)] = gone[list(thrown)] = False
        if mask.all():
            return StepResult(rows)
        return StepResult(rows.where(mask), refused(rows, thrown), rows.indexes_at(gone))


class Select:
    """Makes the columns of the table."""

    def __init__(self, projection: Projection, table: pa.Schema, evaluate: Evaluate) -> None:
        """`table` are the columns that the table has, but for those that are derived behind this."""
        self._expressions = [item.expression for item in projection.items]
        self._names = [item.name for item in projection.items]
        self._reads = {item.name: item.expression.columns() for item in projection.items}
        self._evaluate = evaluate
        self._table = table
        self._needed = [one for one in table if not one.nullable]

    def __call__(self, rows: Rows) -> StepResult:
        """The same rows with the columns of the table, but those for which an item throws."""
        made, thrown = self._evaluate(self._expressions, rows)
        batch = conformed(pa.RecordBatch.from_arrays(made, names=self._names), self._table)
        for one in self._needed:
            column = batch.column(one.name)
            if column.null_count:
                text = f"{one.name}: expected {type_text(one.type)} not null, got null"
                for at in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                    thrown.setdefault(at, ("missing_value", text))
        done = self._with_silences(rows.of(batch))
        return StepResult(done.without(list(thrown)), refused(rows, thrown)) if thrown else StepResult(done)

    def _with_silences(self, rows: Rows) -> Rows:
        """A change says nothing of a column that is made of one which it says nothing of."""
        if rows.unchanged is None or rows.unchanged.null_count == len(rows.unchanged):
            return rows
        told = [
            silent and [name for name, reads in self._reads.items() if not reads.isdisjoint(silent)]
            for silent in rows.unchanged.to_pylist()
        ]
        return replace(rows, unchanged=pa.array(told, pa.list_(pa.string())))


def refused(rows: Rows, thrown: Errors) -> list[Refused]:
    """The events of rows for which Spark would have thrown, with its words."""
    return [Refused(int(rows.indexes[at]), STAGE, code, text) for at, (code, text) in sorted(thrown.items())]
