"""What travels beside rows through Spark's operators, so that a row that fails can become a dead letter.

The columns have names that no column of a table can have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import overload

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import TIMESTAMP
from lakefeed.columns.repeated import repeated
from lakefeed.engine.task.decoding import origin_of, payloads_of
from lakefeed.events import ORIGIN, Events
from lakefeed.handles.table_plan import TablePlan
from lakefeed.rows import Rows
from lakefeed.sql.projection import BATCH_TIME, Projection

PAYLOAD = "(payload)"
EVENT_ORIGIN = "(origin)"
NOTE = "(note)"
"""What the reading half of a task tells the writing half: what it is to read, and what it has read."""
REASON = "(reason)"
"""Why a row has no columns: what Spark said when it threw."""
KEPT = "(kept)"
"""Whether `where` keeps the row; null for one that threw."""

OPS = "(op)"
UNCHANGED = "(unchanged)"
"""What a row does in a table of changes, and which columns it says nothing about."""
FORMER_KEYS = "(former keys)"
"""The columns by which a change names its row, where the source has had another key since."""

_CARRIED = [(PAYLOAD, pa.binary()), (EVENT_ORIGIN, pa.struct(list(ORIGIN))), (NOTE, pa.string())]
_NAMES = pa.list_(pa.string())
_CHANGES = [(OPS, pa.int8()), (UNCHANGED, _NAMES), (FORMER_KEYS, _NAMES)]


def beside(table: TablePlan) -> pa.Schema:
    """The columns beside those of the events, on their way to Spark."""
    return pa.schema([*_CARRIED, *(_CHANGES if table.changes or table.reads_log else [])])


def event_columns(projection: Projection) -> pa.Schema:
    """The columns that texts may name."""
    named = projection.input.names
    return (
        projection.input if BATCH_TIME in named else projection.input.append(pa.field(BATCH_TIME, TIMESTAMP))
    )


def verdict(number: int) -> str:
    """The column that says whether rows meet a rule."""
    return f"(rule {number})"


def carried(rows: Rows, columns: Sequence[str], table: TablePlan) -> pa.RecordBatch:
    """Columns of rows, and beside each row its event."""
    given: dict[str, pa.Array] = {
        PAYLOAD: pa.array(payloads_of(rows.events, rows.indexes), pa.binary()),
        EVENT_ORIGIN: origin_of(rows.events, rows.indexes).to_struct_array(),
    }
    given |= {} if rows.ops is None else {OPS: rows.ops}
    given |= {} if rows.unchanged is None else {UNCHANGED: rows.unchanged}
    count = rows.batch.num_rows
    if former := rows.events.former_keys:
        given[FORMER_KEYS] = repeated(pa.scalar(list(former), _NAMES), count)
    arrays = [given.get(one.name, pa.nulls(count, one.type)) for one in beside(table)]
    made = [rows.batch.column(name) for name in columns]
    return pa.RecordBatch.from_arrays([*made, *arrays], names=[*columns, *beside(table).names])


def note(text: str, columns: pa.Schema, table: TablePlan) -> pa.RecordBatch:
    """A row that carries nothing but a note."""
    schema = pa.schema([*columns, *beside(table)])
    arrays = [pa.array([text]) if each.name == NOTE else pa.nulls(1, each.type) for each in schema]
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def by_key(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The rows of a batch, those apart that name their row by other columns."""
    if FORMER_KEYS not in batch.schema.names or not batch.num_rows:
        return [batch] if batch.num_rows else []
    names = pc.binary_join(batch.column(FORMER_KEYS), "\x1f").fill_null("")
    return [batch.filter(pc.equal(names, one)) for one in names.unique()]


class CarriedEvents(Events):
    """The events of rows that came back from Spark: those that somebody has to ask about have come along."""

    def __init__(self, batch: pa.RecordBatch, partition_of: Callable[[str | None, int], str]) -> None:
        """Take a batch that has the columns `PAYLOAD` and `EVENT_ORIGIN`, of one key: see `by_key`."""
        self.batch = batch
        self.payloads = _Payloads(batch.column(PAYLOAD))
        self._origins = batch.column(EVENT_ORIGIN)
        self._partition_of = partition_of
        former = batch.column(FORMER_KEYS)[0].as_py() if FORMER_KEYS in batch.schema.names else None
        self.former_keys = tuple(former or ())

    def origin(self, rows: Sequence[int] | None = None) -> pa.RecordBatch:
        """Where the events came from."""
        origins = self._origins if rows is None else self._origins.take(pa.array(rows, pa.int64()))
        return pa.RecordBatch.from_arrays(origins.flatten(), names=ORIGIN.names).cast(ORIGIN)

    def counts(self, rows: Sequence[int] | None = None) -> Mapping[str, int]:
        """How many events of each partition there are."""
        found = self.partitions(rows).value_counts()
        return dict(zip(found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True))

    def partitions(self, rows: Sequence[int] | None = None) -> pa.Array:
        """The partition of each event."""
        origin = self.origin(rows)
        streams = origin.column("stream").dictionary_encode()
        numbers = origin.column("partition").dictionary_encode()
        # Numbers of changes and rows of Postgres are many in one partition.
        width = len(numbers.dictionary) + 1
        codes = pc.add(pc.multiply(_codes(streams), width), _codes(numbers)).dictionary_encode()
        names = [None, *streams.dictionary.to_pylist()], [None, *numbers.dictionary.to_pylist()]
        pairs = ((names[0][code // width], names[1][code % width]) for code in codes.dictionary.to_pylist())
        return pa.array([self._partition_of(*pair) for pair in pairs], pa.string()).take(codes.indices)


def _codes(column: pa.DictionaryArray) -> pa.Array:
    """The number of each value from 1 on; 0 for null."""
    return pc.add(column.indices.cast(pa.int64()).fill_null(-1), 1)


class _Payloads(Sequence[bytes | None]):
    """Payloads in Arrow's memory; few of them are ever looked at."""

    def __init__(self, held: pa.Array) -> None:
        self._held = held

    def __len__(self) -> int:
        return len(self._held)

    @overload
    def __getitem__(self, index: int) -> bytes | None: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes | None]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes | None] | None:
        found = self._held[index]
        return _Payloads(found) if isinstance(index, slice) else found.as_py()
