"""Events of Postgres: changes and rows of one table as columns, with where each came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakefeed.events import ORIGIN, Events, Unfit, origin_of
from lakefeed.sources.postgres.positions import partition_name
from lakefeed.sources.postgres.replication.pgoutput import Numbers

METADATA = pa.schema(
    [
        ("_stream", pa.string()),
        ("_op", pa.string()),
        ("_lsn", pa.int64()),
        ("_ordinal", pa.int64()),
        ("_commit_time", pa.timestamp("us", "UTC")),
        ("_xid", pa.int64()),
        ("_unchanged", pa.list_(pa.field("element", pa.string()))),
    ]
)
"""What is added to the columns of a table."""


@dataclass(frozen=True)
class Origins:
    """Where some events of one table came from."""

    stream: str
    offsets: Numbers
    numbers: Numbers
    """The ordinal of a change in its transaction; of a row of a snapshot its fingerprint, below 0."""
    times: Numbers | None = None
    """Of changes: when they were committed, in microseconds since 1970."""


class PostgresEvents(Events):
    """Changes or rows of one table with the same columns."""

    def __init__(
        self,
        columns: pa.RecordBatch,
        unfit: Mapping[str, Unfit],
        keys: tuple[str, ...],
        origins: Origins,
    ) -> None:
        self.columns, self.unfit, self.key_columns = columns, unfit, keys
        self._origins, self.stream = origins, origins.stream

    def origin(self, rows: Sequence[int] | None = None) -> pa.RecordBatch:
        """The table, the ordinal in the transaction, the LSN or number of the row, and the time."""
        chosen = slice(None) if rows is None else np.asarray(rows, np.int64)
        known = self._origins
        offsets = known.offsets[chosen]
        count = len(offsets)
        times = {}
        if known.times is not None:
            moments = pa.array(known.times[chosen], pa.int64())
            times = {"timestamp": moments.cast(ORIGIN.field("timestamp").type)}
        return origin_of(
            count,
            stream=pa.repeat(pa.scalar(known.stream), count),
            partition=pa.array(known.numbers[chosen], pa.int32()),
            offset=pa.array(offsets, pa.int64()),
            **times,
        )

    def counts(self, rows: Sequence[int] | None = None) -> Mapping[str, int]:
        """All are of one partition."""
        if not len(self):
            return {}
        name = partition_name(self._origins.stream, rows=bool(self._origins.numbers[0] < 0))
        return {name: len(self) if rows is None else len(rows)}
