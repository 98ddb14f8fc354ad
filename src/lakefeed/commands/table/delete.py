"""`lakefeed table delete`: rows that match a condition are deleted."""

from __future__ import annotations

from typing import Annotated

import typer

from lakefeed.commands.table.table_command import PlannedChange, TableCommand, changing_command
from lakefeed.tables.operations import delete as operation
from lakefeed.text import counted


@changing_command()
def delete(
    at: TableCommand,
    where: Annotated[str, typer.Option(help="A SQL condition; rows for which it is true are removed.")],
) -> PlannedChange:
    """Delete the rows that match a condition. Old versions keep them until a vacuum."""
    plan = operation.plan(at.table, where)
    lines = [
        f"{at.path}, version {plan.version}: {plan.table}",
        f"{counted(plan.rows, 'row')} would be deleted from at most {plan.touched}",
    ]
    data = {"version": plan.version, "rows": plan.rows, "touched": plan.touched, "table": plan.table}
    nothing = None if plan.rows else "Nothing to do: no row meets the condition."
    return PlannedChange(
        lines, data, lambda: operation.run(at.table, plan, at.commit_info("delete")), nothing
    )
