"""`lakefeed table optimize`: small files become few large ones, or rows are clustered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakefeed.commands.table.options import At, DryRun, File, Json, Reason, Storage, Yes
from lakefeed.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefeed.commands.table.table_command import TableCommand, Told
    from lakefeed.tables.operations.operation import Report
    from lakefeed.tables.table import LakeTable

_SHOWN = 10


def optimize(
    path: At,
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
    yes: Yes = False,
    dry_run: DryRun = False,
    reason: Reason = None,
    file: File = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Compact small files, partition by partition, or cluster rows with --z-order. Every row stays."""
    from lakefeed.commands.table.table_command import command, names

    if z_order and min_size:
        from lakefeed.errors import UsageError

        raise UsageError("--min-size is for compaction; --z-order rewrites every file of a partition.")
    with command(path, file, storage, as_json) as at:
        table, target = at.table(), _size(target_size, "--target-size")
        if z_order is not None:
            told, run = _cluster(at, table, names(z_order), where, target, reason)
        else:
            told, run = _compact(at, table, where, target, _size(min_size, "--min-size"), reason)
        at.settle(told, yes, dry_run, run)


def _compact(
    at: TableCommand,
    table: LakeTable,
    where: str | None,
    target: int | None,
    small: int | None,
    reason: str | None,
) -> tuple[Told, Callable[[], Report]]:
    from lakefeed.commands.output import command_account
    from lakefeed.commands.table.table_command import Told
    from lakefeed.tables.rewrite import compact as compaction
    from lakefeed.tables.rewrite.data_file import refuse_missing
    from lakefeed.upkeep.file_writer import file_writer

    plan = compaction.plan(table, where=where, target_size=target, min_size=small)
    refuse_missing(table.store, (file.path for step in plan.steps for file in step.files))
    commits = counted(len(plan.steps), "commit")
    lines = [
        f"{at.path}, version {plan.version}: {plan.table}",
        f"{plan.before} are small, would become about {plan.expected_files:,}, in {commits}:",
        *_steps([(step.partition, f"{step.before} -> about {step.expected_files:,}") for step in plan.steps]),
    ]
    data = _data(plan.version, plan.table, plan.before, plan.steps) | {"expected_files": plan.expected_files}
    nothing = None if plan.steps else "Nothing to do: no partition has two small files."
    commit_info = command_account("compact", reason)
    told = Told(lines[: 3 if plan.steps else 1] + lines[3:], data, nothing)
    return told, lambda: compaction.run(table, plan, commit_info, file_writer)


def _cluster(
    at: TableCommand,
    table: LakeTable,
    columns: list[str],
    where: str | None,
    target: int | None,
    reason: str | None,
) -> tuple[Told, Callable[[], Report]]:
    from lakefeed.commands.output import command_account
    from lakefeed.commands.table.table_command import Told
    from lakefeed.tables.rewrite import z_order as clustering
    from lakefeed.tables.rewrite.data_file import refuse_missing
    from lakefeed.upkeep.file_writer import file_writer

    plan = clustering.plan(table, columns, where=where, target_size=target)
    refuse_missing(table.store, (file.path for step in plan.steps for file in step.files))
    lines = [f"{at.path}, version {plan.version}: {plan.table}"]
    if plan.steps:
        commits = counted(len(plan.steps), "commit")
        lines.append(f"{plan.before} would be clustered by {', '.join(columns)}, in {commits}:")
    lines += _steps(
        [
            (step.partition, f"{step.before}, {counted(step.unclustered.files, 'file')} new")
            for step in plan.steps
        ]
    )
    data = _data(plan.version, plan.table, plan.before, plan.steps) | {"columns": columns}
    nothing = (
        None if plan.steps else f"Nothing to do: every file is clustered by {', '.join(columns)} already."
    )
    commit_info = command_account("cluster", reason)
    return Told(lines, data, nothing), lambda: clustering.run(table, plan, commit_info, file_writer)


def _steps(steps: list[tuple[Any, str]]) -> list[str]:
    from lakefeed.tables.log.snapshot import partition_text

    shown = [
        f"  {partition_text(partition) or 'the whole table'}: {text}" for partition, text in steps[:_SHOWN]
    ]
    more = len(steps) - _SHOWN
    return [*shown, *([f"  ... and {more:,} more partitions"] if more > 0 else [])]


def _data(version: int, table: Any, before: Any, steps: Any) -> dict[str, Any]:
    from lakefeed.commands.table.table_command import plain

    return {
        "version": version,
        "table": plain(table),
        "rewritten": plain(before),
        "steps": [{"partition": dict(step.partition), "before": plain(step.before)} for step in steps],
    }


def _size(text: str | None, option: str) -> int | None:
    from lakefeed.errors import UsageError
    from lakefeed.units import parse_size

    if text is None:
        return None
    try:
        return parse_size(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
