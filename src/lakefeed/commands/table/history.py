"""`lakefeed table history`: the versions of a table."""

from __future__ import annotations

from typing import Annotated

import typer

from lakefeed.commands.table.table_command import TableCommand, table_command
from lakefeed.figures import thousands
from lakefeed.tables.detail import detail
from lakefeed.tables.detail.detail import Commit


@table_command
def history(
    at: TableCommand, limit: Annotated[int, typer.Option(min=1, help="How many versions, newest first.")] = 20
) -> None:
    """Show the versions that are still in the log: when, what, who and why."""
    found = detail.history(at.table, limit)
    if at.as_json:
        at.print_json(found)
        return
    columns = ("version", "time", "operation", "rows", "by", "reason")
    rows = [
        (str(one.version), one.timestamp, one.operation, _rows(one), one.by, one.reason or "")
        for one in found
    ]
    at.print_rows(columns, rows, left=("time", "operation", "by", "reason"))


def _rows(one: Commit) -> str:
    """`+100` for added rows, `-3` for removed rows, `?` where the log does not tell."""
    if one.rows_added is None and one.rows_removed is None:
        return "?"
    parts = [("+", one.rows_added), ("-", one.rows_removed)]
    return " ".join(f"{sign}{thousands(count)}" for sign, count in parts if count != 0)
