"""The column that keeps what did not fit the others."""

from __future__ import annotations

import pyarrow as pa

from lakefeed.events import Refused
from lakefeed.pipeline.options.evolve import RESCUED
from lakefeed.rows import Rows


def add_rescued(rows: Rows) -> tuple[Rows, list[Refused]]:
    """The rows with the column; null where everything fitted."""
    rescued = pa.nulls(rows.batch.num_rows, pa.string()) if rows.rescued is None else rows.rescued
    return rows.of(rows.batch.append_column(RESCUED, rescued)), []
