"""`lakefeed table vacuum`: files that no version within the retention needs are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakefeed.commands.table.options import At, DryRun, File, Json, Reason, Storage, Yes

if TYPE_CHECKING:
    from lakefeed.commands.table.table_command import TableCommand, Told
    from lakefeed.tables.operations.vacuum import VacuumPlan

_SHOWN = 10


def vacuum(
    path: At,
    retain: Annotated[
        str | None,
        typer.Option(
            help="How long old files are kept, such as 30d; by default the table's retention, at least 7d."
        ),
    ] = None,
    allow_short_retention: Annotated[
        bool, typer.Option("--allow-short-retention", help="Allow a shorter --retain.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    reason: Reason = None,
    file: File = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Delete files that no version within the retention needs. Shows them first."""
    from lakefeed.commands.output import command_account
    from lakefeed.commands.table.table_command import command
    from lakefeed.errors import UsageError
    from lakefeed.tables.operations import vacuum as operation
    from lakefeed.units import parse_duration

    try:
        seconds = None if retain is None else parse_duration(retain)
    except ValueError as error:
        raise UsageError(f"--retain: {error}") from None
    with command(path, file, storage, as_json) as at:
        table = at.table()
        plan = operation.plan(table, retain=seconds, allow_short=allow_short_retention)
        commit_info = command_account("vacuum", reason)
        at.settle(_told(at, plan), yes, dry_run, lambda: operation.run(table, plan, commit_info))


def _told(at: TableCommand, plan: VacuumPlan) -> Told:
    from lakefeed.commands.table.table_command import Told, plain
    from lakefeed.units import format_duration, readable_size

    kept = format_duration(plan.retain)
    lines = [f"{at.path}, version {plan.version}: {plan.deleted} unneeded for longer than {kept}"]
    lines += [f"  {one.path} ({readable_size(one.size)})" for one in plan.files[:_SHOWN]]
    if len(plan.files) > _SHOWN:
        lines.append(f"  ... and {len(plan.files) - _SHOWN:,} more")
    if plan.young.files:
        lines.append(f"  kept for now: {plan.young} unneeded for a shorter time")
    if plan.left_alone:
        lines.append(
            f"  not deleted: {', '.join(plan.left_alone[:_SHOWN])}, which do not belong to the table"
        )
    data = {
        "version": plan.version,
        "retain_seconds": plan.retain,
        "deleted": plain(plan.deleted),
        "files": [one.path for one in plan.files],
        "kept_for_now": plain(plan.young),
        "left_alone": list(plan.left_alone),
    }
    return Told(lines, data, None if plan.files else "Nothing to do.")
