"""Tiers: which small files are worth compacting now, and to which size, so that no row is rewritten often."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lakefeed.errors import TableError, UsageError
from lakefeed.tables import compaction
from lakefeed.tables.snapshot import DataFile, Partition, by_partition, data_files
from lakefeed.tables.table import LakeTable

_PARTS = (1, 8, 64)
"""The tiers, as parts of the target size."""

Due = tuple[compaction.Plan, compaction.Step]


def due_for_compaction(
    table: LakeTable, *, target_size: int, min_files: int, where: str | None, cold_before: float
) -> list[Due]:
    """The steps that are worth their while, oldest partition first, each with the plan of its size.

    A partition that still grows is gathered tier by tier: `min_files` files smaller than half a tier become
    files of that tier. So a row is rewritten once a tier, and not at every look. A partition that got no file
    since `cold_before` (seconds since 1970) gets its final files, from two small ones on. A step reads about
    as much as fills a file of the target size.
    """
    plans = [_plan(table, max(2, target_size // part), min_files, where) for part in _PARTS]
    last = _plan(table, target_size, 2, where)
    chosen: list[Due] = []
    for partition, files in by_partition(data_files(table.delta)).items():
        if max(file.modified for file in files) / 1000 < cold_before:
            due = _of(last, partition)
        else:
            found = [each for plan in plans if (each := _of(plan, partition))]
            full = [(plan, step) for plan, step in found if step.before.bytes >= plan.target_size]
            # The largest tier of which a whole file can be made, else the smallest.
            due = full[0] if full else found[-1] if found else None
        if due:
            chosen += [(due[0], step) for step in _small_steps(due[1], target_size)]
    return chosen


def _plan(table: LakeTable, size: int, min_files: int, where: str | None) -> compaction.Plan:
    try:
        return compaction.plan(table, where=where, target_size=size, min_size=size // 2, min_files=min_files)
    except UsageError as error:
        raise TableError(str(error).replace("--where", "upkeep.compact.where")) from error


def _of(plan: compaction.Plan, partition: Partition) -> Due | None:
    return next(((plan, step) for step in plan.steps if step.partition == partition), None)


def _small_steps(step: compaction.Step, size: int) -> Iterator[compaction.Step]:
    """The step in parts that each read about `size` bytes, at least two files."""
    files: list[DataFile] = []
    filled = 0
    for at, file in enumerate(step.files):
        files.append(file)
        filled += file.size
        if filled >= size and len(files) > 1 and len(step.files) - at > 2:
            yield replace(step, files=tuple(files))
            files, filled = [], 0
    if files:
        yield replace(step, files=tuple(files))
