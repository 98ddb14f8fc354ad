"""Deletion: the rows that meet a condition are taken out of a table, all others stay."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, WriterProperties

from lakefeed.stores import store_errors
from lakefeed.tables.data_files import codec_of, data_files, reading, refuse_missing, refuse_respelled
from lakefeed.tables.log.data_file import DataFile, Extent, extent
from lakefeed.tables.operations.operation import CommitInfo, Report, change
from lakefeed.tables.protocol import refuse_append_only, refuse_unkept
from lakefeed.tables.rewrite.unwritable import refuse_unwritable
from lakefeed.tables.table import LakeTable


@dataclass(frozen=True)
class DeletePlan:
    """What a deletion would do; nothing has been changed."""

    version: int
    where: str
    rows: int
    touched: Extent
    """The files that may hold such rows, as far as statistics show; only those are read."""
    table: Extent
    codec: str


def plan(table: LakeTable, where: str) -> DeletePlan:
    """Count the rows for which the condition is true. A condition that is null is not true."""
    touched = touched_files(table, "delete", where)
    return DeletePlan(
        table.version,
        where,
        count_rows(table, where),
        extent(touched),
        extent(data_files(table)),
        codec_of(table.store, touched),
    )


def run(table: LakeTable, plan: DeletePlan, commit_info: CommitInfo) -> Report:
    """Delete in one commit. Raises Conflict when rows were added meanwhile that it has not seen."""
    before = extent(data_files(table))
    if not plan.rows:
        return Report("delete", before, before)

    written = WriterProperties(compression=plan.codec)  # type: ignore[arg-type]

    def delete(delta: DeltaTable, properties: CommitProperties) -> None:
        delta.delete(plan.where, writer_properties=written, commit_properties=properties)

    info = {**commit_info, "where": plan.where}
    made = change(table, info, delete, reads=lambda: data_files(table, plan.where))
    return Report("delete", before, extent(data_files(table)), made)


def touched_files(table: LakeTable, operation: str, where: str) -> list[DataFile]:
    """The files that may hold such rows. Raises TableError where delta-rs would not write them again well."""
    refuse_unkept(table, operation)
    refuse_append_only(table, operation)
    table.refresh()
    touched = data_files(table, where)
    refuse_missing(table.store, touched)
    refuse_respelled(table, touched)
    refuse_unwritable(table, touched)
    return touched


def count_rows(table: LakeTable, where: str) -> int:
    """How many rows of the newest version meet a condition; reads only files that may hold some."""
    columns = table.schema.names[:1]
    with store_errors(table.path), reading(where):
        batches = pa.RecordBatchReader.from_stream(table.delta.scan(columns=columns, predicate=where))
        return sum(batch.num_rows for batch in batches)
