"""Columns that rows are ordered by, in files (`sort_by`) and by upkeep (`cluster_by`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import pyarrow as pa

from lakefeed.columns.column_types import type_text
from lakefeed.errors import TableError
from lakefeed.text import did_you_mean


def order_problem(
    column: str, columns: Mapping[str, pa.Field | None], partition_columns: Collection[str]
) -> str | None:
    """Why rows of a file cannot be ordered by a column; `columns` is empty where they are not known."""
    if column in partition_columns:
        return f"'{column}' is a partition column, so each file has one value of it already"
    if columns and column not in columns:
        return f"the table has no column '{column}'{did_you_mean(column, columns)}"
    known = columns.get(column)
    if known is not None and pa.types.is_nested(known.type):
        return f"rows cannot be ordered by a column of type {type_text(known.type)}"
    return None


def check_order(sort_by: Iterable[str], schema: pa.Schema, partition_columns: Collection[str]) -> None:
    """Raise TableError where `sort_by` does not fit the schema; for tables whose schema was not declared."""
    columns = {field.name: field for field in schema}
    for name in sort_by:
        if problem := order_problem(name, columns, partition_columns):
            raise TableError(f"sort_by: {problem}")
