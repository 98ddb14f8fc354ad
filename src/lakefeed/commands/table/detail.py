"""`lakefeed table detail`: a table at one glance, with advice."""

from __future__ import annotations

from typing import Annotated

import typer

from lakefeed.commands.options import names
from lakefeed.commands.table.table_command import TableCommand, table_command
from lakefeed.figures import readable_size
from lakefeed.tables.detail.detail import Description, describe
from lakefeed.text import listed


@table_command
def detail(
    at: TableCommand,
    filters: Annotated[
        str | None,
        typer.Option(help="Columns that queries filter by, such as user_id,country: adds advice."),
    ] = None,
) -> None:
    """Show schema, partitions, files, features, properties, owner, last commits, and advice."""
    found = describe(at.table, names(filters))
    if at.as_json:
        at.print_json(found)
    else:
        _print(at, found)


def _print(at: TableCommand, found: Description) -> None:
    at.print(
        f"{found.path}",
        f"  version {found.version}, created {found.created}, id {found.id}",
        f"  {found.table}; {found.small_files:,} small (target {readable_size(found.target_file_size)})",
        f"  protocol: reader {found.reader_version}, writer {found.writer_version}"
        + (f", {listed(found.features)}" if found.features else ""),
        *([f"  description: {found.description}"] if found.description else []),
        *(f"  owner: {owner}" for owner in found.owners),
    )
    _section(at, "columns", [f"{name}: {kind}" for name, kind in found.schema.items()])
    _section(at, "properties", [f"{name} = {value}" for name, value in found.properties.items()])
    _section(
        at,
        f"partitions by {listed(found.partition_by)} ({found.partition_count:,}, the largest)",
        [f"{one.partition}: {one.extent}" for one in found.partitions],
    )
    _section(
        at,
        "last commits",
        [
            f"{one.version}  {one.timestamp}  {one.operation}  {one.by}"
            + (f"  ({one.reason})" if one.reason else "")
            for one in found.commits
        ],
    )
    _section(at, "advice", list(found.advice) or ["none: the table is in good shape"])


def _section(at: TableCommand, title: str, lines: list[str]) -> None:
    if lines:
        at.print("", f"{title}:", *(f"  {line}" for line in lines))
