"""`lakefeed table restore`: a table becomes again what an older version was."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from lakefeed.commands.table.options import At, DryRun, File, Json, Reason, Storage, ToTime, ToVersion, Yes

if TYPE_CHECKING:
    from lakefeed.commands.table.table_command import TableCommand, Told
    from lakefeed.tables.operations.restore import RestorePlan


def restore(
    path: At,
    to_version: ToVersion = None,
    to_time: ToTime = None,
    keep_positions: Annotated[
        bool,
        typer.Option(
            "--keep-positions", help="Restore the rows of a pipeline's table, but keep its positions."
        ),
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    reason: Reason = None,
    file: File = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Restore an older version as a new one. For a pipeline's table, use rewind."""
    from lakefeed.commands.moments import moment
    from lakefeed.commands.output import command_account
    from lakefeed.commands.table.table_command import command
    from lakefeed.errors import UsageError
    from lakefeed.tables.operations import restore as operation

    if (to_version is None) == (to_time is None):
        raise UsageError("restore takes either --to-version or --to-time.")
    then = to_version if to_version is not None else moment(to_time, "--to-time")
    assert then is not None
    with command(path, file, storage, as_json) as at:
        table = at.table()
        plan = operation.plan(table, then)
        if not keep_positions:
            operation.refuse_moved(table, plan, quote(str(file)) if file else "FILE")
        commit_info = command_account("restore", reason)
        at.settle(_told(at, plan), yes, dry_run, lambda: operation.run(table, plan, commit_info))


def _told(at: TableCommand, plan: RestorePlan) -> Told:
    from lakefeed.commands.table.table_command import Told, plain

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
        "table": plain(plan.table),
        "brought_back": plain(plan.brought_back),
        "taken_away": plain(plan.taken_away),
        "moved_positions": {name: list(moved) for name, moved in plan.moved.items()},
    }
    nothing = "Nothing to do: that is the newest version." if plan.version == plan.to_version else None
    return Told(lines, data, nothing)
