"""Tables whose rows have keys: changes are folded, the rows that they are about are found, and replaced."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakefeed.pipeline.options.changes import time_column
from lakefeed.tables.write.keyed.keys import one_array


@dataclass(frozen=True)
class KeyRules:
    """What tells the rows of a table apart, and what makes a change newer than another."""

    keys: tuple[str, ...]
    sequence_by: tuple[str, ...] = ()
    """Empty: the position decides."""
    ignore_nulls: bool = False
    """Whether a null says nothing about its column."""
    deletions_first: bool = False
    """Whether a deletion comes before an upsert of the same sequence: a change feed tells how rows were
    before a version, and how they are behind it. Elsewhere the deletion wins."""
    ties_by_position: bool = False
    """Whether the later of two changes with the same sequence wins, deletion or not, if one partition has
    both. True for change streams of databases, in which positions are the order of the changes."""
    positions: tuple[str, ...] = ()
    """The columns with the positions in the log of a database that change events bring."""
    stream: str | None = None
    """The column of the key that says which of several streams a row is of; None with one stream."""
    counts: str | None = None
    """The column that says by how many a change makes the rows of its key more or fewer, and in the table how
    many there are: see `counted`. None where the newest change of a key decides."""


@dataclass(frozen=True)
class HistoryRules(KeyRules):
    """The same of a table that has every state of a row, each in its interval of the sequence."""

    valid_from: str = "valid_from"
    valid_to: str = "valid_to"
    is_current: str | None = None
    track: tuple[str, ...] | None = None
    """The columns whose values make a new interval; None: all that are not in the next one."""
    track_except: tuple[str, ...] = ()
    time_by: str | None = None
    """The column with the time of a change; None where intervals have no times."""

    @property
    def interval(self) -> tuple[str, ...]:
        """The columns that say from when to when a row holds."""
        named = (self.valid_from, self.valid_to, *([self.is_current] if self.is_current else ()))
        return (*named, *self.time_columns)

    @property
    def time_columns(self) -> tuple[str, ...]:
        """With `time_by`: the columns with the times of the changes that begin and end an interval."""
        return (time_column(self.valid_from), time_column(self.valid_to)) if self.time_by else ()

    def interval_types(self, schema: pa.Schema) -> dict[str, pa.DataType]:
        """The types of these columns, in a table with the columns of `schema`."""
        kinds = dict.fromkeys((self.valid_from, self.valid_to), self.moment_type(schema))
        if self.is_current:
            kinds[self.is_current] = pa.bool_()
        return kinds | {name: schema.field(self.time_by).type for name in self.time_columns}

    def body(self, schema: pa.Schema) -> pa.Schema:
        """The columns of a table that changes bring."""
        return pa.schema([field for field in schema if field.name not in self.interval])

    def tracked(self, body: pa.Schema) -> list[str]:
        """The columns that are compared. The key is the same anyway, and the sequence never."""
        if self.track is not None:
            return list(self.track)
        never = {*self.keys, *self.sequence_by, *self.track_except, self.time_by}
        return [name for name in body.names if name not in never]

    def moment_type(self, schema: pa.Schema) -> pa.DataType:
        """The type of the ends of an interval: that of the sequence, or of its columns together."""
        fields = [schema.field(name).with_nullable(True) for name in self.sequence_by]
        return fields[0].type if len(fields) == 1 else pa.struct(fields)

    def sequence(self, rows: pa.Table) -> pa.Table:
        """The columns that order changes."""
        return rows.select(list(self.sequence_by))

    def times(self, ends: pa.ChunkedArray) -> pa.Table:
        """Ends of intervals in the columns of the sequence."""
        column = one_array(ends)
        parts = [column] if len(self.sequence_by) == 1 else column.flatten()
        return pa.Table.from_arrays(parts, names=list(self.sequence_by))

    def moments(self, times: pa.Table, indexes: pa.Array) -> pa.Array:
        """The times at these indexes as ends of intervals; null where an index is."""
        columns = [one_array(times.column(at)).take(indexes) for at in range(times.num_columns)]
        if len(columns) == 1:
            return columns[0]
        fields = [field.with_nullable(True) for field in times.schema]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=indexes.is_null())
