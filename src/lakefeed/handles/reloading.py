"""Which tables can replace the rows of a file by what it holds now, and in which mode they do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from shlex import quote

from lakefeed.events import OffsetRange, Reload
from lakefeed.handles.anew import commands_to_make_anew
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.table import Table
from lakefeed.sources import source_of
from lakefeed.sources.delta.source import DeltaSource
from lakefeed.sources.files.offset import BEGUN_MARK, FIRST_MARK
from lakefeed.tables.positions import marks_of
from lakefeed.tables.write.mode import Reloads, WriteMode


def reloads_of(
    tables: Tables, handle: TableHandle, source: str, span: OffsetRange, files: Sequence[Reload]
) -> Reloads | None:
    """What of these files, which are read in a range, replaces rows of a table; None where nothing does.

    `span` begins at the position of the table: what it has not read by then has no rows to replace.
    """
    begun = _begun(tables, [handle], source)
    wanted = [
        replace(one, former=former)
        for one in files
        if span.start <= one.start < span.end and (former := _read_before(span, one, begun))
    ]
    if not wanted:
        return None
    # Where another file had the same path, it does not tell whose rows they are.
    reused = any(one.is_name_reused for one in wanted)
    name, column = tables.pipeline.name, None if reused else _column(handle)
    folders = _folders(tables, handle)
    commands = _commands(tables, handle, source, is_name_reused=reused)
    by_hand = _by_hand(tables, handle, [one.stream for one in wanted])
    return Reloads(wanted, name, source, span.partition, column, folders, commands, by_hand)


def unread_former(
    tables: Tables, table: str, source: str, span: OffsetRange, files: Sequence[Reload]
) -> list[tuple[int, int]]:
    """The former offsets of files of a range that a table at the start of the range has not read.

    It has no rows of them, but it may have dead letters: from before it was created, or before a crash.
    Of a route, those that none of its tables has read.
    """
    own = [one for one in files if span.start <= one.start < span.end]
    if not own:
        return []
    handles = [handle for handle in tables.handles.values() if handle.id.table == table]
    begun = _begun(tables, handles, source)
    unread = {offsets for one in own for offsets in {*one.former} - {*_read_before(span, one, begun)}}
    return sorted(unread.union(*(one.unread for one in own)))


def _begun(tables: Tables, handles: Sequence[TableHandle], source: str) -> tuple[float, float]:
    """The first offset that one of some tables has read, and the next one of the ledger at that time."""
    marks = [marks_of(one.table.transactions, tables.pipeline.name, source) for one in handles if one.exists]
    first, begun = (
        min((one.get(name, 0) for one in marks), default=math.inf) for name in (FIRST_MARK, BEGUN_MARK)
    )
    return first, begun


def _read_before(span: OffsetRange, file: Reload, begun: tuple[float, float]) -> tuple[tuple[int, int], ...]:
    """The former offsets of a file that a table has read that stands at the start of a range.

    None where the file was replaced before the table began: by then, its former content was read no more.
    """
    first, ledger = begun
    if file.start < ledger:
        return ()
    return tuple(offsets for offsets in file.former if first <= offsets[0] < span.start)


def reload_mode(tables: Tables, handle: TableHandle, reloads: Reloads) -> WriteMode:
    """The mode of the commit that replaces the rows. Raises RowsNotReplaced where they cannot be replaced."""
    # Modes with keys are imported where a table has one.
    from lakefeed.tables.write.reload import ReloadMode

    if problem := _problem(tables, handle, reloads):
        raise reloads.refused(
            f"table {handle.name}: the rows of {reloads.streams} cannot be replaced: {problem}"
        )
    return ReloadMode(handle.target) if handle.spec and handle.spec.mode == "append" else handle.mode


def _problem(tables: Tables, handle: TableHandle, reloads: Reloads) -> str | None:
    assert handle.spec is not None
    if handle.spec.mode not in ("append", "upsert"):
        return f"with `mode: {handle.spec.mode}`, rows of other files depend on them"
    if handle.spec.mode == "upsert" and (problem := _upsert_problem(handle, handle.spec, reloads)):
        return problem
    return _reader_problem(tables, handle.id.table) or _overlap(tables, handle.spec, reloads)


def _upsert_problem(handle: TableHandle, spec: Table, reloads: Reloads) -> str | None:
    """Why corrected changes would not make the rows that the files together stand for."""
    if handle.takes_change_events or spec.delete_when or spec.truncate_when:
        return "a deletion that the file had cannot be undone"
    if spec.ignore_nulls:
        return "with `ignore_nulls`, a row has values of several files"
    if not spec.sequence_by:
        return "without `sequence_by`, nothing tells whether a row of another file is newer"
    return None if reloads.column else "the table does not tell which of its rows are of the file"


def _reader_problem(tables: Tables, table: str) -> str | None:
    """A table of the file that reads what is appended to this one, and stops where rows go."""
    pipeline, graph = tables.pipeline, tables.pipeline.graph
    for name in graph.fed_from(table):
        for source in pipeline.tables[name].from_:
            spec = source_of(pipeline, source) if graph.table_read_by(source) == table else None
            if isinstance(spec, DeltaSource) and not (spec.ignore_changes or spec.change_feed):
                return f"table {name} reads what is appended to {table}, and would stop"
    return None


def _overlap(tables: Tables, spec: Table, reloads: Reloads) -> str | None:
    """Another source that brings rows of the same file."""
    from lakefeed.sources.files.source import FilesSource

    for name in spec.from_:
        other = source_of(tables.pipeline, name)
        if name != reloads.source and isinstance(other, FilesSource):
            head = other.scope.base.rstrip("/") + "/"
            for one in reloads.files:
                inside = one.stream.removeprefix(head)
                if inside != one.stream and other.scope.takes(inside):
                    return f"source {name} reads {one.stream} as well"
    return None


def _folders(tables: Tables, handle: TableHandle) -> list[str]:
    """The folders that the sources of the table read."""
    from lakefeed.sources.files.source import FilesSource

    inputs = [source_of(tables.pipeline, name) for name in (handle.spec.from_ if handle.spec else ())]
    return [one.reads_folder() for one in inputs if isinstance(one, FilesSource)]


def _column(handle: TableHandle) -> str | None:
    """The column with the file of each row."""
    spec = handle.spec
    name = spec.metadata_columns.columns.get("_topic") if spec else None
    if spec is None or name is None or name not in handle.table.schema.names:
        return None
    made = [item for item in spec.select or () if item.strip(" `").lower().endswith(name.lower())]
    return name if all(item.strip(" `") == name for item in made) else None


def _commands(tables: Tables, handle: TableHandle, source: str, *, is_name_reused: bool) -> tuple[str, ...]:
    """What makes the table anew from all files as they are now; empty where some are read no more."""
    spec = source_of(tables.pipeline, source)
    if getattr(spec, "start", None) != "all" or is_name_reused:
        return ()
    return commands_to_make_anew(tables, [handle.id.table])


def _by_hand(tables: Tables, handle: TableHandle, paths: Sequence[str]) -> str:
    files = f"{tables.pipeline.file_argument} {' '.join(map(quote, paths))} --yes"
    return (
        f"Take its rows out (lakefeed table delete {quote(handle.path)} --where ...), then have it read as a "
        f"new file: lakefeed files forget {files}"
    )
