"""What makes going on a loss: another server or table, a server that has less, a slot that has less."""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.errors import DataLoss, SourceError
from lakefeed.events import identities
from lakefeed.sources.postgres.checks.marks import TABLE_BITS
from lakefeed.sources.postgres.positions import lsn_text
from lakefeed.sources.postgres.replication.slot import Slot


def refuse_other_server(
    source: str, where: str, publication: str, own: Mapping[str, int], held: Mapping[str, int]
) -> None:
    """Raise DataLoss unless the marks that a table holds are those of the server that answers."""
    for stream, number in identities(held).items():
        now = own.get(stream, number)
        if now >> TABLE_BITS == number >> TABLE_BITS and now != number:
            raise DataLoss(
                f"source {source}: {stream} is not the table that was read before, or was not "
                "published all the time: it was dropped and made anew, another one got its name, or it "
                f"was taken out of the publication {publication} and added again. Changes may be "
                "missing.\nDrop the Delta table that it feeds; the next run reads all its rows."
            )
        if now != number:
            raise DataLoss(
                f"source {source}: {where} is another server or database than the one "
                f"that {stream} was read from.\nConnect to that one; to begin with this one, drop the "
                "tables that were read from the other."
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


def loss(name: str, slot: Slot | None, first: int) -> str | None:
    """What is lost between the positions of the tables and what the slot has; None where nothing is."""
    begin = "To begin anew, set `on_slot_loss: snapshot`, or drop the tables that it feeds."
    if slot is None or slot.status == "lost":
        what = "is gone" if slot is None else "has lost WAL that it needs (max_slot_wal_keep_size)"
        return (
            f"the replication slot {name} {what}; its tables have read up to {lsn_text(first)}, and "
            f"what was committed since cannot be read any more.\n{begin}"
        )
    if first < slot.confirmed:
        return (
            f"a table has read up to {lsn_text(first)}, but the replication slot {name} begins at "
            f"{lsn_text(slot.confirmed)}: somebody has moved it on, or made it anew, and changes between "
            f"the two are lost.\n{begin}"
        )
    return None
