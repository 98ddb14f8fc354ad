"""`lakefeed table changes`: the rows that versions have added, changed and taken away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakefeed.commands.table.options import At, File, Json, Storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefeed.commands.table.table_command import TableCommand
    from lakefeed.tables.operations.changes import Changes
    from lakefeed.tables.table import LakeTable


def changes(
    path: At,
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
    file: File = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Show the rows that each version changed: the change data feed, or the appended rows if it is off.

    With --json, one object for each row.
    """
    from lakefeed.commands.table.table_command import command
    from lakefeed.errors import UsageError
    from lakefeed.tables.operations.changes import changes as look

    if (from_version is None) == (from_time is None):
        raise UsageError("changes takes either --from-version or --from-time.")
    if to_version is not None and to_time is not None:
        raise UsageError("changes takes either --to-version or --to-time.")
    with command(path, file, storage, as_json) as at:
        table = at.table()
        first = _version(table, from_version, from_time, "--from-time", first=True)
        assert first is not None
        found = look(table, first, _version(table, to_version, to_time, "--to-time"))
        if as_json:
            from lakefeed.commands.table.table_command import to_json

            for row in _rows(found, limit):
                at.say(to_json(row))
        else:
            _print(at, found, limit or 50)
        for version, operation in found.left_out.items():
            typer.echo(
                f"version {version} ({operation}) is not shown: it removed rows, and only the change data "
                f"feed records removed rows. Turn it on with --set delta.enableChangeDataFeed=true.",
                err=True,
            )


def _version(
    table: LakeTable, version: int | None, time: str | None, option: str, *, first: bool = False
) -> int | None:
    from lakefeed.commands.moments import moment
    from lakefeed.tables.operations.changes import version_at

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
    from lakefeed.commands.table.values import fits, record, shown
    from lakefeed.text import counted

    rows = list(_rows(found, limit))
    kind = "change data feed" if found.feed else "appends; the change data feed is off"
    at.say(f"versions {found.first} to {found.last}: {kind}")
    columns = list(rows[0]) if rows else []
    cells = [[shown(row[name]) for name in columns] for row in rows]
    if rows and fits(columns, cells, at.width):
        at.rows(columns, cells, left=columns)
    else:
        for number, row in enumerate(cells, 1):
            at.say(f"row {number}", *record(columns, row))
    at.say(counted(len(rows), "row") + (f" (the first {limit:,})" if len(rows) == limit else ""))
