"""Who rewrites a table for upkeep: delta-rs on the driver, or another engine with the same results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

from lakefeed.errors import Conflict, TableError
from lakefeed.files.parquet import FileTarget, TableWriter
from lakefeed.handles.handle import TableHandle
from lakefeed.stores import open_store
from lakefeed.tables.data_files import data_files
from lakefeed.tables.log.data_file import partition_text
from lakefeed.tables.log.entry import read_entry
from lakefeed.tables.operations import delete as deletion
from lakefeed.tables.operations import vacuum
from lakefeed.tables.operations.checkpoint import checkpoint_now
from lakefeed.tables.operations.operation import operation_info
from lakefeed.tables.rewrite import compact as compaction
from lakefeed.tables.rewrite import z_order
from lakefeed.tables.rewrite.memory import beyond_memory
from lakefeed.tables.rewrite.rewrite import RewritePlan, Step
from lakefeed.tables.table import LakeTable, commit_info_of
from lakefeed.upkeep.file_writer import file_target

BY = "upkeep"
StepT = TypeVar("StepT", bound=Step)


@dataclass(frozen=True)
class FileChange:
    """What a step took away, and what it put there."""

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


class Rewriter(Protocol):
    """What upkeep has done to one table. Plans are made on the newest version, by its own handle."""

    def table(self) -> LakeTable:
        """The newest version, in a handle that the stream does not use."""

    def compact(self, plan: compaction.CompactPlan, step: compaction.CompactStep) -> FileChange:
        """Make larger files of the small ones of a partition; every row stays."""

    def cluster(self, plan: z_order.ZOrderPlan, step: z_order.ZOrderStep) -> FileChange:
        """Order the rows of a partition; every row stays."""

    def delete(self, where: str) -> FileChange:
        """Delete the rows that meet a condition."""

    def vacuum(self, plan: vacuum.VacuumPlan, on_file: Callable[[], None]) -> FileChange:
        """Delete the files of a plan."""

    def checkpoint(self) -> None:
        """Spare readers the entries that have marked rows one by one, once these rows are gone."""


class Stopped(Exception):
    """The run ends: what was being rewritten is dropped, and the table is as it was."""


class BeyondMemory(TableError):
    """A partition does not fit the memory of the driver; the others are done all the same."""


class DeltaRewriter:
    """The operations of `tables/`, on the driver and beside the stream, whose commits go on meanwhile.

    Each commit checks what has landed since it was begun; where somebody else has changed the same files, it
    raises Conflict, and the table is as they left it.
    """

    def __init__(
        self, handle: TableHandle, pipeline: str, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        self._handle = handle
        self._pipeline = pipeline
        self._stopping = stopping
        self._table: LakeTable | None = None

    def table(self) -> LakeTable:
        """Opened once, then moved on."""
        if self._table is None:
            handle = self._handle
            store = open_store(handle.path, handle.storage)
            self._table = LakeTable.open(handle.name, handle.path, handle.storage, store, durable=handle.sync)
            assert self._table is not None, f"{handle.path} is no table any more"
        else:
            self._table.refresh()
        return self._table

    def compact(self, plan: compaction.CompactPlan, step: compaction.CompactStep) -> FileChange:
        """One commit that says it changes no data."""
        return self._rewrite(plan, step)

    def cluster(self, plan: z_order.ZOrderPlan, step: z_order.ZOrderStep) -> FileChange:
        """One commit that says it changes no data. Raises BeyondMemory when memory would not do."""
        table = self.table()
        if too_large := beyond_memory(table, step.files):
            raise BeyondMemory(f"{partition_text(step.partition) or self._handle.name}: {too_large}")
        return self._rewrite(plan, step)

    def delete(self, where: str) -> FileChange:
        """One commit, or none where no row meets the condition.

        A deletion looks at all rows there are, so the stream's own appends may get in its way time and again.
        Then they wait for it.
        """
        try:
            return self._delete(where)
        except Conflict:
            with self._handle.lock:
                return self._delete(where)

    def vacuum(self, plan: vacuum.VacuumPlan, on_file: Callable[[], None]) -> FileChange:
        """One commit that tells of it, then the files."""
        report = vacuum.run(self.table(), plan, self._commit_info("vacuum"), on_file=on_file)
        before, after = report.before, report.after
        return FileChange(before.files - after.files, 0, before.bytes - after.bytes, 0)

    def checkpoint(self) -> None:
        """Where rows are marked in deletion vectors: each such entry names every file again."""
        table = self.table()
        if table.has_vectors:
            checkpoint_now(table)

    def change(self, versions: Iterable[int]) -> FileChange:
        """What the commits of upkeep among these versions did; the others are the stream's."""
        removed, added = [], []
        for version in versions:
            entry = read_entry(self.table().store, version)
            if commit_info_of(entry.info).get("by") == BY:
                removed += [file.size for file in entry.removes]
                added += [file.size for file in entry.adds]
        return FileChange(len(removed), len(added), sum(removed), sum(added))

    def _rewrite(self, plan: RewritePlan[StepT], step: StepT) -> FileChange:
        """Let the stream wait, where its every batch may change the files that are being rewritten.

        Otherwise it goes on: what it appends is no conflict.
        """
        spec = self._handle.spec
        with self._handle.lock if spec and spec.mode in ("upsert", "history") else nullcontext():
            table, info = self.table(), self._commit_info(plan.kind)
            return self.change([plan.run_step(table, _as_now(table, step), info, self._writer)])

    def _delete(self, where: str) -> FileChange:
        table = self.table()
        return self.change(
            deletion.run(table, deletion.plan(table, where), self._commit_info("delete")).versions
        )

    def _commit_info(self, kind: str) -> dict[str, object]:
        return operation_info(kind, by=BY, pipeline=self._pipeline)

    def _writer(self, table: LakeTable, codec: str, target_size: int) -> TableWriter:
        rows = self._handle.spec.max_rows_per_file if self._handle.spec else None
        return _Interruptible(table.store, file_target(table, codec, target_size, rows), self._stopping)


def _as_now(table: LakeTable, step: StepT) -> StepT:
    """The step with its files as they are by now: others may have deleted rows of them since."""
    if not table.has_vectors:
        return step
    now = {file.path: file for file in data_files(table)}
    return replace(step, files=tuple(now.get(file.path, file) for file in step.files))


class _Interruptible(TableWriter):
    """A writer that gives up in the middle when the run is to end."""

    def __init__(self, store: pafs.FileSystem, target: FileTarget, stopping: Callable[[], bool]) -> None:
        super().__init__(store, target)
        self._stopping = stopping

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows, or raise Stopped."""
        if self._stopping():
            raise Stopped
        super().write(rows)
