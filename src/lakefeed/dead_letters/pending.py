"""Pending dead letters: events that a table has yet to read and that are its dead letters already.

After a crash between the two commits of a batch there are some, and after a table was moved: a new table
reads everything from `start`, while the dead letters of the old one stand. Nobody makes rows of them but a
replay.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.events import Offsets
from lakefeed.handles.table_plan import Stamp
from lakefeed.handles.tables import Tables
from lakefeed.sources import SourceClient
from lakefeed.tables.positions import positions_of
from lakefeed.text import counted

Pending = Mapping[str, frozenset[Stamp]]


def pending_dead_letters(
    tables: Tables, source: str, table: str, held: Offsets, rows_from: Offsets, dead_letters: Offsets
) -> dict[str, frozenset[Stamp]]:
    """The pending dead letters of a table, by partition; never any after offsets began anew.

    `held` are the positions of the table, `rows_from` those that it goes on from, `letters` those up to
    which its dead letters are in place.
    """
    ahead = {
        partition: at
        for partition, at in rows_from.items()
        if at < dead_letters.get(partition, 0) and at >= held.get(partition, at)
    }
    return tables.dead_letters_from(source, table, ahead) if ahead else {}


def start_of(tables: Tables, client: SourceClient, source: str, table: str, dead_letters: Offsets) -> Offsets:
    """Where a table without a position begins: where events have the offsets of its dead letters, if any."""
    if not dead_letters:
        return client.start()

    def offsets() -> list[int]:
        found = tables.dead_letters_from(source, table, dict.fromkeys(dead_letters, 0))
        return [offset for stamps in found.values() for offset, _, _ in stamps]

    return client.start_again(offsets)


def dead_letters_foreseen(tables: Tables, source: str, table: str) -> Offsets:
    """Up to where dead letters of a table are in place; nothing where none of it is known."""
    found = tables.dead_letters.look()
    if found is None:
        return {}
    return positions_of(found.transactions, tables.pipeline.name, source, dead_letters_of=table)


def foreseen(tables: Tables, source: str, table: str, start: Offsets) -> str:
    """What to know of a table that begins anew; nothing where no dead letter of it is known."""
    known = dead_letters_foreseen(tables, source, table)
    if not known:
        return ""
    return told_of_new(
        tables.pipeline.file_argument, table, pending_dead_letters(tables, source, table, {}, start, known)
    )


def told_of_new(file: str, table: str, found: Pending) -> str:
    """What a table that begins anew leaves out, and what to run for that; empty if nothing."""
    count = sum(map(len, found.values()))
    if not count:
        return ""
    are = "is a dead letter" if count == 1 else "are dead letters"
    return (
        f"has no position yet and reads its events from `start`, but {counted(count, 'event')} {are} of this "
        f"table already and will not be read again; after the run: `lakefeed dead-letters replay {file} "
        f"--table {table} --yes`"
    )
