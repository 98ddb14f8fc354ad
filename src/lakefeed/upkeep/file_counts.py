"""File counts: counts the files of a run's tables now and then, so that nobody has to replay a log for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.fs as pafs

from lakefeed.columns.column_types import type_text
from lakefeed.dead_letters.unapplied import is_copy, unapplied_changes
from lakefeed.engine.run_events import FilesCounted, UnappliedCounted, Watcher
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.tables import Tables
from lakefeed.tables.detail.contents import contents_of
from lakefeed.tables.log.log import Log

_EVERY = 60.0
_FIRST_AFTER = 2.0
_log = logging.getLogger("lakefeed")


@contextmanager
def count_files(tables: Tables, watch: Watcher, every: float = _EVERY) -> Iterator[None]:
    """Count in a thread of its own while the run lasts; commits tell what changes in between."""
    over = threading.Event()
    thread = threading.Thread(
        target=_count_on, args=(tables, watch, every, over), name="file counts", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()


def _count_on(tables: Tables, watch: Watcher, every: float, over: threading.Event) -> None:
    """Tables that have just been opened are counted soon, all of them again at every turn."""
    known: set[str] = set()
    waited, counted = every, None
    while not over.wait(_FIRST_AFTER):
        waited += _FIRST_AFTER
        everyone = waited >= every
        waited = 0.0 if everyone else waited
        for handle in [*tables.handles.values(), tables.dead_letters]:
            if over.is_set():
                return
            if handle.exists and (everyone or handle.name not in known):
                known.add(handle.name)
                _count(handle, watch)
        if everyone:
            counted = count_unapplied(tables, watch, counted)


def _count(handle: TableHandle, watch: Watcher) -> None:
    try:
        # Nobody commits meanwhile: a table is used by one thread at a time.
        with handle.lock:
            table = handle.table
            found = contents_of(table, handle.spec.target_file_size if handle.spec else 0)
            columns, partition_by = _columns(table.schema), tuple(table.partition_columns)
            watch(FilesCounted(handle.name, columns=columns, partition_by=partition_by, **vars(found)))
    except Exception as error:
        # A store that is away is told by the flow that needs it.
        _log.debug("the files of %s could not be counted", handle.name, exc_info=error)


def count_unapplied(tables: Tables, watch: Watcher, counted: int | None = None) -> int | None:
    """Count the changes of copies that are dead letters, unless that was done at this version of them.

    Other processes replay and discard dead letters. Returns the version that was counted.
    """
    try:
        copies = [handle.name for handle in tables.handles.values() if is_copy(tables, handle)]
        log = _log_since(tables.dead_letters.store, counted) if copies else None
        if log is None or log.newest == counted:
            return counted
        version = log.newest
        found = unapplied_changes(tables)
        for name in (*copies, *tables.routes):
            watch(UnappliedCounted(name, found.get(name, 0)))
    except Exception as error:
        _log.debug("dead letters could not be counted", exc_info=error)
        return counted
    return version


def _log_since(store: pafs.FileSystem, version: int | None) -> Log | None:
    """The log from a version on, if that is still there: the whole listing grows with the age of a table."""
    log = None if version is None else Log.open_from(store, version)
    return log or Log.open(store)


def _columns(schema: pa.Schema) -> tuple[tuple[str, str], ...]:
    return tuple(
        (field.name, type_text(field.type) + ("" if field.nullable else " not null")) for field in schema
    )
