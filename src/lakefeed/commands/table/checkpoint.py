"""`lakefeed table checkpoint`: readers of the log get one file in place of many."""

from __future__ import annotations

from typing import Any

from lakefeed.commands.table.options import At, DryRun, File, Json, Storage, Yes


def checkpoint(
    path: At,
    yes: Yes = False,
    dry_run: DryRun = False,
    file: File = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Write a checkpoint of the log, so that readers need not read every entry. Adds no version."""
    from lakefeed.commands.table.table_command import Told, command
    from lakefeed.tables.operations import checkpoint as operation

    with command(path, file, storage, as_json) as at:
        table = at.table()
        plan = operation.plan(table)
        last = "never" if plan.last is None else f"of version {plan.last}"
        lines = [f"{at.path}, version {plan.version}: last checkpoint {last}, {plan.entries:,} entries since"]
        data = {"version": plan.version, "last_checkpoint": plan.last, "entries_since": plan.entries}
        nothing = "Nothing to do: the newest version has a checkpoint." if plan.nothing else None

        def run() -> dict[str, Any]:
            version = operation.run(table, plan)
            return {"version": version, "told": f"Done: a checkpoint of version {version}."}

        at.settle(Told(lines, data, nothing), yes, dry_run, run)
