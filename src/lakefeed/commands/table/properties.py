"""`lakefeed table properties`: the properties of a table, shown and changed."""

from __future__ import annotations

from typing import Annotated

import typer

from lakefeed.commands.options import pairs
from lakefeed.commands.table.table_command import PlannedChange, TableCommand, changing_command
from lakefeed.tables.operations import properties as operation


@changing_command()
def properties(
    at: TableCommand,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a property.")
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="KEY", help="Remove a property."),
    ] = None,
) -> PlannedChange | None:
    """Show the table's properties; with --set and --unset, change them."""
    if not set_ and not unset:
        have = dict(sorted(at.table.properties.items()))
        if at.as_json:
            at.print_json(have)
        else:
            at.print(*([f"{name} = {value}" for name, value in have.items()] or ["no properties"]))
        return None
    plan = operation.plan(at.table, pairs(set_ or (), "--set"), unset or ())
    lines = [f"{at.path}, version {plan.version}:"]
    for name, value in plan.changed.items():
        lines.append(f"  {name}: {plan.before.get(name, 'not set')} -> {value}")
    lines += [f"  {name}: {plan.before[name]} -> not set" for name in plan.unset]
    data = {"version": plan.version, "set": dict(plan.changed), "unset": list(plan.unset)}
    nothing = "Nothing to do: the table has these properties already." if plan.nothing else None
    return PlannedChange(
        lines, data, lambda: operation.run(at.table, plan, at.commit_info("properties")), nothing
    )
