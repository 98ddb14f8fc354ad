"""Rows as Spark's operators hand them over: values that are made already, and rows that threw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.engine.task.carried import KEPT, REASON, CarriedEvents, verdict
from lakefeed.rows import Rows, StepResult
from lakefeed.rows.conform import conformed
from lakefeed.rows.select import refused
from lakefeed.sql.arrow.value import Errors
from lakefeed.sql.expression import Expression
from lakefeed.sql.projection import Projection
from lakefeed.sql.spark_words import SparkWords

_UNKNOWN = "threw"
"""The code of a row for which Spark gives no reason."""


class RefuseThrown:
    """Refuses rows for which Spark threw, with its words, and leaves only the columns that `select` made."""

    def __init__(self, projection: Projection) -> None:
        self._names = [item.name for item in projection.items]
        self._columns = projection.output
        self._texts = ", ".join(item.text for item in projection.items)

    def __call__(self, rows: Rows) -> StepResult:
        """The rows for which it did not throw."""
        # Spark takes fields inside of columns for nullable that the table does not.
        made = rows.of(conformed(rows.batch.select(self._names), self._columns))
        threw = rows.batch.column(KEPT).is_null()
        if not threw.true_count:
            return StepResult(made)
        indexes = pc.indices_nonzero(threw).to_pylist()
        reasons = rows.batch.column(REASON).take(pa.array(indexes, pa.int64())).to_pylist()
        thrown = {at: self._words(text) for at, text in zip(indexes, reasons, strict=True)}
        return StepResult(made.without(indexes), refused(rows, thrown))

    def _words(self, text: str | None) -> tuple[str, str]:
        said = SparkWords(text or "")
        return said.code or _UNKNOWN, said.sentence or f"Spark threw at {self._texts}"


class BySpark:
    """Takes the values that Spark has made of expressions."""

    def __init__(self, projection: Projection) -> None:
        self._made = {id(item.expression): item.name for item in projection.items}
        self._made |= {id(rule.expression): verdict(at) for at, rule in enumerate(projection.rules)}
        if projection.where is not None:
            self._made[id(projection.where)] = KEPT

    def __call__(self, expressions: Sequence[Expression], rows: Rows) -> tuple[list[pa.Array], Errors]:
        """The values for each row; what threw is refused already, or a rule that is not met."""
        events = rows.events
        assert isinstance(events, CarriedEvents)
        columns = [events.batch.column(self._made[id(one)]) for one in expressions]
        if len(rows.indexes) != len(events):
            left = pa.array(np.asarray(rows.indexes, np.int64))
            columns = [column.take(left) for column in columns]
        return columns, {}
