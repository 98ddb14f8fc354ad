"""`lakefeed table restore`: a table becomes again what an older version was."""

from __future__ import annotations

from shlex import quote
from typing import Annotated

import typer

from lakefeed.commands.options import ToTime, ToVersion, moment
from lakefeed.commands.table.table_command import PlannedChange, TableCommand, changing_command
from lakefeed.errors import UsageError
from lakefeed.tables.operations import restore as operation


@changing_command()
def restore(
    at: TableCommand,
    to_version: ToVersion = None,
    to_time: ToTime = None,
    keep_positions: Annotated[
        bool,
        typer.Option(
            "--keep-positions", help="Restore the rows of a pipeline's table, but keep its positions."
        ),
    ] = False,
) -> PlannedChange:
    """Restore an older version as a new one. For a pipeline's table, use rewind."""
    if (to_version is None) == (to_time is None):
        raise UsageError("restore takes either --to-version or --to-time.")
    then = to_version if to_version is not None else moment(to_time, "--to-time")
    assert then is not None
    plan = operation.plan(at.table, then)
    if not keep_positions:
        operation.refuse_moved(at.table, plan, quote(str(at.file)) if at.file else "FILE")
    lines = [
        f"{at.path}, version {plan.version}: {plan.table}",
        f"version {plan.to_version} would be restored: {plan.brought_back} added, {plan.taken_away} removed",
    ]
    if plan.moved:
        lines.append(
            f"Positions of {len(plan.moved)} partitions do not change; the events in between are lost."
        )
    data = {
        "version": plan.version,
        "to_version": plan.to_version,
        "table": plan.table,
        "brought_back": plan.brought_back,
        "taken_away": plan.taken_away,
        "moved_positions": {name: list(moved) for name, moved in plan.moved.items()},
    }
    nothing = "Nothing to do: that is the newest version." if plan.version == plan.to_version else None
    return PlannedChange(
        lines, data, lambda: operation.run(at.table, plan, at.commit_info("restore")), nothing
    )
