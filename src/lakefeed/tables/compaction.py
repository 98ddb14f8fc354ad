"""Compaction: the small files of each partition become few large ones; every row stays."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable, WriterProperties

from lakefeed.pipeline.units import parse_size
from lakefeed.tables.operation import Account, Extent, Report, change
from lakefeed.tables.protocol import refuse_unkept
from lakefeed.tables.snapshot import (
    DataFile,
    Partition,
    by_partition,
    data_files,
    extent,
    partition_filter,
    refuse_other_columns,
)
from lakefeed.tables.table import LakeTable, commit_properties

TARGET_FILE_SIZE = 128 * 1024**2
_TARGET_PROPERTY = "delta.targetFileSize"


@dataclass(frozen=True)
class Step:
    """One partition that is worth rewriting, and the number of files that is expected to be left of it.

    One step is one commit: a kill between two steps leaves a table that is half as untidy, and nothing else.
    """

    partition: Partition
    before: Extent
    small: int
    expected_files: int
    codec: str


@dataclass(frozen=True)
class Plan:
    """What a compaction would do; nothing has been changed. Runs on the newest version, whichever that is."""

    version: int
    target_size: int
    steps: tuple[Step, ...]
    table: Extent

    @property
    def before(self) -> Extent:
        """What would be rewritten."""
        return sum((step.before for step in self.steps), Extent())

    @property
    def expected_files(self) -> int:
        """How many files are expected to take its place."""
        return sum(step.expected_files for step in self.steps)


def plan(
    table: LakeTable,
    *,
    where: str | None = None,
    target_size: int | None = None,
    min_size: int | None = None,
    min_files: int = 2,
) -> Plan:
    """Find the partitions whose small files would become fewer.

    A file below `min_size` (by default the target) is small; a partition is left alone unless it has at least
    `min_files` of them. `where` is a SQL condition on the partition columns. The target is by default the
    table's own property delta.targetFileSize, or 128 MB.
    """
    refuse_unkept(table, "compact")
    if where is not None:
        refuse_other_columns(table, where)
    target = target_size or target_of(table)
    groups = by_partition(data_files(table.delta, where))
    steps = [
        _step(table.store, partition, files, target, min(min_size or target, target))
        for partition, files in groups.items()
        if _worth_it(files, target, min(min_size or target, target), min_files)
    ]
    return Plan(table.version, target, tuple(steps), extent(data_files(table.delta)))


def run(
    table: LakeTable, plan: Plan, account: Account, *, on_step: Callable[[Step], None] = lambda step: None
) -> Report:
    """Rewrite every partition of the plan, oldest first, one commit each. Raises Conflict between commits."""
    before = extent(data_files(table.delta))
    made: list[int] = []
    for step in plan.steps:
        made += run_step(table, plan, step, account)
        on_step(step)
    return Report("compact", before, extent(data_files(table.delta)), tuple(made))


def run_step(table: LakeTable, plan: Plan, step: Step, account: Account) -> tuple[int, ...]:
    """Rewrite one partition in one commit that says it changes no data; the version made, if any.

    Appends that land meanwhile are no conflict; their files are left for the next time.
    """

    def rewrite(delta: DeltaTable) -> None:
        delta.optimize.compact(
            partition_filters=partition_filter(step.partition),
            target_size=plan.target_size,
            writer_properties=writer_properties(step.codec),
            commit_properties=commit_properties({}, {**account, "partition": dict(step.partition)}),
        )

    return change(table, "compaction", rewrite)


def target_of(table: LakeTable) -> int:
    """The size that the table wants its files to have."""
    text = re.sub(r"\s", "", table.properties.get(_TARGET_PROPERTY, ""))
    if not text:
        return TARGET_FILE_SIZE
    return parse_size(text if re.search(r"[bB]$|\d$", text) else f"{text}B")


def writer_properties(codec: str) -> WriterProperties:
    """How files are written again: compressed as they were."""
    return WriterProperties(compression=codec)  # type: ignore[arg-type]


def codec_of(store: pafs.FileSystem, files: Iterable[DataFile]) -> str:
    """The compression of the first of the files, by its footer."""
    first: Any = next(iter(files), None)
    if first is None:
        return "ZSTD"
    with store.open_input_file(first.path) as stream:
        footer = pq.ParquetFile(stream).metadata
        known = footer.num_row_groups and footer.num_columns
        return str(footer.row_group(0).column(0).compression) if known else "ZSTD"


def _worth_it(files: list[DataFile], target: int, small: int, min_files: int) -> bool:
    count = sum(file.size < small for file in files)
    return count >= max(2, min_files) and _expected(files, target) < len(files)


def _step(
    store: pafs.FileSystem, partition: Partition, files: list[DataFile], target: int, small: int
) -> Step:
    rewritten = [file for file in files if file.size < target]
    return Step(
        partition,
        extent(rewritten),
        sum(file.size < small for file in files),
        _expected(rewritten, target),
        codec_of(store, rewritten),
    )


def _expected(files: list[DataFile], target: int) -> int:
    """How many files there are afterwards, if the content compresses as before.

    Neighbours in time are put together as long as they fit, as delta-rs does it.
    """
    count, filled = 0, 0
    for file in sorted(files, key=lambda file: file.modified):
        if count and filled + file.size <= target:
            filled += file.size
        else:
            count, filled = count + 1, file.size
    return count
