"""`lakefeed table vacuum`: files that no version within the retention needs are deleted."""

from __future__ import annotations

from typing import Annotated

import typer

from lakefeed.commands.options import parsed
from lakefeed.commands.table.table_command import PlannedChange, TableCommand, changing_command
from lakefeed.figures import readable_size
from lakefeed.tables.operations import vacuum as operation
from lakefeed.units import format_duration, parse_duration

_SHOWN = 10


@changing_command()
def vacuum(
    at: TableCommand,
    retain: Annotated[
        str | None,
        typer.Option(
            help="How long old files are kept, such as 30d; by default the table's retention, at least 7d."
        ),
    ] = None,
    allow_short_retention: Annotated[
        bool, typer.Option("--allow-short-retention", help="Allow a shorter --retain.")
    ] = False,
) -> PlannedChange:
    """Delete files that no version within the retention needs. Shows them first."""
    seconds = parsed(parse_duration, retain, "--retain")
    plan = operation.plan(at.table, retain=seconds, allow_short=allow_short_retention)
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
        "deleted": plan.deleted,
        "files": [one.path for one in plan.files],
        "kept_for_now": plan.young,
        "left_alone": list(plan.left_alone),
    }
    nothing = None if plan.files else "Nothing to do."
    return PlannedChange(
        lines, data, lambda: operation.run(at.table, plan, at.commit_info("vacuum")), nothing
    )
