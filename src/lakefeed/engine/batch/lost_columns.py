"""Columns that options of a table name and that a stream does not have any more: nothing of it is written.

Their values are unknown, and not null: a condition that reads them would leave out every row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from shlex import quote

import pyarrow as pa

from lakefeed.errors import ColumnsLost
from lakefeed.events import Offsets
from lakefeed.handles.handle import TableHandle
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.rows.rename import as_in_events
from lakefeed.sources import Source

Why = Callable[[str, Collection[str], Collection[str], Mapping[str, int]], dict[str, str]]
"""`SourceClient.lost_columns`."""


def lost_error(
    pipeline: Pipeline,
    source: str,
    handle: TableHandle,
    stream: str,
    columns: Mapping[str, str],
    why: dict[str, str],
    *,
    is_only: bool,
) -> ColumnsLost | None:
    """What to say of columns that a stream does not have, each with the option that names it."""
    lost = {name: option for name, option in columns.items() if name in why}
    if not lost:
        return None
    name, option = next(iter(lost.items()))
    more = f" (and {', '.join(list(lost)[1:])})" if len(lost) > 1 else ""
    command = f"lakefeed snapshot {pipeline.file_argument} --source {source} --stream {quote(stream)} --yes"
    return ColumnsLost(
        f"table {handle.name}: `{option}` names {name}{more}, which {stream} {why[name]}.\n"
        f"Nothing more of {stream} is written, and its rows stay as they are. Correct `{option}`; then read "
        f"it again with the columns of now: {command}",
        stream,
        is_only=is_only,
    )


def expected_columns(
    columns: Collection[str], source: Source, handle: TableHandle, rows_from: Offsets, *, by_stream: bool
) -> set[str]:
    """Those of some columns that a stream of the table must have had.

    All of them where the table has no other stream, and of a route by stream those that its own table has got
    from it.
    """
    if by_stream:
        shape, declared = handle.shape, handle.spec.declared if handle.spec else None
        names = {*(shape.schema.names if shape else ())} - {*(declared.names if declared else ())}
        own = as_in_events(pa.schema([(name, pa.null()) for name in names]), handle.rename)
        return {*columns} & {*own.names}
    return {*columns} if len({source.stream_of(partition) for partition in rows_from}) == 1 else set()
