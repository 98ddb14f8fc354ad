"""Columns of tables as a plan names them."""

from __future__ import annotations

import pyarrow as pa

from lakefeed.columns.column_types import meant_text
from lakefeed.tables.schema import additions
from lakefeed.tables.table import LakeTable


def added_columns(table: LakeTable, columns: list[pa.Field]) -> list[str]:
    """Columns to add; of one that the table has, the fields that are new: `customer.vip boolean`."""
    there = set(table.schema.names)
    fields = additions(table.schema, [column for column in columns if column.name in there])
    new = [column_words(column) for column in columns if column.name not in there]
    return [*new, *(text.removeprefix("new field ") for text in fields)]


def column_words(column: pa.Field) -> str:
    """`price decimal(10,2) not null`."""
    return f"{column.name} {meant_text(column)}" + ("" if column.nullable else " not null")
