"""What a table holds: rows, files and bytes, counted in a snapshot that is in memory already."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from lakefeed.tables.data_files import add_actions
from lakefeed.tables.log.data_file import small_below
from lakefeed.tables.table import LakeTable


@dataclass(frozen=True)
class Contents:
    """The files of one version of a table."""

    version: int
    rows: int
    files: int
    small_files: int
    size: int
    last_commit: float | None
    """Seconds since 1970; None when the log does not say."""
    partitions: int = 0
    """How many different values the files have in the partition columns; 0 for a table without any."""


def contents_of(table: LakeTable, target_file_size: int) -> Contents:
    """Count the files of the snapshot; reads one entry of the log, for the time of the last commit."""
    adds = add_actions(table.delta)
    sizes = adds.column("size_bytes")
    rows = adds.column("num_records") if "num_records" in adds.schema.names else None
    parts = [name for name in adds.schema.names if name.startswith("partition.")]
    deleted = sum(file.deleted for file in table.live().files.values()) if table.has_vectors else 0
    last, limit = table.delta.history(1), small_below(target_file_size)
    return Contents(
        version=table.version,
        # delta-rs does not tell of deletion vectors.
        rows=(0 if rows is None else pc.sum(rows).as_py() or 0) - deleted,
        files=adds.num_rows,
        # Arrow would import pandas to see what a Python number is.
        small_files=sum(int((np.from_dlpack(part) < limit).sum()) for part in sizes.chunks),
        size=pc.sum(sizes).as_py() or 0,
        last_commit=last[0]["timestamp"] / 1000 if last and "timestamp" in last[0] else None,
        partitions=adds.select(parts).group_by(parts).aggregate([]).num_rows if parts else 0,
    )
