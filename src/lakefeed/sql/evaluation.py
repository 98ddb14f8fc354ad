"""Expressions evaluated by Arrow: whole columns, and the rows for which Spark would throw."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakefeed.sql.expression import Expression


class RowError(Exception):
    """A row for which Spark throws: `code` is Spark's error class, `message` says what Spark says."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def evaluate(expression: Expression, batch: pa.RecordBatch) -> pa.Array:
    """The value of an expression for each row; raises RowError if Spark would throw for any of them."""
    raise NotImplementedError


def evaluate_rows(
    expressions: Sequence[Expression], batch: pa.RecordBatch
) -> tuple[list[pa.Array], dict[int, tuple[str, str]]]:
    """The values of expressions for each row, and code and message of the rows for which one of them throws.

    A row that throws is null in all of them.
    """
    raise NotImplementedError
