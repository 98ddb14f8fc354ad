"""Layout: a table is written again under other partition columns or types, all its rows in one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, WriterProperties, write_deltalake

from lakefeed.errors import UsageError
from lakefeed.stores import store_errors
from lakefeed.tables.data_files import codec_of, data_files, refuse_respelled
from lakefeed.tables.log.data_file import Extent, extent
from lakefeed.tables.operations.operation import CommitInfo, Report, change
from lakefeed.tables.protocol import refuse_append_only, refuse_unkept
from lakefeed.tables.rewrite.compact import target_of
from lakefeed.tables.rewrite.feeding import feeding
from lakefeed.tables.rewrite.unwritable import writable
from lakefeed.tables.table import LakeTable
from lakefeed.text import suggestion

Shape = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Adds columns to rows."""


@dataclass(frozen=True)
class RepartitionPlan:
    """What a change of the layout would do; nothing has been changed."""

    version: int
    partition_by: tuple[str, ...]
    was: tuple[str, ...]
    added_columns: pa.Schema
    """Columns that the table does not have yet and that its rows get, such as the day of a timestamp."""
    table: Extent
    codec: str
    target_size: int
    retyped: pa.Schema = field(default_factory=lambda: pa.schema([]))
    """Columns that get another type; whoever runs the plan brings the values."""

    @property
    def nothing(self) -> bool:
        """Whether the table is laid out so already."""
        return self.partition_by == self.was


def plan(
    table: LakeTable, partition_by: Sequence[str], added_columns: pa.Schema | None = None
) -> RepartitionPlan:
    """Look at what has to be written: everything. An empty list makes a table without partitions."""
    refuse_unkept(table, "layout")
    refuse_append_only(table, "layout")
    table.refresh()
    added = added_columns or pa.schema([])
    names = [*table.schema.names, *added.names]
    for name in partition_by:
        if name not in names:
            raise UsageError(f"--partition-by: the table has no column {name!r}{suggestion(name, names)}")
    if set(partition_by) == set(names):
        raise UsageError("--partition-by names every column; at least one must be left for the files.")
    files = data_files(table)
    refuse_respelled(table, files)
    return RepartitionPlan(
        table.version,
        tuple(partition_by),
        tuple(table.partition_columns),
        added,
        extent(files),
        codec_of(table.store, files),
        target_of(table),
    )


def run(
    table: LakeTable, plan: RepartitionPlan, commit_info: CommitInfo, shape: Shape = lambda rows: rows
) -> Report:
    """Write every row again, in one commit. Raises Conflict when anything has landed meanwhile."""
    before = extent(data_files(table))
    other = {one.name: one for one in plan.retyped}
    schema = pa.schema([*(other.get(one.name, one) for one in table.schema), *plan.added_columns])
    written = WriterProperties(compression=plan.codec)  # type: ignore[arg-type]
    info = {**commit_info, "partition_by": list(plan.partition_by), "was": list(plan.was)}

    def write(delta: DeltaTable, properties: CommitProperties) -> None:
        # Another handle reads: one that writes is locked.
        found = _rows(table, table.at(delta.version()), schema, shape)
        with feeding(writable(table, found, plan.partition_by), schema) as rows:
            write_deltalake(
                delta,
                rows,
                mode="overwrite",
                schema_mode="overwrite",
                partition_by=list(plan.partition_by),
                target_file_size=plan.target_size,
                writer_properties=written,
                commit_properties=properties,
            )

    # delta-rs keeps what was appended since, in files of the old layout: nothing may come between.
    made = change(table, info, write, tries=1, only_next=True)
    return Report("layout", before, extent(data_files(table)), made)


def _rows(table: LakeTable, delta: DeltaTable, schema: pa.Schema, shape: Shape) -> Iterator[pa.RecordBatch]:
    old = table.schema
    with store_errors(table.path):
        for batch in pa.RecordBatchReader.from_stream(delta.scan()):
            columns = [batch.column(one.name).cast(one.type) for one in old]
            shaped = shape(pa.RecordBatch.from_arrays(columns, schema=old))
            yield pa.RecordBatch.from_arrays([shaped.column(name) for name in schema.names], schema=schema)
