"""`lakefeed table files`: the files of a table's newest version."""

from __future__ import annotations

from typing import Annotated

import typer

from lakefeed.commands.table.table_command import TableCommand, table_command
from lakefeed.figures import thousands
from lakefeed.tables.data_files import data_files
from lakefeed.tables.detail.detail import instant
from lakefeed.tables.log.data_file import extent, partition_text


@table_command
def files(
    at: TableCommand,
    where: Annotated[
        str | None, typer.Option(help="A SQL condition: only files that may have matching rows.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many files, smallest first.")] = 50,
) -> None:
    """Show the files of the newest version with size, rows and partition, smallest first."""
    found = sorted(data_files(at.table, where), key=lambda one: (one.size, one.path))
    shown = found[:limit]
    if at.as_json:
        described = [
            {
                "path": one.path,
                "bytes": one.size,
                "rows": one.rows,
                "partition": dict(one.partition),
                "modified": instant(one.modified),
            }
            for one in shown
        ]
        at.print_json({"files": described, "total": len(found)})
        return
    rows = [
        (
            f"{one.size:,}",
            thousands(one.rows),
            instant(one.modified) or "",
            partition_text(one.partition),
            one.path,
        )
        for one in shown
    ]
    left = ("modified", "partition", "path")
    at.print_rows(("bytes", "rows", *left), rows, left)
    at.print(f"{len(shown):,} of {extent(found)}")
