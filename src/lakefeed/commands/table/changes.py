"""`lakefeed table changes`: the rows that versions have added, changed and removed."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Annotated

import typer

from lakefeed.commands.options import moment
from lakefeed.commands.output import to_json
from lakefeed.commands.table.table_command import TableCommand, table_command
from lakefeed.commands.table.values import fits, record, shown
from lakefeed.errors import UsageError
from lakefeed.tables.log.change_feed import FEED
from lakefeed.tables.operations import changes as operation
from lakefeed.tables.operations.changes import Changes, version_at
from lakefeed.tables.table import LakeTable
from lakefeed.text import counted


@table_command
def changes(
    at: TableCommand,
    from_version: Annotated[int | None, typer.Option(min=0, help="The first version to show.")] = None,
    from_time: Annotated[
        str | None, typer.Option(help="The first version at or after that time: as for --to-time.")
    ] = None,
    to_version: Annotated[
        int | None, typer.Option(min=0, help="The last one; by default the newest.")
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(help="The newest version at that time: 2026-11-15T10:00:00Z, or 2h for two hours ago."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="How many rows; by default 50, with --json all.")
    ] = None,
) -> None:
    """Show the rows that each version changed: the change data feed, or the appended rows if it is off.

    With --json, one object for each row.
    """
    if (from_version is None) == (from_time is None):
        raise UsageError("changes takes either --from-version or --from-time, such as --from-version 0.")
    if to_version is not None and to_time is not None:
        raise UsageError("changes takes either --to-version or --to-time.")
    first = _version(at.table, from_version, from_time, "--from-time", first=True)
    assert first is not None
    found = operation.changes(at.table, first, _version(at.table, to_version, to_time, "--to-time"))
    if at.as_json:
        for row in _rows(found, limit):
            at.print(to_json(row, indent=False))
    else:
        _print(at, found, limit or 50)
    for version, name in found.left_out.items():
        typer.echo(
            f"version {version} ({name}) is not shown: it removed rows, and only the change data "
            f"feed records removed rows. To turn it on: lakefeed table properties {quote(at.path)} "
            f"--set {FEED}=true --yes",
            err=True,
        )


def _version(
    table: LakeTable, version: int | None, time: str | None, option: str, *, first: bool = False
) -> int | None:
    then = moment(time, option)
    return version if then is None else version_at(table, then, first=first)


def _rows(found: Changes, limit: int | None) -> Iterator[dict[str, object]]:
    left = limit
    for batch in found.batches:
        part = batch if left is None else batch.slice(0, left)
        yield from part.to_pylist(maps_as_pydicts="lossy")
        if left is not None:
            left -= part.num_rows
            if not left:
                return


def _print(at: TableCommand, found: Changes, limit: int) -> None:
    rows = list(_rows(found, limit))
    kind = "change data feed" if found.feed else "appends; the change data feed is off"
    at.print(f"versions {found.first} to {found.last}: {kind}")
    columns = list(rows[0]) if rows else []
    cells = [[shown(row[name]) for name in columns] for row in rows]
    if rows and fits(columns, cells, at.width):
        at.print_rows(columns, cells, left=columns)
    else:
        for number, row in enumerate(cells, 1):
            at.print(f"row {number}", *record(columns, row))
    at.print(counted(len(rows), "row") + (f" (the first {limit:,})" if len(rows) == limit else ""))
