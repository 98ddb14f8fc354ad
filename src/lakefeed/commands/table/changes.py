"""`lakefeed table changes`: the rows that versions have added, changed and taken away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakefeed.commands.table.options import At, File, Json, Storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefeed.commands.table.desk import Desk
    from lakefeed.tables.changes import Changes


def changes(
    path: At,
    from_version: Annotated[int, typer.Option(min=0, help="The first version to tell.")],
    to_version: Annotated[
        int | None, typer.Option(min=0, help="The last one; by default the newest.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="How many rows; by default 50, with --json all.")
    ] = None,
    file: File = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Show what changed from version to version: the change data feed, or the appends where it is off.

    With --json, one object for each row.
    """
    from lakefeed.commands.table.desk import desk
    from lakefeed.tables.changes import changes as look

    with desk(path, file, storage, as_json) as at:
        found = look(at.table(), from_version, to_version)
        if as_json:
            from lakefeed.commands.table.desk import to_json

            for row in _rows(found, limit):
                at.say(to_json(row))
        else:
            _print(at, found, limit or 50)
        for version, operation in found.left_out.items():
            typer.echo(
                f"version {version} ({operation}) is left out: it took rows away, which only the change data "
                "feed can tell. Turn it on with --set delta.enableChangeDataFeed=true.",
                err=True,
            )


def _rows(found: Changes, limit: int | None) -> Iterator[dict[str, object]]:
    left = limit
    for batch in found.batches:
        yield from (batch if left is None else batch.slice(0, left)).to_pylist()
        if left is not None:
            left -= min(left, batch.num_rows)
            if not left:
                return


def _print(at: Desk, found: Changes, limit: int) -> None:
    rows = list(_rows(found, limit))
    kind = "change data feed" if found.feed else "appends; the change data feed is off"
    at.say(f"versions {found.first} to {found.last}: {kind}")
    if rows:
        columns = list(rows[0])
        at.rows(columns, [[str(row[name]) for name in columns] for row in rows], left=columns)
    at.say(f"{len(rows):,} rows" + (f" (the first {limit})" if len(rows) == limit else ""))
