"""SQL conditions that delta-rs and Spark read alike."""

from __future__ import annotations

import pyarrow as pa

from lakefeed.tables.log.data_file import Partition
from lakefeed.text import in_backticks


def text_literal(text: str) -> str:
    """A value as text; compared with a column, it is read as a value of the column's type."""
    return "'" + text.replace("'", "''") + "'"


def partition_conditions(partition: Partition, schema: pa.Schema) -> list[str]:
    """What holds for the rows of one partition; nothing in a table without partitions."""
    return [
        f"{in_backticks(name)} IS NULL"
        if value is None
        else f"{in_backticks(name)} = {_literal(value, schema.field(name).type)}"
        for name, value in partition
    ]


def _literal(value: str, kind: pa.DataType) -> str:
    # delta-rs does not compare a boolean with a text.
    return value if pa.types.is_boolean(kind) else text_literal(value)
