"""What makes going on a loss: another server or table, a server that has less, a slot that has less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote

from lakefeed.errors import DataLoss, SourceError
from lakefeed.events import identities
from lakefeed.sources.postgres.checks.marks import TABLE_BITS
from lakefeed.sources.postgres.positions import lsn_text
from lakefeed.sources.postgres.replication.slot import Slot
from lakefeed.text import listed

_BEGIN = "To read all rows again, set `on_slot_loss: snapshot`, or drop the tables that it feeds."


def refuse_other_server(source: str, where: str, own: Mapping[str, int], held: Mapping[str, int]) -> None:
    """Raise DataLoss unless the marks that a table holds are those of the server that answers."""
    for stream, number in identities(held).items():
        if own.get(stream, number) >> TABLE_BITS != number >> TABLE_BITS:
            raise DataLoss(
                f"source {source}: {where} is another server or database than the one "
                f"that {stream} was read from.\nConnect to that one; to begin with this one, drop the "
                "tables that were read from the other."
            )


def recreated_text(source: str, stream: str, publication: str) -> str:
    """What to say of a table that is another one than before."""
    return (
        f"{stream} is not the table that was read before, or was not published all the time: it was dropped "
        f"and created again, another one got its name, or it was taken out of the publication {publication} "
        "and added again, or that was created again. Changes may be missing, and nothing of it is read.\nTo "
        f"replace its rows by those of the new table: {_command(source, stream)}; or set `on_recreate: "
        "snapshot` on the source, or drop the Delta table that it feeds."
    )


def other_key_text(source: str, stream: str, columns: Sequence[str]) -> str:
    """What to say of a key that the rows of a copy do not have."""
    return (
        f"{listed(columns)} of the key of {stream} got another name, or its values by one statement, and no "
        "row of the copy has it: changes would not find their rows. Nothing more of it is written, and its "
        f"rows stay as they are.\nTo replace them by those of the table: {_command(source, stream)}"
    )


def refuse_older_server(source: str, where: str, last: int, end: int) -> None:
    """Rows that are read anew there would be older than those of the tables, and give way to them."""
    if last > end:
        raise DataLoss(
            f"source {source}: a table has read up to {lsn_text(last)}, but the WAL of "
            f"{where} ends at {lsn_text(end)}: the server was restored to an earlier time, "
            "or a standby took over that had not received everything.\nThe tables have rows that the "
            "database has lost: drop the tables that it feeds; the next run reads all rows."
        )


def halfway(source: str, stream: str) -> SourceError:
    """Why rows of a snapshot cannot be read again beside changes that only some tables have.

    Tables of a route that is not by stream have positions in all of them, so a kill between two of their
    commits leaves one ahead.
    """
    return SourceError(
        f"source {source}: a run was killed while it copied the rows of {stream} into the tables of a route, "
        "and some of them have the rows, others not.\nDrop the tables of the route; the next run reads all "
        "rows. A route that is `{_stream}` alone, whose `select` keeps `_stream`, goes on by itself."
    )


def slot_loss(name: str, slot: Slot | None, first: int) -> str | None:
    """What is lost with a slot that is gone; None where it is there."""
    if slot is not None and slot.status != "lost":
        return None
    what = "is gone" if slot is None else "has lost WAL that it needs (max_slot_wal_keep_size)"
    return (
        f"the replication slot {name} {what}; its tables have read up to {lsn_text(first)}, and "
        f"what was committed since cannot be read any more.\n{_BEGIN}"
    )


def passed_text(source: str, stream: str, at: int, name: str, slot: Slot) -> str:
    """What to say of a table whose next changes the slot no longer has."""
    return (
        f"the table has read {stream} up to {lsn_text(at)}, but the replication slot {name} begins at "
        f"{lsn_text(slot.confirmed)}: it was moved on, or created again, or {stream} was not read "
        "for a while; changes between the two are lost.\nTo read its rows again: "
        f"{_command(source, stream)}; or set `on_slot_loss: snapshot`, or drop the tables that it feeds."
    )


def _command(source: str, stream: str) -> str:
    return f"lakefeed snapshot FILE --source {quote(source)} --stream {quote(stream)} --yes"
