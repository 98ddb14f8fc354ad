"""`lakefeed table history`: the versions of a table."""

from __future__ import annotations

from typing import Annotated

import typer

from lakefeed.commands.table.options import At, File, Json, Storage


def history(
    path: At,
    limit: Annotated[int, typer.Option(min=1, help="How many versions, newest first.")] = 20,
    file: File = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Show the versions that the log still tells about: when, what, by whom and why."""
    from lakefeed.commands.table.desk import desk, plain
    from lakefeed.tables.description import history as look

    with desk(path, file, storage, as_json) as at:
        found = look(at.table(), limit)
        if as_json:
            at.show([plain(commit) for commit in found])
            return
        columns = ("version", "time", "operation", "by", "reason")
        rows = [(str(one.version), one.timestamp, one.operation, one.by, one.reason or "") for one in found]
        at.rows(columns, rows, left=columns[1:])
