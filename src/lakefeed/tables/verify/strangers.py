"""Rows that others have added or removed: strangers, or kafka-delta-ingest where a table goes on from it."""

from __future__ import annotations

from dataclasses import dataclass

from lakefeed.tables.log.entry import Entry
from lakefeed.tables.positions import ingest_positions
from lakefeed.tables.verify.finding import Finding
from lakefeed.text import counted


@dataclass(frozen=True)
class Expected:
    """Who else writes to a table, as its owner knows.

    `guest` is kafka-delta-ingest in a table of dead letters, where it writes no positions.
    """

    app_id: str | None = None
    guest: bool = False


NOBODY = Expected()


def told_of_stranger(entry: Entry, added: int, removed: int, expected: Expected) -> Finding | str:
    """What an entry has done that Lakefeed did not write; a sentence where that is no finding."""
    app_id, guest = expected.app_id, expected.guest
    what = f"{counted(added, 'row')} added" + (f", {removed:,} removed" if removed else "")
    if not removed and (guest or (app_id and ingest_positions(entry.transactions, app_id))):
        return f"version {entry.version}: {what} by kafka-delta-ingest; what it has read is not proved here"
    who = entry.info.get("engineInfo") or entry.info.get("clientVersion") or "an unknown engine"
    operation = str(entry.info.get("operation") or "a commit without a name")
    return Finding("foreign", f"{what} by {operation} of {who}, not by Lakefeed", entry.version)
