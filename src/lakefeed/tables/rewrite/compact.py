"""Compaction: the small files of each partition become few large ones; every row stays."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from lakefeed.tables.data_files import (
    codec_of,
    data_files,
    read_rows,
    refuse_other_columns,
    refuse_respelled,
)
from lakefeed.tables.log.data_file import DataFile, Extent, Partition, by_partition, extent
from lakefeed.tables.operations.operation import CommitInfo, Report
from lakefeed.tables.protocol import refuse_unkept
from lakefeed.tables.rewrite.rewrite import Writers, refuse_vectors, rewrite
from lakefeed.tables.table import LakeTable
from lakefeed.units import parse_size

TARGET_FILE_SIZE = 128 * 1024**2
_TARGET_PROPERTY = "delta.targetFileSize"


SMALL_SHARE = 0.5
"""A file below this share of the target size is small."""


@dataclass(frozen=True)
class Step:
    """The small files of one partition, and the number of files that is expected to take their place.

    One step is one commit: a kill between two steps leaves a table that is half as untidy, and nothing else.
    """

    partition: Partition
    files: tuple[DataFile, ...]
    expected_files: int

    @property
    def before(self) -> Extent:
        """What is rewritten."""
        return extent(self.files)


@dataclass(frozen=True)
class CompactPlan:
    """What a compaction would do; nothing has been changed."""

    version: int
    target_size: int
    steps: tuple[Step, ...]
    table: Extent
    codec: str

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
) -> CompactPlan:
    """Find the small files of each partition, oldest partition first.

    A file is small below `min_size`, by default half of the target; a partition is left alone unless it has
    at least `min_files` of them. `where` is a SQL condition on the partition columns. The target is by
    default the table's own property delta.targetFileSize, or 128 MB.
    """
    refuse_unkept(table, "compact")
    refuse_vectors(table)
    if where is not None:
        refuse_other_columns(table, where)
    table.refresh()
    target = target_size or target_of(table)
    small = min(min_size or int(target * SMALL_SHARE), target)
    files = data_files(table.delta, where)
    refuse_respelled(table, files)
    groups = by_partition(file for file in files if file.size < small)
    steps = tuple(
        Step(partition, tuple(sorted(group, key=lambda file: file.modified)), expected)
        for partition, group in groups.items()
        if len(group) >= max(2, min_files) and (expected := _expected(group, target)) < len(group)
    )
    whole = extent(files if where is None else data_files(table.delta))
    return CompactPlan(table.version, target, steps, whole, codec_of(table.store, files))


def run(
    table: LakeTable,
    plan: CompactPlan,
    commit_info: CommitInfo,
    writers: Writers,
    on_step: Callable[[Step], None] = lambda step: None,
) -> Report:
    """Rewrite every partition of the plan, oldest first, one commit each. Raises Conflict between commits."""
    made: list[int] = []
    for step in plan.steps:
        made.append(run_step(table, plan, step, commit_info, writers))
        on_step(step)
    return Report("compact", plan.table, extent(data_files(table.delta)), tuple(made))


def run_step(
    table: LakeTable, plan: CompactPlan, step: Step, commit_info: CommitInfo, writers: Writers
) -> int:
    """Rewrite the small files of one partition in one commit that says it changes no data; its version.

    Appends that land meanwhile are no conflict; their files are left for the next time.
    """
    told = {**commit_info, "partition": dict(step.partition), "files": len(step.files)}
    writer = writers(table, plan.codec, plan.target_size)
    return rewrite(table, step.files, read_rows(table, step.files), writer, told)


def target_of(table: LakeTable) -> int:
    """The size that the table wants its files to have."""
    text = re.sub(r"\s", "", table.properties.get(_TARGET_PROPERTY, ""))
    if not text:
        return TARGET_FILE_SIZE
    return parse_size(text if re.search(r"[bB]$|\d$", text) else f"{text}B")


def _expected(files: list[DataFile], target: int) -> int:
    """How many files there are afterwards, if the content compresses as before."""
    return -(-sum(file.size for file in files) // target)
