"""How far a snapshot is: rows that were copied, about how many there are, and when it will be done."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg

from lakefeed.events import Offsets, SnapshotProgress
from lakefeed.sources.postgres.connection import Connection, one_row, quoted
from lakefeed.sources.postgres.positions import ALL_ROWS, is_rows, stream_of
from lakefeed.sources.postgres.relations import TableInfo
from lakefeed.sources.postgres.snapshot.chunk import key_at
from lakefeed.sources.postgres.snapshot.chunk_key import HASHES

_LOCK_MILLISECONDS = 200


def estimated(table: TableInfo) -> int:
    """About how many rows a table has; of one that was never analyzed, by its size."""
    return max(1, table.rows or table.blocks * 50)


def bounds(connection: Connection, table: TableInfo) -> tuple[int | None, int | None]:
    """The lowest and the highest key of a table whose key is an integer; None where it has no row."""
    name, of = quoted(table.keys[0]), quoted(table.schema, table.name)
    only = "" if table.is_partitioned else "ONLY "
    first, last = one_row(connection, f"SELECT min({name}), max({name}) FROM {only}{of}")
    return first, last


@dataclass
class Progress:
    """Knows how far into the keys of each table a position is. Used by several threads, which only read."""

    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The lowest and the highest key by stream, of tables whose key is an integer."""
    _began: tuple[float, int] | None = None

    def look(self, connection: Connection, table: TableInfo) -> None:
        """Ask once for the keys of a table that is read in chunks."""
        if table.chunks is None or table.chunks.is_hashed or table.stream in self.bounds:
            return
        # Only a guess depends on it, and the table may be locked, or be gone.
        with suppress(psycopg.errors.LockNotAvailable, psycopg.ProgrammingError), connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = {_LOCK_MILLISECONDS}".encode())
            first, last = bounds(connection, table)
            self.bounds[table.stream] = (first or 0, last or 0)

    def left(self, table: TableInfo, at: int) -> int:
        """About how many rows of a table wait behind a position; at least one before the end."""
        if at >= ALL_ROWS:
            return 0
        return max(1, round(estimated(table) * (1 - self._share(table, at))))

    def copied(self, tables: Mapping[str, TableInfo], position: Offsets) -> SnapshotProgress | None:
        """How far the snapshots that are not done are, together; None where there are none."""
        at = {one: offset for one, offset in position.items() if is_rows(one) and stream_of(one) in tables}
        if all(offset >= ALL_ROWS for offset in at.values()):
            self._began = None
            return None
        total = sum(estimated(tables[stream_of(name)]) for name in at)
        done = total - sum(self.left(tables[stream_of(name)], offset) for name, offset in at.items())
        now = time.monotonic()
        if self._began is None:
            self._began = (now, done)
        began, before = self._began
        rate = (done - before) / (now - began) if now > began else 0.0
        return SnapshotProgress(done, total, (total - done) / rate if rate > 0 else None)

    def _share(self, table: TableInfo, at: int) -> float:
        """The share of a table that lies before a position inside of its snapshot."""
        key = key_at(at)
        if key is None or table.chunks is None:
            return 0.0
        if table.chunks.is_hashed:
            return key / HASHES
        first, last = self.bounds.get(table.stream, (key, key))
        return min(1.0, max(0.0, (key - first) / (last - first + 1)))
