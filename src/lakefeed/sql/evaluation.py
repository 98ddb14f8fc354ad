"""Expressions evaluated by Arrow: whole columns, and the rows for which Spark would throw."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakefeed.sql.arrow.value import Errors, Value
from lakefeed.sql.compilation import FUNCTIONS
from lakefeed.sql.expression import Call, Column, Expression, Literal
from lakefeed.sql.reading import REPLACED


class RowError(Exception):
    """A row for which Spark throws: `code` is Spark's error class, `message` says what Spark says."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def evaluate(expression: Expression, batch: pa.RecordBatch) -> pa.Array:
    """The value of an expression for each row; raises RowError if Spark would throw for any of them."""
    (values,), errors = evaluate_rows([expression], batch)
    if errors:
        raise RowError(*errors[min(errors)])
    return values


def evaluate_rows(expressions: Sequence[Expression], batch: pa.RecordBatch) -> tuple[list[pa.Array], Errors]:
    """The values of expressions for each row, and code and message of the rows for which one of them throws.

    What stands in such a row does not matter. The error is that of the first expression that throws.
    """
    evaluation = _Evaluation(batch)
    values = [evaluation.value(one) for one in expressions]
    errors: Errors = {}
    for value in values:
        errors = {**value.errors, **errors}
    columns = [
        _typed(value.column(batch.num_rows), one.type) for value, one in zip(values, expressions, strict=True)
    ]
    return columns, errors


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
            return Value(_typed(self._batch.column(expression.name), expression.type))
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


def _typed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)
