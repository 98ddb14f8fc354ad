"""Parquet is written: stores, rolling, naming, statistics, and the list of what was written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WrittenFile:
    """A Parquet file that is in no table yet. `path` is relative to the table and not URL-encoded."""

    path: str
    size: int
    partition_values: dict[str, str | None]
    stats: str
    rows: int
