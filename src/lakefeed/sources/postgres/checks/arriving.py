"""Tables that come: their rows are read once no transaction is open from before they were published.

One of those may have changed the table before, which the stream of changes does not have and no snapshot sees
yet; or it is in the stream already while no snapshot sees it, as it waits for a standby. The other tables do
not wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakefeed.sources import Finding
from lakefeed.sources.postgres.checks.blockers import oldest_transaction
from lakefeed.sources.postgres.connection import Connection, one_row
from lakefeed.sources.postgres.relations import TableInfo

_OWN = "SELECT pg_catalog.pg_current_xact_id()::text"
_OLDEST = "SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text"
_BETWEEN = 0.05

_Published = tuple[str, int, int]
"""A stream, its table, and its entry in the publication: another one after it was taken out and added."""


@dataclass
class Arrivals:
    """Which tables a process has begun with, and which came later; kept from one client to the next."""

    begun: set[_Published] = field(default_factory=set)
    """The tables that were there at the start, and those whose rows have been read since."""
    passed: set[_Published] = field(default_factory=set)
    """Those whose rows are still to be read, and that wait for no transaction any more."""
    _fences: dict[_Published, int] = field(default_factory=dict)
    """For each that waits an id beyond all transactions that were open when it was found."""

    def look(self, connection: Connection, tables: Mapping[str, TableInfo]) -> dict[str, Finding]:
        """The tables among those that came later that wait, with why."""
        if not self.begun:
            self.begun = {_published(table) for table in tables.values()}
        return self.wait(connection, [one for one in tables.values() if _published(one) not in self.begun])

    def wait(
        self, connection: Connection, tables: Iterable[TableInfo], seconds: float = 0.0
    ) -> dict[str, Finding]:
        """The tables that wait after some seconds, with the transaction that they wait for."""
        until = time.monotonic() + seconds
        waiting = {_published(table) for table in tables} - self.passed
        if unseen := waiting - self._fences.keys():
            # An id of its own is beyond all that were given so far, which the end of a snapshot need not be.
            own = int(one_row(connection, _OWN)[0])
            self._fences |= dict.fromkeys(unseen, own)
        while waiting:
            oldest = int(one_row(connection, _OLDEST)[0])
            self.passed |= {one for one in waiting if self._fences[one] <= oldest}
            waiting -= self.passed
            if time.monotonic() >= until:
                break
            time.sleep(_BETWEEN)
        waits_for = f"It waits for {oldest_transaction(connection)}" if waiting else ""
        text = "is read when transactions that were open before it was found have ended"
        streams = sorted(stream for stream, *_ in waiting)
        return {one: Finding("skip", f"{one} {text}", waits_for, one) for one in streams}

    def begin(self, table: TableInfo) -> None:
        """Rows of a table have been read: another snapshot of it has to wait again."""
        one = _published(table)
        if one in self.passed:
            self.passed.discard(one)
            self._fences.pop(one, None)
            self.begun.add(one)


def _published(table: TableInfo) -> _Published:
    return table.stream, table.oid, table.membership
