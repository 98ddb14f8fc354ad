"""`lakefeed table delete`: rows that meet a condition are taken out."""

from __future__ import annotations

from typing import Annotated

import typer

from lakefeed.commands.table.options import At, DryRun, File, Json, Reason, Storage, Yes


def delete(
    path: At,
    where: Annotated[str, typer.Option(help="A SQL condition; rows for which it is true are removed.")],
    yes: Yes = False,
    dry_run: DryRun = False,
    reason: Reason = None,
    file: File = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Delete the rows that match a condition. Old versions keep them until a vacuum."""
    from lakefeed.commands.output import command_account
    from lakefeed.commands.table.table_command import Told, command, plain
    from lakefeed.tables.operations import delete as deletion
    from lakefeed.text import counted

    with command(path, file, storage, as_json) as at:
        table = at.table()
        plan = deletion.plan(table, where)
        lines = [
            f"{at.path}, version {plan.version}: {plan.table}",
            f"{counted(plan.rows, 'row')} would be deleted from at most {plan.touched}",
        ]
        data = {
            "version": plan.version,
            "rows": plan.rows,
            "touched": plain(plan.touched),
            "table": plain(plan.table),
        }
        nothing = None if plan.rows else "Nothing to do: no row meets the condition."
        commit_info = command_account("delete", reason)
        at.settle(Told(lines, data, nothing), yes, dry_run, lambda: deletion.run(table, plan, commit_info))
