"""Statistics that a checkpoint holds as columns (`stats_parsed`) and not as text, in the form of the log."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any

import orjson
import pyarrow.parquet as pq

PARSED = "add.stats_parsed"
_TEXT = "add.stats"


def lacks_text(checkpoint: pq.ParquetFile) -> bool:
    """Whether files have statistics as columns only: `delta.checkpoint.writeStatsAsJson` may be false."""
    paths = _paths(checkpoint)
    if not any(path.startswith(f"{PARSED}.") for path in paths):
        return False
    return _TEXT not in paths or _nulls(checkpoint, paths[_TEXT]) != _nulls(checkpoint, paths["add.path"])


def instants(checkpoint: pq.ParquetFile) -> set[str]:
    """The columns of instants that Arrow reads as times without a zone: Spark writes them as INT96."""
    schema = checkpoint.schema
    return {
        path for path, index in _paths(checkpoint).items() if schema.column(index).physical_type == "INT96"
    }


def stats_text(parsed: Mapping[str, Any], utc: Collection[str]) -> str:
    """The statistics of one file as the log has them; `utc` as from `instants`."""
    return orjson.dumps(_form(parsed, PARSED, utc)).decode()


def _form(value: Any, path: str, utc: Collection[str]) -> Any:
    match value:
        case dict():
            members = {name: _form(member, f"{path}.{name}", utc) for name, member in value.items()}
            return {name: member for name, member in members.items() if member is not None}
        case Decimal():
            return orjson.Fragment(f"{value:f}")
        case dt.datetime() if value.tzinfo or path in utc:
            instant = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
            return instant.isoformat(timespec="microseconds") + "Z"
        case dt.datetime():
            return value.isoformat(timespec="microseconds")
        case dt.date():
            return value.isoformat()
        case float():
            return value if math.isfinite(value) else None
        case bool() | int() | str():
            return value
        case _:
            return None


def _paths(checkpoint: pq.ParquetFile) -> dict[str, int]:
    return {checkpoint.schema.column(index).path: index for index in range(len(checkpoint.schema))}


def _nulls(checkpoint: pq.ParquetFile, column: int) -> int | None:
    """How many rows lack a column; None where the checkpoint does not say."""
    total = 0
    for group in range(checkpoint.metadata.num_row_groups):
        statistics = checkpoint.metadata.row_group(group).column(column).statistics
        # Statistics without a count of nulls are not comparable with None: Arrow ends the process then.
        if statistics is None or not statistics.has_null_count:
            return None
        total += statistics.null_count
    return total
