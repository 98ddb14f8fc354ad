"""Events of Postgres: changes and rows of one table as columns, with where each came from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from lakefeed.events import ORIGIN, Completed, Events, Unfit, origin_of
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


Complete = Callable[[Collection[str] | None], Completed]
"""Asks the server for values that some changes leave out, as `Events.completed` does."""


class PostgresEvents(Events):
    """Changes or rows of one table with the same columns."""

    complete: Complete | None = None
    """Asks for values that changes leave out; None where none does."""

    def __init__(
        self,
        columns: pa.RecordBatch,
        unfit: Mapping[str, Unfit],
        keys: tuple[str, ...],
        origins: Origins,
        texts: Mapping[str, pa.StringArray] = MappingProxyType({}),
        problem: str | None = None,
    ) -> None:
        self.columns, self.unfit, self.key_columns = columns, unfit, keys
        self._origins, self.stream = origins, origins.stream
        self.texts, self.problem = texts, problem

    def completed(self, columns: Collection[str] | None) -> Completed:
        """As the server has the rows now."""
        return Completed(self) if self.complete is None else self.complete(columns)

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
