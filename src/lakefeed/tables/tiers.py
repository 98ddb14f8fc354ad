"""Tiers: to which size the small files of each partition are worth compacting now."""

from __future__ import annotations

from lakefeed.errors import TableError, UsageError
from lakefeed.tables import compaction
from lakefeed.tables.snapshot import Partition, by_partition, data_files
from lakefeed.tables.table import LakeTable

_PARTS = (64, 8, 1)
"""Files are gathered to these parts of the target size, one after the other."""

Due = tuple[compaction.Plan, compaction.Step]


def due_for_compaction(
    table: LakeTable, *, target_size: int, min_files: int, where: str | None, cold_before: float
) -> list[Due]:
    """The partitions that are worth a rewrite, oldest first, each with the plan of its size.

    A partition that still grows is gathered tier by tier: `min_files` files smaller than half a tier become
    one of that tier. So a row is rewritten once a tier, and not at every look. A partition that got no file
    since `cold_before` (seconds since 1970) gets its final files, from two small ones on.
    """
    newest = {
        partition: max(file.modified for file in files) / 1000
        for partition, files in by_partition(data_files(table.delta)).items()
    }
    chosen: dict[Partition, Due] = {}
    for part in _PARTS:
        plan = _plan(table, max(2, target_size // part), min_files, where)
        for step in plan.steps:
            chosen.setdefault(step.partition, (plan, step))
    last = _plan(table, target_size, 2, where)
    chosen |= {step.partition: (last, step) for step in last.steps if newest[step.partition] < cold_before}
    return [chosen[partition] for partition in newest if partition in chosen]


def _plan(table: LakeTable, size: int, min_files: int, where: str | None) -> compaction.Plan:
    try:
        return compaction.plan(table, where=where, target_size=size, min_size=size // 2, min_files=min_files)
    except UsageError as error:
        raise TableError(str(error).replace("--where", "upkeep.compact.where")) from error
