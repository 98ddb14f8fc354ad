"""The replication slot of a source: made, looked at, moved on."""

from __future__ import annotations

import logging
import select
import threading
import time
from contextlib import closing
from dataclasses import dataclass

import psycopg
from psycopg import pq, sql

from lakefeed.errors import LakefeedError, SourceError, SourceUnavailable
from lakefeed.sources.postgres.checks.blockers import blocker_of
from lakefeed.sources.postgres.connection import Connection, connect, one_row, postgres_errors
from lakefeed.sources.postgres.positions import lsn_number, lsn_text
from lakefeed.sources.postgres.source import PostgresSource

_log = logging.getLogger("lakefeed")
_SLOT = """
SELECT confirmed_flush_lsn::text, restart_lsn::text, coalesce(wal_status, ''), plugin, database,
       safe_wal_size, active_pid
FROM pg_catalog.pg_replication_slots WHERE slot_name = %s
"""
_FAILOVER_SLOTS = 17_00_00
"""The version of the server from which on slots may outlive it."""
_NOTICES_CLOSED = 14_00_00
"""The version from which on a server may end the statement of a client that has gone."""
_MAKING_SECONDS = 3.0
"""How long a start waits for a slot before it says what the server waits for."""


@dataclass(frozen=True)
class Slot:
    """A replication slot as the server shows it."""

    confirmed: int
    """Changes committed before this LSN may be gone."""
    restart: int
    status: str
    """`lost` where the server has removed WAL that it needs."""
    headroom: int | None
    """Bytes of WAL until the server may give it up; None where there is no limit."""


def slot_named(connection: Connection, name: str) -> Slot | None:
    """The slot of that name; None where there is none. Raises SourceError where it is of another kind.

    SourceUnavailable says what the server waits for while it still makes the slot.
    """
    row = connection.execute(_SLOT, [name]).fetchone()
    if row is None:
        return None
    confirmed, restart, status, plugin, database, headroom, maker = row
    if plugin != "pgoutput" or database != connection.info.dbname:
        raise SourceError(
            f"the replication slot {name} is of the plugin {plugin} and the database {database}; Lakefeed "
            f"needs one of pgoutput in {connection.info.dbname}.\nName another with `slot`, or remove it: "
            f"SELECT pg_drop_replication_slot('{name}');"
        )
    if confirmed is None and maker is not None:
        raise SourceUnavailable(
            f"the server is still making the replication slot {name}: it waits for "
            f"{blocker_of(connection, maker)}"
        )
    lost = status == "lost" or restart is None
    return Slot(
        lsn_number(confirmed or "0/0"), lsn_number(restart or "0/0"), "lost" if lost else status, headroom
    )


def make_slot(source: PostgresSource, connection: Connection, name: str) -> Slot:
    """Make the slot, also instead of one that is lost.

    The server makes it when no transaction is open any more that began before. SourceUnavailable says which
    one it waits for; the server goes on, whether or not this process does, and a later call finds the slot.
    """
    known = slot_named(connection, name)
    if known is not None and known.status == "lost":
        connection.execute("SELECT pg_catalog.pg_drop_replication_slot(%s)", [name])
    # A standby that synchronises slots then has it as well. One that a standby makes is its own.
    failover = ", failover => NOT pg_catalog.pg_is_in_recovery()"
    version = connection.info.server_version
    make = sql.SQL("SELECT pg_catalog.pg_create_logical_replication_slot({}, 'pgoutput'{})").format(
        sql.Literal(name), sql.SQL(failover if version >= _FAILOVER_SLOTS else "")
    )
    # A connection of its own, so that leaving it does not end the statement.
    with closing(connect(source)) as making:
        if version >= _NOTICES_CLOSED:
            making.execute("SET client_connection_check_interval = 0")
        _execute_for(making, make.as_bytes(making), _MAKING_SECONDS)
    found = slot_named(connection, name)
    if found is None:
        raise SourceUnavailable(f"the server does not make the replication slot {name} yet")
    return found


def _execute_for(connection: Connection, statement: bytes, seconds: float) -> None:
    """Run a statement, and wait for it so many seconds at most; the server does not end it then."""
    pgconn, until = connection.pgconn, time.monotonic() + seconds
    readable = select.poll()
    readable.register(pgconn.socket, select.POLLIN)
    pgconn.send_query(statement)
    while pgconn.flush():
        pass
    while pgconn.is_busy():
        left = until - time.monotonic()
        if left <= 0:
            return
        readable.poll(left * 1000)
        pgconn.consume_input()
    while (result := pgconn.get_result()) is not None:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            error = psycopg.errors.error_from_result(result)
            if not isinstance(error, psycopg.errors.DuplicateObject):
                raise error


class Acknowledger:
    """Moves the slot on beside the stream, in a thread of its own: never waits for it, and never raises."""

    def __init__(self, source: PostgresSource, whose: str, slot: str) -> None:
        self._source, self._whose, self._slot = source, whose, slot
        self._wanted = self._done = 0
        self._seen = False
        self._fences: list[tuple[int, int]] = []
        """LSNs, each with an id that is beyond all transactions which were committed before it."""
        self._news = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._warned = False

    def move(self, lsn: int, *, seen: bool = False) -> None:
        """Let the server forget what was committed before; with `seen`, what every snapshot sees by now."""
        with self._news:
            if lsn <= self._wanted and seen >= self._seen:
                return
            if self._seen and not seen:
                # What was held back may go now.
                self._done = 0
            self._wanted, self._seen = lsn, seen
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="postgres-slot", daemon=True)
                self._thread.start()
            self._news.notify_all()

    def close(self) -> None:
        """Give the last position a moment to arrive."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        if self._thread:
            self._thread.join(3.0)

    def _run(self) -> None:
        while True:
            with self._news:
                while not self._closed and self._wanted <= self._done:
                    self._news.wait()
                if self._wanted <= self._done:
                    return
                lsn, closing = self._wanted, self._closed
            if not self._advance(lsn):
                if closing:
                    return
                with self._news:
                    self._news.wait(0.2)

    def _seen_by_all(self, connection: Connection, lsn: int) -> int:
        """How far every transaction that was committed is one that new snapshots see."""
        (own,) = one_row(connection, "SELECT pg_catalog.pg_current_xact_id()::text")
        self._fences.append((lsn, int(own)))
        (seen,) = one_row(connection, "SELECT pg_catalog.pg_current_snapshot()::text")
        oldest = int(seen.partition(":")[0])
        passed = [one for one, fence in self._fences if fence <= oldest]
        self._fences = [(one, fence) for one, fence in self._fences if fence > oldest]
        return max(passed, default=0)

    def _advance(self, lsn: int) -> bool:
        """One try; a task that reads the slot has it for itself."""
        try:
            with postgres_errors(self._source), connect(self._source) as connection:
                at = slot_named(connection, self._slot)
                to = self._seen_by_all(connection, lsn) if self._seen else lsn
                if at is not None and at.confirmed < to:
                    connection.execute(
                        "SELECT pg_catalog.pg_replication_slot_advance(%s, %s)", [self._slot, lsn_text(to)]
                    )
            self._done = lsn
            return True
        except LakefeedError as error:
            if not (error.retryable or self._warned):
                self._warned = True
                _log.warning(
                    "source %s: the slot %s could not be moved on: %s. Its tables are not affected, but the "
                    "server keeps WAL until it is.",
                    self._whose,
                    self._slot,
                    error,
                )
            return False
