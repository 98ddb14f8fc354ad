"""The order of the files of a first snapshot: as they were written, or by the smallest event time in each."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any

import orjson
import pyarrow as pa

from lakefeed.columns.mapping import physical_name
from lakefeed.columns.partition_values import value_of
from lakefeed.errors import TableError
from lakefeed.tables.file_rows import arrow_schema
from lakefeed.tables.log.data_file import DataFile
from lakefeed.text import did_you_mean

_ORDERED = (
    pa.types.is_timestamp, pa.types.is_date, pa.types.is_integer, pa.types.is_floating, pa.types.is_string
)  # fmt: skip


def ordered(files: Iterable[DataFile], column: str | None, schema: str) -> list[DataFile]:
    """The same at every start, as checkpoints have files in any order.

    Files of which nothing tells the smallest time come last. Raises TableError for a column that is none.
    """
    smallest = _by_time(column, arrow_schema(schema)) if column else (lambda file: None)

    def key(file: DataFile) -> tuple[Any, ...]:
        time = smallest(file)
        return time is None, 0 if time is None else time, file.modified, file.path

    return sorted(files, key=key)


def order_mark(column: str | None) -> int:
    """By which tables know in which order the snapshot is read that they are in; 0 for the usual one."""
    return zlib.crc32(column.encode()) if column else 0


def _by_time(column: str, schema: pa.Schema) -> Callable[[DataFile], Any]:
    if column not in schema.names:
        raise TableError(
            f"`event_time_order`: there is no column {column}{did_you_mean(column, schema.names)}."
        )
    field = schema.field(column)
    if not any(is_kind(field.type) for is_kind in _ORDERED):
        raise TableError(f"`event_time_order`: column {column} is {field.type}, which has no order in time.")
    name = physical_name(field)

    def smallest(file: DataFile) -> Any:
        values = dict(file.partition)
        if name in values:
            return value_of(values[name], field.type).as_py()
        stats = orjson.loads(file.stats) if file.stats else {}
        return (stats.get("minValues") or {}).get(name)

    return smallest
