"""Expressions evaluated by Arrow: whole columns, and the rows for which Spark would throw."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakefeed.sql.arrow.value import Errors, Value, first_errors, typed
from lakefeed.sql.compilation import FUNCTIONS
from lakefeed.sql.expression import Call, Column, Expression, Literal
from lakefeed.sql.reading import REPLACED


def evaluate_rows(expressions: Sequence[Expression], batch: pa.RecordBatch) -> tuple[list[pa.Array], Errors]:
    """The values of expressions for each row, and code and message of the rows for which one of them throws.

    What stands in such a row does not matter. The error is that of the first expression that throws.
    """
    evaluation = _Evaluation(batch)
    values = [evaluation.value(one) for one in expressions]
    columns = [
        typed(value.column(batch.num_rows), one.type) for value, one in zip(values, expressions, strict=True)
    ]
    return columns, first_errors(values)


class _Evaluation:
    """Expressions over one batch; a part that is used twice is computed once."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._known: dict[int, Value] = {}

    def value(self, expression: Expression) -> Value:
        known = self._known.get(id(expression))
        if known is None:
            known = self._known[id(expression)] = self._computed(expression)
        return known

    def _computed(self, expression: Expression) -> Value:
        if isinstance(expression, Column):
            return Value(typed(self._batch.column(expression.name), expression.type))
        if isinstance(expression, Literal):
            return Value(pa.scalar(expression.value, expression.type))
        assert isinstance(expression, Call)
        values = [self.value(one) for one in expression.given]
        if expression.option(REPLACED):
            return values[0]
        rows = self._batch.num_rows
        if values and all(value.constant for value in values):
            values = [Value(value.column(rows), value.errors) for value in values]
        return FUNCTIONS[expression.function].kernel(expression, values, rows)
