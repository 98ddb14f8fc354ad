"""Compaction: the small files of each partition become few large ones; every row stays."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from lakefeed.tables.data_files import codec_of, data_files, read_rows
from lakefeed.tables.log.data_file import DataFile, by_partition, extent, small_below
from lakefeed.tables.operations.operation import CommitInfo
from lakefeed.tables.rewrite.rewrite import RewritePlan, Step, Writers, files_to_rewrite, rewrite
from lakefeed.tables.rewrite.rewrite import run as run
from lakefeed.tables.table import LakeTable
from lakefeed.units import parse_size

TARGET_FILE_SIZE = 128 * 1024**2
MAX_DELETED = 0.05
"""The share of deleted rows up to which a file stays as it is; all files together may have half of it."""
_TARGET_PROPERTY = "delta.targetFileSize"


@dataclass(frozen=True)
class CompactStep(Step):
    """The small files of one partition, and the number of files that is expected to replace them."""

    expected_files: int


@dataclass(frozen=True)
class CompactPlan(RewritePlan[CompactStep]):
    """What a compaction would do; nothing has been changed."""

    kind = "compact"

    @property
    def expected_files(self) -> int:
        """How many files are expected to replace them."""
        return sum(step.expected_files for step in self.steps)

    def run_step(self, table: LakeTable, step: CompactStep, commit_info: CommitInfo, writers: Writers) -> int:
        """Rewrite the small files of one partition.

        Appends that land meanwhile are no conflict; their files are left for the next time.
        """
        info = {**commit_info, "partition": dict(step.partition), "files": len(step.files)}
        writer = writers(table, self.codec, self.target_size)
        return rewrite(table, step.files, read_rows(table, step.files), writer, info)


def plan(
    table: LakeTable,
    *,
    where: str | None = None,
    target_size: int | None = None,
    min_size: int | None = None,
    min_files: int = 2,
    max_deleted: float = MAX_DELETED,
    max_rows: int | None = None,
) -> CompactPlan:
    """Find the small files of each partition, oldest partition first.

    A file is small below `min_size`, by default half of the target; a partition is left alone unless it has
    at least `min_files` of them. Worn files are written again without their deleted rows, be they small or
    not: see `worn_files`. `where` is a SQL condition on the partition columns. The target is by default the
    table's own property delta.targetFileSize, or 128 MB. A file of `max_rows` rows is full at any size.
    """
    files = files_to_rewrite(table, "compact", where)
    target = target_size or target_of(table)
    small = min(min_size or small_below(target), target)
    worn = worn_files(files, max_deleted)
    groups = by_partition(
        file for file in files if (file.size < small and not is_full(file, max_rows)) or file.path in worn
    )
    steps = tuple(
        CompactStep(partition, tuple(sorted(group, key=lambda file: file.modified)), expected)
        for partition, group in groups.items()
        if (expected := expected_files(group, target, max_rows))
        and (
            any(file.path in worn for file in group)
            or (len(group) >= max(2, min_files) and expected < len(group))
        )
    )
    whole = extent(files if where is None else data_files(table))
    return CompactPlan(table.version, target, steps, whole, codec_of(table.store, files))


def worn_files(files: Collection[DataFile], max_deleted: float) -> frozenset[str]:
    """The files to write again without their deleted rows, by their paths.

    Those of which deletion vectors delete more than the share `max_deleted`. And where all files together
    have more than half of that share, the most worn ones, until they have not. Changes of random keys wear
    all files at the same pace: so they are rewritten one after the other and not all at once, each when it
    has about `max_deleted`, and readers always meet about half of it.
    """
    marked = sorted((file for file in files if file.deleted), key=deleted_share, reverse=True)
    limit = _limit(files, max_deleted)
    left = sum(file.deleted for file in marked)
    worn = []
    for file in marked:
        if left <= limit and deleted_share(file) <= max_deleted:
            break
        worn.append(file.path)
        left -= file.deleted
    return frozenset(worn)


def table_is_worn(table: LakeTable, max_deleted: float) -> bool:
    """Whether readers of the version that the table stands at read more deleted rows than they should."""
    if not table.has_vectors:
        return False
    files = table.live().files.values()
    return sum(file.deleted for file in files) > _limit(files, max_deleted)


def _limit(files: Collection[DataFile], max_deleted: float) -> float:
    """How many deleted rows all files together may have."""
    return max_deleted / 2 * sum((file.rows or 0) + file.deleted for file in files)


def deleted_share(file: DataFile) -> float:
    """The share of its rows that a deletion vector deletes."""
    return file.deleted / ((file.rows or 0) + file.deleted)


def target_of(table: LakeTable) -> int:
    """The size that the table wants its files to have."""
    text = re.sub(r"\s", "", table.properties.get(_TARGET_PROPERTY, ""))
    if not text:
        return TARGET_FILE_SIZE
    return parse_size(text if re.search(r"[bB]$|\d$", text) else f"{text}B")


def is_full(file: DataFile, max_rows: int | None) -> bool:
    """Whether a file has as many rows as a file may have."""
    return max_rows is not None and (file.rows or 0) >= max_rows


def expected_files(files: Collection[DataFile], target: int, max_rows: int | None = None) -> int:
    """How many files there are after a rewrite, if the content compresses as before."""
    by_size = -(-sum(file.size for file in files) // target)
    by_rows = -(-sum(file.rows or 0 for file in files) // max_rows) if max_rows else 0
    return max(by_size, by_rows)
