"""`lakefeed table drop`: a table is deleted with its log."""

from __future__ import annotations

from typing import Any

from lakefeed.commands.table.table_command import PlannedChange, TableCommand, changing_command
from lakefeed.tables.operations import drop as operation
from lakefeed.tables.positions import named_partition
from lakefeed.text import counted


@changing_command(without=("reason",))
def drop(at: TableCommand) -> PlannedChange:
    """Delete a table: the data of all versions and the log, and no other files."""
    plan = operation.plan(at.table)
    lines = [
        f"{at.path}, version {plan.version}: {plan.table}",
        f"{counted(plan.deleted.files, 'file')}, all versions and the log, would be deleted for good",
    ]
    if held := sum(named_partition(name) is not None for name in plan.positions):
        lines.append(
            f"The positions of {counted(held, 'source partition')} are deleted too: a pipeline that "
            f"still uses this path would create the table again and read from `start`."
        )
    if plan.left_alone:
        lines.append(f"Not deleted: {', '.join(plan.left_alone[:10])}, which do not belong to the table.")
    data = {
        "version": plan.version,
        "table": plan.table,
        "deleted": plan.deleted,
        "left_alone": list(plan.left_alone),
        "positions": list(plan.positions),
    }

    def apply() -> dict[str, Any]:
        count = operation.run(at.table, plan)
        return {"deleted_files": count, "told": f"Done: {counted(count, 'file')} deleted."}

    return PlannedChange(lines, data, apply)
