"""Discarding dead letters: they go for good, and the commit says who wanted that and why."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace

from lakefeed.dead_letters.find import DeadLetterFilter, literal, read_dead_letters
from lakefeed.dead_letters.reconcile import reconcile, remove
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


@dataclass(frozen=True)
class Ahead:
    """From where on the events of a partition are still to be read by a table."""

    table: str
    source: str
    topic: str | None
    partition: int
    offset: int
    past: dt.datetime | None = None
    """Where there is one: letters up to this `dead_at` are of a former table, and are not read again."""

    def sql(self) -> str:
        """The condition that the letters ahead meet."""
        topic = "topic IS NULL" if self.topic is None else f"topic = {literal(self.topic)}"
        newer = f" AND dead_at > {literal(self.past)}" if self.past else ""
        return (
            f'("table" = {literal(self.table)} AND source = {literal(self.source)} AND {topic} '
            f'AND "partition" = {self.partition} AND "offset" >= {self.offset}{newer})'
        )


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
        found, ahead = _count(tables, wanted, opened)
        if dry_run or not found.dead_letters:
            return found
        condition = wanted.sql(pipeline.name)
        if ahead:
            condition += f" AND NOT ({' OR '.join(one.sql() for one in ahead)})"
        commit_info = {
            "pipeline": pipeline.name,
            "kind": "discard",
            "dead_letters": found.dead_letters,
            "who": who,
            "reason": reason,
        }
        if remove(tables.dead_letters.table, condition, commit_info, given_up, found.dead_letters):
            return replace(found, version=tables.dead_letters.table.version)
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


def _count(
    tables: Tables, wanted: DeadLetterFilter, opened: dict[str, TableHandle]
) -> tuple[Discard, set[Ahead]]:
    found = Discard()
    ahead: set[Ahead] = set()
    borders = _borders(tables, opened)
    for batch in read_dead_letters(tables, wanted, _COLUMNS, tables.dead_letters.table.version):
        for row in batch.to_pylist():
            held = borders.get((row["table"], row["source"]))
            border, past = None, tables.newest_past_letter(row["source"], row["table"])
            if held is not None and (past is None or row["dead_at"] > past):
                partition_of = source_of(tables.pipeline, row["source"]).partition_of
                border = held.get(partition_of(row["topic"], row["partition"]), 0)
            if border is not None and row["offset"] >= border:
                found.waiting += 1
                ahead.add(Ahead(row["table"], row["source"], row["topic"], row["partition"], border, past))
            else:
                found.dead_letters += 1
    return found, ahead


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
