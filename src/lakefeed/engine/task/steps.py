"""The planner of row steps: which steps the rows of a table pass between decoding and writing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from lakefeed.columns.column_types import stored
from lakefeed.engine.task.python_step import python_step
from lakefeed.files.names import Serial
from lakefeed.files.partitions import without_partition
from lakefeed.handles.table_plan import TablePlan
from lakefeed.rows import Rows, Step, StepResult
from lakefeed.rows.changes import FindDeletions, MakeChanges
from lakefeed.rows.drop import NullColumns
from lakefeed.rows.envelope import ListNullsOfDeletions, ReadLog, RefusePartial
from lakefeed.rows.evaluator import ByArrow, Evaluate
from lakefeed.rows.expect import Expect
from lakefeed.rows.metadata import AddMetadata
from lakefeed.rows.partition import AddPartitionColumns
from lakefeed.rows.rename import Rename, left_columns
from lakefeed.rows.rescue import add_rescued
from lakefeed.rows.select import Select, Where


def steps_for(table: TablePlan, dropped: Sequence[pa.Field], serial: Serial | None = None) -> list[Step]:
    """The steps of a table, in order; `dropped` are columns that it has and that `drop` names since."""
    moment = serial.planned if serial and serial.planned else time.time_ns() // 1000
    return [*event_steps(table, dropped), *sql_steps(table, ByArrow(moment)), *table_steps(table)]


def event_steps(table: TablePlan, dropped: Sequence[pa.Field]) -> list[Step]:
    """The steps before SQL, which make the columns that it reads."""
    steps: list[Step] = []
    if dropped:
        steps.append(NullColumns(pa.schema(dropped)))
    unchanged = table.log.unchanged if table.log else None
    if table.renames or (unchanged and table.rules.dropped):
        steps.append(Rename(table.rename, table.rules.dropped, unchanged, table.decoded))
        left = left_columns(table.decoded or pa.schema([]), table.rename)
        if len(left):
            steps.append(NullColumns(left))
    if table.rescues:
        steps.append(add_rescued)
    if table.metadata:
        steps.append(AddMetadata(table.metadata))
    if table.python and table.decoded is not None:
        if table.log and table.is_keyed:
            steps.append(RefusePartial(table.log, f"`python: {table.python.name}`"))
        steps.append(python_step(table))
        if table.returned is None:
            # While the columns that it returns are only looked at, its rows have none.
            return steps
    if table.log and table.reads_log:
        steps.append(ReadLog(table.log, keyed=table.changes is not None))
    if table.changes and table.changes.judges:
        steps.append(FindDeletions(table.changes))
    if table.projection is not None and table.projection.where is not None:
        steps.append(ListNullsOfDeletions(table.projection.where.columns()))
    return steps


def sql_steps(table: TablePlan, evaluate: Evaluate) -> list[Step]:
    """`where`, `select` and `expect`."""
    projection = table.projection
    if projection is None or table.columns is None:
        return []
    steps: list[Step] = []
    if projection.where is not None:
        steps.append(Where(projection, evaluate, keyed=table.is_keyed))
    if table.selects:
        columns = table.changes.decoded(table.columns) if table.changes else table.columns
        steps.append(Select(projection, stored(columns), evaluate, keyed=table.is_keyed))
    if projection.rules:
        steps.append(Expect(projection.rules, evaluate))
    return steps


def table_steps(table: TablePlan) -> list[Step]:
    """The steps behind SQL, whose rows have the columns of the table."""
    steps: list[Step] = []
    if table.partition_by and table.columns is not None:
        steps += [AddPartitionColumns(table.partition_by), RefuseUnpartitioned(table)]
    if table.changes:
        steps.append(MakeChanges(table.changes))
    return steps


class RefuseUnpartitioned:
    """Refuses rows that no partition of the table can hold."""

    def __init__(self, table: TablePlan) -> None:
        assert table.columns is not None
        self._columns = table.columns
        self._names = [field.name for field in table.partition_by]

    def __call__(self, rows: Rows) -> StepResult:
        """The rows that have a partition, and why the others have none."""
        found = without_partition(rows.batch, self._columns, self._names)
        if not found:
            return StepResult(rows)
        refused = [replace(why, index=rows.indexes[at]) for at, why in sorted(found.items())]
        return StepResult(rows.without(list(found)), refused)
