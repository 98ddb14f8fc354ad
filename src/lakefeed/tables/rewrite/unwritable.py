"""Partition values that delta-rs writes so that no reader takes them; commands that rely on it refuse them.

It writes -5.25 as `-5.-25`, and then nobody can open the table; bytes as other bytes; and it names
directories after values that are longer than a name may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from lakefeed.columns.partition_values import LONGEST_NAME, value_of
from lakefeed.errors import TableError
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.table import LakeTable


def refuse_unwritable(table: LakeTable, files: Iterable[DataFile]) -> None:
    """Raise TableError when files that delta-rs is to rewrite lie in such a partition."""
    schema = table.schema
    for name, text in {pair for file in files for pair in file.partition}:
        _refuse(table, name, value_of(text, schema.field(name).type).as_py())


def writable(
    table: LakeTable, batches: Iterable[pa.RecordBatch], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows as they are; raises TableError at the first whose partition delta-rs cannot write."""
    for batch in batches:
        for name in columns:
            for value in batch.column(name).unique().to_pylist():
                _refuse(table, name, value)
        yield batch


def _refuse(table: LakeTable, name: str, value: Any) -> None:
    if reason := _reason(name, value):
        raise TableError(
            f"{table.path}: the partition value {_shown(value)} of column {name} is {reason}, which cannot "
            "be written here.\nUse another engine, such as Spark, or partition by another column."
        )


def _reason(name: str, value: Any) -> str | None:
    match value:
        case bytes():
            return "binary"
        case Decimal() if value < 0 and value != int(value):
            return "a negative decimal"
        case float() if value == value and abs(value) != float("inf"):
            text = f"{Decimal(value):f}"
        case _:
            text = str(value)
    long = len(f"{quote(name, safe='')}={quote(text, safe='')}") > LONGEST_NAME
    return "too long for the name of a directory" if long else None


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, bytes | str) else str(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
