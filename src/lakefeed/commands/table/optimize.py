"""`lakefeed table optimize`: small files become few large ones, or rows are clustered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from lakefeed.commands.options import names, parsed
from lakefeed.commands.table.table_command import PlannedChange, TableCommand, changing_command
from lakefeed.errors import UsageError
from lakefeed.tables.data_files import refuse_missing
from lakefeed.tables.log.data_file import partition_text
from lakefeed.tables.operations.operation import Report
from lakefeed.tables.rewrite import compact as compaction
from lakefeed.tables.rewrite import z_order as clustering
from lakefeed.text import counted
from lakefeed.units import parse_size
from lakefeed.upkeep.file_writer import file_writer

_SHOWN = 10


@changing_command()
def optimize(
    at: TableCommand,
    where: Annotated[str | None, typer.Option(help="A SQL condition on the partition columns.")] = None,
    min_size: Annotated[
        str | None,
        typer.Option(help="Files smaller than this are small; by default half of the target size."),
    ] = None,
    target_size: Annotated[
        str | None, typer.Option(help="The size of the new files; by default delta.targetFileSize or 128MB.")
    ] = None,
    z_order: Annotated[
        str | None,
        typer.Option(help="Cluster by these columns, such as user_id,product_id, instead of compacting."),
    ] = None,
) -> PlannedChange:
    """Compact small files, partition by partition, or cluster rows with --z-order. Every row stays."""
    if z_order and min_size:
        raise UsageError("--min-size is for compaction; --z-order rewrites every file of a partition.")
    target = parsed(parse_size, target_size, "--target-size")
    if z_order is not None:
        return _cluster(at, names(z_order), where, target)
    return _compact(at, where, target, parsed(parse_size, min_size, "--min-size"))


def _compact(at: TableCommand, where: str | None, target: int | None, small: int | None) -> PlannedChange:
    plan = compaction.plan(at.table, where=where, target_size=target, min_size=small)
    commits = counted(len(plan.steps), "commit")
    change = _change(
        at,
        plan,
        f"{plan.before} are small, would become about {plan.expected_files:,}, in {commits}:",
        [f"{step.before} -> about {step.expected_files:,}" for step in plan.steps],
        lambda: compaction.run(at.table, plan, at.commit_info("compact"), file_writer),
        "Nothing to do: no partition has two small files.",
    )
    change.data["expected_files"] = plan.expected_files
    return change


def _cluster(at: TableCommand, columns: list[str], where: str | None, target: int | None) -> PlannedChange:
    plan = clustering.plan(at.table, columns, where=where, target_size=target)
    commits, by = counted(len(plan.steps), "commit"), ", ".join(columns)
    change = _change(
        at,
        plan,
        f"{plan.before} would be clustered by {by}, in {commits}:",
        [f"{step.before}, {counted(step.unclustered.files, 'file')} new" for step in plan.steps],
        lambda: clustering.run(at.table, plan, at.commit_info("cluster"), file_writer),
        f"Nothing to do: every file is clustered by {by} already.",
    )
    change.data["columns"] = columns
    return change


def _change(
    at: TableCommand, plan: Any, first: str, steps: list[str], apply: Callable[[], Report], nothing: str
) -> PlannedChange:
    refuse_missing(at.table.store, (file for step in plan.steps for file in step.files))
    lines = [f"{at.path}, version {plan.version}: {plan.table}"]
    if plan.steps:
        lines.append(first)
    for step, text in list(zip(plan.steps, steps, strict=True))[:_SHOWN]:
        lines.append(f"  {partition_text(step.partition) or 'the whole table'}: {text}")
    if len(steps) > _SHOWN:
        lines.append(f"  ... and {len(steps) - _SHOWN:,} more partitions")
    data = {
        "version": plan.version,
        "table": plan.table,
        "rewritten": plan.before,
        "steps": [{"partition": dict(step.partition), "before": step.before} for step in plan.steps],
    }
    return PlannedChange(lines, data, apply, None if plan.steps else nothing)
