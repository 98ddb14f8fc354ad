"""Tiers: which small files are worth compacting now, and to which size, so that no row is rewritten often."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lakefeed.errors import TableError, UsageError
from lakefeed.tables.data_files import data_files
from lakefeed.tables.log.data_file import DataFile, Partition, by_partition, extent, small_below
from lakefeed.tables.rewrite import compact
from lakefeed.tables.table import LakeTable

_PARTS = (1, 8, 64)
"""The tiers, as parts of the target size."""
_ROOM = 1.15

Due = tuple[compact.CompactPlan, compact.CompactStep]


def due_for_compaction(
    table: LakeTable,
    *,
    target_size: int,
    min_files: int,
    where: str | None,
    cold_before: float,
    max_deleted: float = compact.MAX_DELETED,
    max_rows: int | None = None,
) -> list[Due]:
    """The steps that are worth their while, oldest partition first, each with the plan of its size.

    A partition that still grows is gathered tier by tier: `min_files` files smaller than half a tier become
    files of that tier. So a row is rewritten once a tier, and not at every look. A partition that got no file
    since `cold_before` (seconds since 1970) gets its final files. A step reads about as much as fills a file
    of the target size, at most two. Files that are worn by `max_deleted` are always among it, and take small
    files along. Where a file has at most `max_rows` rows, a step makes fewer files than there were: otherwise
    the next look would find the same again.
    """
    plans = [
        _plan(table, max(2, target_size // part), min_files, where, max_deleted, max_rows) for part in _PARTS
    ]
    files_now = data_files(table, where)
    worn = compact.worn_files(files_now, max_deleted)
    chosen: list[Due] = []
    for partition, every in by_partition(files_now).items():
        files = [file for file in every if file.path in worn or not compact.is_full(file, max_rows)]
        if max(file.modified for file in every) / 1000 < cold_before:
            chosen += _final(plans[0], partition, files, worn)
        elif any(file.path in worn for file in files):
            chosen += [(plans[0], step) for step in _worn_steps(partition, files, worn, target_size)]
        else:
            found = [each for plan in plans if (each := _of(plan, partition))]
            full = [(plan, step) for plan, step in found if step.before.bytes >= plan.target_size]
            # The largest tier of which a whole file can be made, else the smallest.
            for plan, step in full[:1] or found[-1:]:
                chosen += [(plan, part) for part in _small_steps(step, target_size)]
    return [(plan, step) for plan, step in chosen if _is_of_use(step, worn, max_rows)]


def _is_of_use(step: compact.CompactStep, worn: frozenset[str], max_rows: int | None) -> bool:
    """Whether a step makes fewer files, as far as `max_rows` tells, or leaves out deleted rows."""
    if max_rows is None or any(file.path in worn for file in step.files):
        return True
    return compact.expected_files(step.files, max(1, step.before.bytes), max_rows) < len(step.files)


def even_size(total: int, target: int) -> int:
    """The size near the target by which files of so many bytes become equally large.

    With some room, as rows may take more space in another order or company: a last file of a few rows would
    be the small file that was to be avoided.
    """
    return max(2, int(total / max(1, round(total / target)) * _ROOM))


def _final(
    plan: compact.CompactPlan, partition: Partition, files: list[DataFile], worn: frozenset[str]
) -> list[Due]:
    """The steps that leave no small file behind; the smallest of the large ones may have to take it up."""
    by_size = sorted(files, key=lambda file: file.size)
    small = [file for file in by_size if file.size < small_below(plan.target_size)]
    if small and sum(file.size for file in small) < small_below(plan.target_size):
        small += by_size[len(small) : len(small) + 1]
    small += [file for file in by_size if file.path in worn and file not in small]
    if len(small) < 2 and not any(file.path in worn for file in small):
        return []
    total = sum(file.size for file in small)
    size = even_size(total, plan.target_size)
    step = compact.CompactStep(
        partition, tuple(sorted(small, key=lambda file: file.modified)), -(-total // size)
    )
    return [(replace(plan, target_size=size), part) for part in _small_steps(step, size)]


def _worn_steps(
    partition: Partition, files: list[DataFile], worn: frozenset[str], target: int
) -> Iterator[compact.CompactStep]:
    """The small files together with the two most worn large ones, then the other worn ones two by two.

    So new rows fill the room that deleted ones leave, and the table keeps the number of its files. Small
    files that make a large one themselves go first.
    """
    small = [file for file in files if file.size < small_below(target)]
    large = [file for file in files if file.path in worn and file.size >= small_below(target)]
    groups: list[list[DataFile]] = [[]]
    filled = 0
    for file in sorted(small, key=lambda file: file.modified):
        groups[-1].append(file)
        filled += file.size
        if filled >= target:
            groups.append([])
            filled = 0
    for at, file in enumerate(sorted(large, key=compact.deleted_share, reverse=True)):
        if at and at % 2 == 0:
            groups.append([])
        groups[-1].append(file)
    for group in groups:
        if len(group) > 1 or any(file.path in worn for file in group):
            expected = -(-extent(group).bytes // target)
            yield compact.CompactStep(partition, tuple(group), expected)


def _plan(
    table: LakeTable,
    size: int,
    min_files: int,
    where: str | None,
    max_deleted: float,
    max_rows: int | None,
) -> compact.CompactPlan:
    try:
        return compact.plan(
            table,
            where=where,
            target_size=size,
            min_size=size // 2,
            min_files=min_files,
            max_deleted=max_deleted,
            max_rows=max_rows,
        )
    except UsageError as error:
        raise TableError(str(error).replace("--where", "upkeep.compact.where")) from error


def _of(plan: compact.CompactPlan, partition: Partition) -> Due | None:
    return next(((plan, step) for step in plan.steps if step.partition == partition), None)


def _small_steps(step: compact.CompactStep, size: int) -> Iterator[compact.CompactStep]:
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
