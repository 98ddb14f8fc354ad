"""Marks: numbers that say which server, table and timeline positions are of, and how a table is made."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping

from lakefeed.errors import DataLoss
from lakefeed.events import EPOCH, Offsets
from lakefeed.sources.postgres.connection import Connection, connect, one_row, where
from lakefeed.sources.postgres.positions import is_rows, lsn_number, lsn_text, partition_name
from lakefeed.sources.postgres.relations import TableInfo
from lakefeed.sources.postgres.source import PostgresSource

TABLE_BITS = 32
"""Bits of the mark of a stream that stand for a table; those above stand for the server and the database."""
_TYPE_BITS = 30
_SYSTEM = """
SELECT system_identifier::text || '/' || (SELECT oid FROM pg_catalog.pg_database
                                          WHERE datname = current_database())
FROM pg_catalog.pg_control_system()
"""
_TIMELINE = """
SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN NULL
            ELSE left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8) END
"""
_log = logging.getLogger("lakefeed")
_told: set[tuple[str, int]] = set()


class Marks:
    """The marks of the tables of a source, by what its server says; looked at now and then."""

    def __init__(self) -> None:
        self._system: int | None = None
        self._timeline: int | None = None
        self._tables: dict[str, TableInfo] = {}
        self._made: dict[str, int] = {}
        """For each table its storage when that was last written anew, and the types of its columns."""

    def look(self, connection: Connection, tables: Mapping[str, TableInfo]) -> None:
        """Ask the server."""
        if self._system is None:
            text = one_row(connection, _SYSTEM)[0].encode()
            self._system = (zlib.crc32(text) << 31) | (zlib.crc32(text[::-1]) >> 1)
        (timeline,) = one_row(connection, _TIMELINE)
        self._timeline = int(timeline, 16) if timeline else None
        for stream, table in tables.items():
            known, last = self._made.get(stream), self._tables.get(stream)
            if known is None or last is None:
                self._made[stream] = _made(table.storage, table.types)
            elif table.types != last.types:
                # TRUNCATE and VACUUM FULL change where a table is stored as well: that alone says nothing.
                same = table.storage == last.storage
                self._made[stream] = _made(known >> _TYPE_BITS if same else table.storage, table.types)
        self._tables = dict(tables)

    def all(self) -> dict[str, int]:
        """By stream which table it is, and by partition the timeline, and how the table is made."""
        assert self._system is not None or not self._tables
        above = (self._system or 0) >> TABLE_BITS << TABLE_BITS
        found: dict[str, int] = {}
        for stream, one in self._tables.items():
            found[stream] = above | zlib.crc32(f"{self._system}/{one.oid}/{one.membership}".encode())
            if self._timeline is not None:
                found[partition_name(stream) + EPOCH] = self._timeline
            found[partition_name(stream, rows=True) + EPOCH] = self._made[stream]
        return found


def _made(storage: int, types: int) -> int:
    return (storage & 0xFFFFFFFF) << _TYPE_BITS | (types & ((1 << _TYPE_BITS) - 1))


def tell_rewritten(source: str, stream: str, held: int | None, now: int | None) -> None:
    """Warn where types have changed together with the storage: values were rewritten without events."""
    if held is None or now is None or held >> _TYPE_BITS == now >> _TYPE_BITS:
        return
    types = (1 << _TYPE_BITS) - 1
    if held & types != now & types and (stream, now) not in _told:
        _told.add((stream, now))
        _log.warning(
            "source %s: columns of %s have changed, and its rows were written anew by one statement, such as "
            "ALTER TABLE ... TYPE. Postgres sends no change for values that it rewrites: the Delta table has "
            "the old ones.\nTo have the new ones, stop the run and type: lakefeed snapshot FILE --source %s "
            "--stream %s --yes",
            source,
            stream,
            source,
            stream,
        )


def refuse_lost_timeline(
    name: str, source: PostgresSource, positions: Offsets, held: Mapping[str, int], own: Mapping[str, int]
) -> None:
    """Raise DataLoss where a table has read WAL that the server's timeline does not have.

    After a failover the new primary goes on from where it had received WAL; positions up to there are good.
    """
    for partition, at in positions.items():
        old, new = held.get(partition + EPOCH), own.get(partition + EPOCH)
        if is_rows(partition) or old is None or new is None or old == new:
            continue
        end = _end_of(source, old, new)
        if end is None or at > end:
            until = f"up to {lsn_text(end)} of it" if end is not None else "nothing of it"
            raise DataLoss(
                f"source {name}: a table has read timeline {old} up to {lsn_text(at)}, but {where(source)} "
                f"is on timeline {new}, which has {until}: a standby took over that had not received "
                "everything, or the server was restored.\nThe tables have rows that the database has lost: "
                "drop the tables that it feeds; the next run reads all rows."
            )


def _end_of(source: PostgresSource, old: int, new: int) -> int | None:
    """Where a timeline ends in the history of another; None where that does not come from it."""
    with connect(source, replication="database") as connection:
        row = connection.execute(f"TIMELINE_HISTORY {new}".encode()).fetchone()
    text = row[1] if row else ""
    lines = (text.decode() if isinstance(text, bytes) else str(text)).splitlines()
    for line in lines:
        words = line.split()
        if len(words) > 1 and words[0] == str(old):
            return lsn_number(words[1])
    return None
