"""`lakefeed table history`: the versions of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakefeed.commands.table.options import At, File, Json, Storage

if TYPE_CHECKING:
    from lakefeed.tables.detail.detail import Commit


def history(
    path: At,
    limit: Annotated[int, typer.Option(min=1, help="How many versions, newest first.")] = 20,
    file: File = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Show the versions that are still in the log: when, what, who and why."""
    from lakefeed.commands.table.table_command import command, plain
    from lakefeed.tables.detail.detail import history as look

    with command(path, file, storage, as_json) as at:
        found = look(at.table(), limit)
        if as_json:
            at.show([plain(commit) for commit in found])
            return
        columns = ("version", "time", "operation", "rows", "by", "reason")
        rows = [
            (str(one.version), one.timestamp, one.operation, _rows(one), one.by, one.reason or "")
            for one in found
        ]
        at.rows(columns, rows, left=("time", "operation", "by", "reason"))


def _rows(one: Commit) -> str:
    """`+100` for rows that came, `-3` for rows that went, `?` where the log does not tell."""
    if one.rows_added is None and one.rows_removed is None:
        return "?"
    parts = [("+", one.rows_added), ("-", one.rows_removed)]
    return " ".join(f"{sign}{'?' if count is None else f'{count:,}'}" for sign, count in parts if count != 0)
