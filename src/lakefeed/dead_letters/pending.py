"""Pending dead letters: events that a table has yet to read and that are its dead letters already.

There are some after a crash between the two commits of a batch, and where all events became dead letters
before the table was created. Only a replay makes rows of them. Dead letters of a table that was dropped are
not pending: `predecessor.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakefeed.dead_letters.predecessor import (
    Owner,
    count_outdated,
    of_other_streams,
    outdated_text,
    table_number,
)
from lakefeed.events import Offsets
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.table_plan import Stamp
from lakefeed.handles.tables import Tables
from lakefeed.sources import Reread, SourceClient
from lakefeed.tables.positions import positions_of
from lakefeed.text import counted

Pending = Mapping[str, frozenset[Stamp]]


def pending_dead_letters(
    tables: Tables,
    source: str,
    table: str,
    held: Offsets,
    rows_from: Offsets,
    dead_letters: Offsets,
    owners: Iterable[Owner],
) -> dict[str, frozenset[Stamp]]:
    """The pending dead letters of a table, by partition; never any after offsets began anew.

    `held` are the positions of the table, `rows_from` those that it goes on from, `dead_letters` those up to
    which its dead letters are in place. Those of a topic or table that had the name of a stream before are
    of other events.
    """
    ahead = {
        partition: at
        for partition, at in rows_from.items()
        if at < dead_letters.get(partition, 0) and at >= held.get(partition, at)
    }
    found = tables.dead_letters.look() if ahead else None
    for owner in owners if found else ():
        assert found is not None
        own = [partition for partition in ahead if partition in owner.start]
        for partition in of_other_streams(tables, source, owner, own, found.transactions):
            del ahead[partition]
    return tables.dead_letters_from(source, table, ahead) if ahead else {}


def start_of(tables: Tables, client: SourceClient, source: str, table: str, dead_letters: Offsets) -> Offsets:
    """Where a table without a position begins: where events have the offsets of its dead letters, if any."""
    if not dead_letters:
        return client.start()
    return client.start_again(lambda: _offsets(tables, source, table, dead_letters))


def reread(
    tables: Tables, client: SourceClient, source: str, table: str, start: Offsets, dead_letters: Offsets
) -> Reread:
    """Whether a table that begins at `start` reads events of its dead letters under other offsets."""
    if not dead_letters or not start:
        return "never"
    return client.reread(start, _offsets(tables, source, table, dead_letters))


def _offsets(tables: Tables, source: str, table: str, dead_letters: Offsets) -> list[int]:
    found = tables.dead_letters_from(source, table, dict.fromkeys(dead_letters, 0))
    return [offset for stamps in found.values() for offset, *_ in stamps]


def dead_letters_foreseen(tables: Tables, source: str, table: str) -> Offsets:
    """Up to where dead letters of a table are in place; nothing where none of it is known."""
    found = tables.dead_letters.look()
    if found is None:
        return {}
    return positions_of(found.transactions, tables.pipeline.name, source, dead_letters_of=table)


def foreseen(tables: Tables, client: SourceClient, source: str, handle: TableHandle, start: Offsets) -> str:
    """What to know of a table without a position; nothing where no dead letter of it is known."""
    table = handle.name
    known = dead_letters_foreseen(tables, source, table)
    if not known:
        return ""
    replaced, again = client.replaced_from(start), reread(tables, client, source, table, start, known)
    owner = Owner(table, table_number(handle.shape), replaced, True, client.marks(), client.unreadable, again)
    outdated = count_outdated(tables, source, table, owner)
    if text := outdated_text(outdated, tables.pipeline.file_argument, table, foreseen=True):
        return text
    pending = pending_dead_letters(tables, source, table, {}, start, known, [owner])
    return told_of_new(tables.pipeline.file_argument, table, pending)


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
