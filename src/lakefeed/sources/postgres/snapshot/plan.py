"""The next part of a snapshot, planned on the driver: which rows of which tables, under which snapshot."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import psycopg
from psycopg import sql

from lakefeed.errors import SourceUnavailable
from lakefeed.events import OffsetRange, Offsets
from lakefeed.sources.dense_offsets import task_count
from lakefeed.sources.postgres.connection import Connection, connect, limit_lock_waits, one_row
from lakefeed.sources.postgres.positions import AGAIN, ALL_ROWS, lsn_number, stream_of
from lakefeed.sources.postgres.relations import TableInfo, measured
from lakefeed.sources.postgres.replication.publication import GONE, Published, published_of
from lakefeed.sources.postgres.snapshot.chunk import Chunk, fits, key_at, position_of_key
from lakefeed.sources.postgres.snapshot.chunk_key import HASHES
from lakefeed.sources.postgres.snapshot.progress import bounds, estimated
from lakefeed.sources.postgres.snapshot.rows import Rows
from lakefeed.sources.postgres.source import PostgresSource
from lakefeed.text import first_line

_RANGES_BY_CTID = 140000
"""The server version from which on rows of some blocks are found without reading the others."""
_MOST_SCANS = 16
"""Chunks of a table whose key is hashed: the server reads all of it for each."""
_TASK_OFFSETS = 1 << 40
"""Offsets that each task has for its rows, where no key numbers them."""
_LOCK_MILLISECONDS = 1000
_FLUSH_SECONDS = 30.0
_INSERTED, _FLUSHED = "pg_catalog.pg_current_wal_insert_lsn()", "pg_catalog.pg_current_wal_flush_lsn()"
_SNAPSHOT = """
SELECT pg_catalog.pg_export_snapshot(), pg_catalog.pg_current_snapshot()::text,
       (extract(epoch FROM pg_catalog.statement_timestamp()) * 1000000)::bigint
"""
_WAL_END = f"""
CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn() ELSE {_FLUSHED} END
"""


@dataclass(frozen=True)
class SnapshotPart:
    """Chunks of some tables that are read under one snapshot, which lasts until `close`."""

    connection: Connection
    exported: str
    seen: str
    """What it has seen, as `pg_current_snapshot()` tells it."""
    end: int
    """Where the WAL ended when it was taken: behind every transaction that it has seen."""
    chunks: dict[str, Chunk]
    """By partition of rows."""
    published: Mapping[str, Published]
    taken: int
    """When it was taken, by the clock of the server, in microseconds since 1970."""

    def close(self) -> None:
        """Let the snapshot go."""
        self.connection.close()

    def rows(
        self, span: OffsetRange, table: TableInfo, lsn: int, where: str | None, limit: int | None
    ) -> Rows:
        """What a task reads of a range."""
        known = self.published.get(table.stream, Published())
        conditions = [one for one in (where, known.filter) if one]
        return Rows(
            stream=table.stream,
            oid=table.oid,
            schema=table.schema,
            table=table.name,
            keys=table.keys,
            key=table.chunks,
            first=self.chunks[span.partition].start,
            exported=self.exported,
            lsn=lsn,
            where=" AND ".join(f"({one})" for one in conditions) or None,
            columns=known.columns,
            whole_tree=table.is_partitioned,
            empties=span.start == AGAIN,
            limit=limit,
            taken=self.taken,
        )


def plan_part(
    source: PostgresSource,
    publication: str,
    tables: Mapping[str, TableInfo],
    position: Offsets,
    beyond: int,
    most: int,
    under: SnapshotPart | None = None,
) -> SnapshotPart:
    """Take a snapshot, and as many rows under it as a batch may have: small tables together, or one chunk.

    `position` is where the rows of tables are, `beyond` how far their changes have been read. With `under`,
    the rows are read under that part's snapshot. Tables that begin must have waited: see `Arrivals`. There is
    no chunk of tables that another transaction has for itself.
    """
    follows = source.snapshot != "only"
    connection = under.connection if under else connect(source)
    try:
        if under:
            exported, seen, taken = under.exported, under.seen, under.taken
        else:
            locked, (exported, seen, taken) = export(connection, tables.values())
            tables = {name: table for name, table in tables.items() if name not in locked}
        tables = {stream: measured(connection, table) for stream, table in tables.items()}
        end = flushed_end(source, max(beyond, source.anew_since)) if follows else wal_end(connection)
        chunks: dict[str, Chunk] = {}
        left = most
        readable = (one for one in position if stream_of(one) in tables)
        for partition in sorted(readable, key=lambda one: estimated(tables[stream_of(one)])):
            table = tables[stream_of(partition)]
            rows = estimated(table)
            if chunks and rows > left:
                break
            chunks[partition] = _chunk(connection, table, position[partition], most, seen)
            left -= rows
        published = published_of(connection, publication, [one.oid for one in tables.values()])
        return SnapshotPart(connection, exported, seen, end, chunks, published, taken)
    except BaseException:
        connection.close()
        raise


def export(connection: Connection, tables: Iterable[TableInfo]) -> tuple[set[str], tuple[str, str, int]]:
    """Begin a transaction with a snapshot that others may use: its name, what it has seen, and its time.

    Before it the streams of tables that another transaction has for itself, which are not locked. Raises
    SourceUnavailable for a table that is not what it was when it was looked at.
    """
    connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY")
    connection.execute(f"SET LOCAL lock_timeout = {_LOCK_MILLISECONDS}".encode())
    locked = set()
    # Locked before the snapshot, and for as long as it lasts: a rewritten table is empty to older ones.
    # Not by LOCK TABLE, which a role that may read only some columns may not use.
    for table in tables:
        try:
            with connection.transaction():
                _lock(connection, table)
        except psycopg.errors.LockNotAvailable:
            locked.add(table.stream)
    limit_lock_waits(connection)
    exported, seen, taken = one_row(connection, _SNAPSHOT)
    return locked, (exported, seen, taken)


def _lock(connection: Connection, table: TableInfo) -> None:
    name = sql.Identifier(table.schema, table.name)
    asked = "SELECT %s::pg_catalog.regclass::oid"
    try:
        connection.execute(sql.SQL("SELECT FROM {} LIMIT 0").format(name))
        is_same = one_row(connection, asked, [name.as_string(connection)])[0] == table.oid
    except GONE as error:
        raise SourceUnavailable(f"{table.stream} was dropped while its rows were planned") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise SourceUnavailable(f"{table.stream} may not be read any more: {first_line(error)}") from error
    if not is_same:
        raise SourceUnavailable(f"{table.stream} was recreated while its rows were planned")


def wal_end(connection: Connection) -> int:
    """The end of the WAL that is on disk; on a standby, of what it has replayed."""
    return _lsn(connection, _WAL_END)


def flushed_end(source: PostgresSource, beyond: int) -> int:
    """The end of the WAL, behind a position, once it can be read.

    Behind, so that the slot is read with each chunk, whether anything has happened or not: it may have
    changes that belong to the chunk.
    """
    with connect(source) as connection:
        until = time.monotonic() + _FLUSH_SECONDS
        end = _lsn(connection, _INSERTED)
        while end <= beyond or _lsn(connection, _FLUSHED) < end:
            # Something has to be written for it to be flushed: a message that nobody is sent.
            connection.execute("SELECT pg_catalog.pg_logical_emit_message(true, 'lakefeed', '')")
            if end <= beyond:
                end = _lsn(connection, _INSERTED)
            if time.monotonic() > until:
                raise SourceUnavailable("Postgres has not written its WAL to disk for 30 seconds")
        return end


def _lsn(connection: Connection, expression: str) -> int:
    return lsn_number(one_row(connection, f"SELECT ({expression})::text")[0])


def _chunk(connection: Connection, table: TableInfo, start: int, most: int, seen: str) -> Chunk:
    key = table.chunks
    # Rows that replace others do so in one commit.
    if key is None or start == AGAIN or (start < AGAIN and estimated(table) <= most):
        return Chunk(start, ALL_ROWS, key, seen)
    first = key_at(start)
    if key.is_hashed:
        parts = max(1, min(_MOST_SCANS, -(-estimated(table) // most)))
        last = (first or 0) + -(-HASHES // parts)
        return Chunk(start, position_of_key(last) if last < HASHES else ALL_ROWS, key, seen)
    name = sql.Identifier(key.columns[0])
    since = sql.SQL("") if first is None else sql.SQL("WHERE {} >= {}").format(name, sql.Literal(first))
    found = connection.execute(
        sql.SQL("SELECT {} FROM {}{} {} ORDER BY {} OFFSET {} LIMIT 1").format(
            name,
            sql.SQL("" if table.is_partitioned else "ONLY "),
            sql.Identifier(table.schema, table.name),
            since,
            name,
            sql.Literal(most),
        )
    ).fetchone()
    end = position_of_key(int(found[0])) if found and fits(int(found[0])) else ALL_ROWS
    return Chunk(start, end if end > start else ALL_ROWS, key, seen)


def conditions(
    connection: Connection, chunk: Chunk, table: TableInfo, cores: int
) -> list[tuple[int, str | None]]:
    """What the tasks of a chunk ask for, in SQL, each with the offset that its rows begin at."""
    if chunk.is_part:
        return [(chunk.start, _between(table, key_at(chunk.start), key_at(chunk.end)))]
    count = task_count(estimated(table), cores)
    if count == 1 or table.is_partitioned:
        return [(chunk.start, None)]
    if table.is_numbered:
        return _by_key(connection, table, count)
    if connection.info.server_version < _RANGES_BY_CTID:
        return [(chunk.start, None)]
    edges = [table.blocks * at // count for at in range(count)]
    found = [f"ctid >= '({one},0)' AND ctid < '({two},0)'" for one, two in pairwise(edges)]
    starts = range(0, count * _TASK_OFFSETS, _TASK_OFFSETS)
    return list(zip(starts, [*found, f"ctid >= '({edges[-1]},0)'"], strict=True))


def _by_key(connection: Connection, table: TableInfo, count: int) -> list[tuple[int, str | None]]:
    """As many ranges of keys of the same width."""
    first, last = bounds(connection, table)
    if first is None or last is None or last - first < count or not (fits(first) and fits(last)):
        return [(0, None)]
    edges = [None, *(first + (last - first) * at // count for at in range(1, count)), None]
    starts = [0, *(position_of_key(one) for one in edges[1:-1] if one is not None)]
    return [
        (start, _between(table, one, two)) for start, (one, two) in zip(starts, pairwise(edges), strict=True)
    ]


def _between(table: TableInfo, first: int | None, last: int | None) -> str | None:
    assert table.chunks is not None
    name = table.chunks.expression()
    parts = [f"{name} >= {first}"] if first is not None else []
    parts += [f"{name} < {last}"] if last is not None else []
    return " AND ".join(parts) or None
