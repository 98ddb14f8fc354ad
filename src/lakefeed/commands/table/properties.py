"""`lakefeed table properties`: the properties of a table, shown and changed."""

from __future__ import annotations

from typing import Annotated

import typer

from lakefeed.commands.table.options import At, DryRun, File, Json, Reason, Storage, Yes


def properties(
    path: At,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a property.")
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="KEY", help="Remove a property."),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    reason: Reason = None,
    file: File = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Show the table's properties; with --set and --unset, change them."""
    from lakefeed.commands.output import command_account
    from lakefeed.commands.table.table_command import Told, command, pairs
    from lakefeed.tables.operations import properties as settings

    with command(path, file, storage, as_json) as at:
        table = at.table()
        if not set_ and not unset:
            have = dict(sorted(table.properties.items()))
            if as_json:
                at.show(have)
            else:
                at.say(*([f"{name} = {value}" for name, value in have.items()] or ["no properties"]))
            return
        plan = settings.plan(table, pairs(set_ or (), "--set"), unset or ())
        lines = [f"{at.path}, version {plan.version}:"]
        for name, value in plan.changed.items():
            lines.append(f"  {name}: {plan.before.get(name, 'not set')} -> {value}")
        lines += [f"  {name}: {plan.before[name]} -> not set" for name in plan.unset]
        data = {"version": plan.version, "set": dict(plan.changed), "unset": list(plan.unset)}
        nothing = "Nothing to do: the table has these properties already." if plan.nothing else None
        commit_info = command_account("properties", reason)
        at.settle(Told(lines, data, nothing), yes, dry_run, lambda: settings.run(table, plan, commit_info))
