"""Partition columns that are functions of time, computed in UTC."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.pipeline.options.partition_by import PartitionField
from lakefeed.rows import Rows, StepResult

_PATTERNS = {"month": "%Y-%m", "hour": "%Y-%m-%d-%H"}
_FINEST = {"%S": "second", "%M": "minute", "%H": "hour"}


class AddPartitionColumns:
    """Adds the columns that `partition_by` derives from others."""

    def __init__(self, fields: Sequence[PartitionField]) -> None:
        self._fields = fields

    def __call__(self, rows: Rows) -> StepResult:
        """The rows with a column for each."""
        return StepResult(rows.of(add_partition_columns(rows.batch, self._fields)))


def add_partition_columns(rows: pa.RecordBatch, fields: Sequence[PartitionField]) -> pa.RecordBatch:
    """The rows with a column for each entry of `partition_by` that is not a column of them already.

    What is null in the column that an entry reads is null in the column that it becomes.
    """
    for field in fields:
        if field.derived:
            source = rows.column(field.column)
            described = pa.field(field.name, field.arrow_type(source.type))
            rows = rows.append_column(described, _values(field, source))
    return rows


def _values(field: PartitionField, source: pa.Array) -> pa.Array:
    match field.function:
        case None:
            return source
        case "year":
            return pc.year(_moments(source)).cast(pa.int32())
        case "day":
            return pc.floor_temporal(_moments(source), unit="day").cast(pa.date32())
        case "strftime":
            return _texts(source, field.pattern or "")
        case function:
            return _texts(source, _PATTERNS[function])


def _texts(source: pa.Array, pattern: str) -> pa.Array:
    """Few distinct moments are left at the precision of a pattern, so only those are written as text."""
    bare = pattern.replace("%%", "")
    unit = next((unit for directive, unit in _FINEST.items() if directive in bare), "day")
    coarse = pc.floor_temporal(_moments(source), unit=unit)
    encoded = coarse.dictionary_encode()
    # With whole seconds as the unit, %S has no fraction.
    texts = pc.strftime(encoded.dictionary.cast(pa.timestamp("s")), format=pattern, locale="C")
    return texts.take(encoded.indices)


def _moments(source: pa.Array) -> pa.Array:
    """Dates and timestamps as UTC without a zone, which spares looking up the zone for each row."""
    return source.cast(pa.timestamp("s" if pa.types.is_date(source.type) else source.type.unit))
