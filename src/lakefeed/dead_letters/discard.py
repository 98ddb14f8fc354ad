"""Discarding dead letters: they go for good, and the commit says who wanted that and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from lakefeed.dead_letters.find import DeadLetterFilter, read_dead_letters
from lakefeed.dead_letters.reconcile import reconcile
from lakefeed.dead_letters.remove import Chosen, remove
from lakefeed.errors import StoreUnavailable, TableError
from lakefeed.events import Offsets
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.routed_tables import RoutedTables
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.sources import source_of
from lakefeed.tables.positions import positions_of, replay_id

_ATTEMPTS = 5
_COLUMNS = ["table", "source", "topic", "partition", "offset", "dead_at"]


@dataclass
class Discard:
    """How many letters were discarded, or would be, and how many must wait for the next run."""

    dead_letters: int = 0
    waiting: int = 0
    version: int | None = None


def discard(
    pipeline: Pipeline, wanted: DeadLetterFilter, *, who: str, reason: str, dry_run: bool = False
) -> Discard:
    """Delete the dead letters that are meant, in one commit.

    Letters at offsets that their table has not read up to yet stay: the next run would write them again.
    """
    tables = Tables(pipeline)
    if tables.dead_letters.look() is None:
        return Discard()
    tables.find_routed()
    handles = [handle for handle in tables.handles.values() if wanted.table in (None, handle.id.table)]
    opened = {handle.name: handle for handle in handles if handle.look() is not None}
    given_up = {} if dry_run else _reconcile(tables, opened, wanted)
    for _ in range(_ATTEMPTS):
        ahead = _ahead(tables, opened)
        found = _count(tables, wanted, ahead)
        if dry_run or not found.dead_letters:
            return found
        commit_info = {"pipeline": pipeline.name, "kind": "discard", "who": who, "reason": reason}
        letters = remove(tables, wanted, commit_info, given_up, _others(ahead), _COLUMNS)
        if letters is not None:
            return replace(found, dead_letters=letters, version=tables.dead_letters.table.version)
        tables.dead_letters.table.refresh()
    raise StoreUnavailable(
        f"{tables.dead_letters.path}: other writers keep changing the dead letters; run the command again."
    )


def _reconcile(tables: Tables, opened: dict[str, TableHandle], wanted: DeadLetterFilter) -> dict[str, int]:
    """Reconcile what can be; for the one table that is named, return the number that cannot."""
    given_up = {}
    for name, handle in opened.items():
        try:
            reconcile(tables, handle)
        except TableError as error:
            if error.retryable or wanted.table != handle.id.table:
                raise
            number = handle.table.transactions[replay_id(tables.pipeline.name)]
            given_up[replay_id(tables.pipeline.name, name)] = number
    return given_up


def _others(ahead: Chosen) -> Chosen:
    return lambda rows: ~ahead(rows)


def _count(tables: Tables, wanted: DeadLetterFilter, ahead: Chosen) -> Discard:
    found = Discard()
    for batch in read_dead_letters(tables, wanted, _COLUMNS, tables.dead_letters.table.version):
        waiting = int(np.count_nonzero(ahead(batch)))
        found.waiting += waiting
        found.dead_letters += batch.num_rows - waiting
    return found


def _ahead(tables: Tables, opened: dict[str, TableHandle]) -> Chosen:
    """Which dead letters are of events that their tables are still to read; not those of a former table."""
    borders = _borders(tables, opened)
    newest_past = cache(tables.newest_past_letter)

    def is_ahead(row: dict[str, Any]) -> bool:
        held = borders.get((row["table"], row["source"]))
        past = newest_past(row["source"], row["table"])
        if held is None or (past is not None and row["dead_at"] <= past):
            return False
        partition_of = source_of(tables.pipeline, row["source"]).partition_of
        return bool(row["offset"] >= held.get(partition_of(row["topic"], row["partition"]), 0))

    return lambda rows: np.array([is_ahead(row) for row in rows.select(_COLUMNS).to_pylist()], np.bool_)


def _borders(tables: Tables, opened: dict[str, TableHandle]) -> dict[tuple[str, str], Offsets]:
    """The positions of each table in each of its sources; a table that is missing has read nothing.

    Letters of tables and sources that the pipeline file does not name will never be read again.
    """
    return {
        (table, source): _border(tables, opened, table, source)
        for table, spec in tables.pipeline.tables.items()
        for source in spec.from_
    }


def _border(tables: Tables, opened: dict[str, TableHandle], table: str, source: str) -> Offsets:
    """How far a table has come; a route as far as the last of its tables."""
    if table not in tables.routes:
        own = opened.get(table)
        return positions_of(own.table.transactions, tables.pipeline.name, source) if own else {}
    route = RoutedTables(tables, table)
    for handle in route.find():
        handle.look()
    return route.passed(source)
