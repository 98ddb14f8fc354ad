"""`lakefeed table checkpoint`: readers of the log get one file in place of many."""

from __future__ import annotations

from typing import Any

from lakefeed.commands.table.table_command import PlannedChange, TableCommand, changing_command
from lakefeed.tables.operations import checkpoint as operation


@changing_command(without=("reason",))
def checkpoint(at: TableCommand) -> PlannedChange:
    """Write a checkpoint of the log, so that readers need not read every entry. Adds no version."""
    plan = operation.plan(at.table)
    last = "never" if plan.last is None else f"of version {plan.last}"
    lines = [f"{at.path}, version {plan.version}: last checkpoint {last}, {plan.entries:,} entries since"]
    data = {"version": plan.version, "last_checkpoint": plan.last, "entries_since": plan.entries}
    nothing = "Nothing to do: the newest version has a checkpoint." if plan.nothing else None

    def apply() -> dict[str, Any]:
        version = operation.run(at.table, plan)
        return {"version": version, "told": f"Done: a checkpoint of version {version}."}

    return PlannedChange(lines, data, apply, nothing)
