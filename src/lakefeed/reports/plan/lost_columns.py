"""Columns that a table names and that its stream does not have any more, or not yet in the table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakefeed.engine.batch.lost_columns import expected_columns, lost_error
from lakefeed.errors import SqlError
from lakefeed.events import Events, Offsets
from lakefeed.formats.fit.spellings import spellings_of, with_column_names
from lakefeed.handles.growth import coming_columns
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.read_columns import read_columns
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.options.route import safe_value
from lakefeed.rows.rename import as_in_events
from lakefeed.sources import SourceClient, source_of
from lakefeed.sources.subscription import is_by_stream
from lakefeed.tables.positions import marks_of


def assume_columns(handle: TableHandle, client: SourceClient) -> None:
    """Plan with the columns that a run would add when it opens or creates the table."""
    table = handle.look()
    try:
        handle.changes(table) if table is not None else handle.beginning()
    except SqlError as error:
        coming = coming_columns(handle, client, handle.events()) if error.may_come else None
        if coming is not None:
            handle.assumed = coming


def refuse_lost_columns(
    tables: Tables,
    source: str,
    client: SourceClient,
    handle: TableHandle,
    sampled: Sequence[Events],
    start: Offsets,
) -> None:
    """Raise ColumnsLost where sampled events lack columns that the table names, as a run would."""
    assert handle.spec is not None
    by_stream = handle.spec.routed is not None and is_by_stream(handle.spec, tables.sources_of(handle.spec))
    for events in sampled:
        if events.columns is None or events.stream is None or not len(events):
            continue
        own = handle
        if by_stream and not handle.id.key and (key := safe_value(events.stream)):
            own = tables.routed_handle(handle.name, (key,))
            if not own.exists:
                own.assumed = handle.assumed
        known = own.events() or pa.schema([])
        spellings = spellings_of(as_in_events(known, own.rename_of(known)), own.rules(known))
        names = with_column_names(events.columns.schema.names, spellings)
        lost = {name: option for name, option in _reads(own).items() if name not in names}
        if lost:
            _refuse(tables, source, client, own, events.stream, lost, start, by_stream=by_stream)


def _reads(handle: TableHandle) -> dict[str, str]:
    assert handle.spec is not None and handle.shaping is not None
    rows = handle.rows_read()
    projection = None if rows is None else handle.shaping.settled(rows)
    changes = handle.change_plan(handle.columns(), rows)
    return read_columns(handle.spec, handle.rename, projection, changes)


def _refuse(
    tables: Tables,
    source: str,
    client: SourceClient,
    handle: TableHandle,
    stream: str,
    lost: dict[str, str],
    start: Offsets,
    *,
    by_stream: bool,
) -> None:
    table, spec = handle.look(), source_of(tables.pipeline, source)
    marks = marks_of(dict(table.transactions), tables.pipeline.name, source) if table else {}
    expected = expected_columns(lost, spec, handle, start, by_stream=by_stream)
    why = client.lost_columns(stream, lost, expected, marks)
    error = lost_error(tables.pipeline, source, handle, stream, lost, why, is_only=True)
    if error:
        raise error
