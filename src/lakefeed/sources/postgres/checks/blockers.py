"""Transactions of others that Lakefeed waits for: which process, since when, and its query."""

from __future__ import annotations

from typing import Any

from psycopg.rows import namedtuple_row

from lakefeed.figures import readable_seconds
from lakefeed.sources import Finding
from lakefeed.sources.postgres.connection import Connection

_LONGEST_QUERY = 200
_ACTIVITY = """
SELECT pid, usename AS role, application_name AS program, state, query,
       extract(epoch FROM pg_catalog.clock_timestamp() - xact_start)::float8 AS seconds
FROM pg_catalog.pg_stat_activity
"""
_BLOCKING = f"{_ACTIVITY} WHERE pid = ANY (pg_catalog.pg_blocking_pids(%s)) ORDER BY xact_start LIMIT 1"
_PREPARED = """
SELECT p.gid, p.owner, extract(epoch FROM pg_catalog.clock_timestamp() - p.prepared)::float8 AS seconds
FROM pg_catalog.pg_prepared_xacts p
"""
_BLOCKING_PREPARED = f"""{_PREPARED}
JOIN pg_catalog.pg_locks l ON p.transaction = l.transactionid WHERE l.pid = %s AND NOT l.granted
"""
# Of other roles, pg_stat_activity shows no transaction ids.
_OLDEST = """
SELECT pid, transactionid::text FROM pg_catalog.pg_locks
WHERE locktype = 'transactionid' AND granted AND pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
ORDER BY age(transactionid) DESC LIMIT 1
"""
LOCKED_TABLES = """
SELECT l.relation FROM pg_catalog.pg_locks l
WHERE l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock' AND l.pid <> pg_catalog.pg_backend_pid()
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
"""
"""The tables that another transaction has for itself, or waits for: functions of the catalog wait as well."""
_LOCKING = f"""{_ACTIVITY}
WHERE pid <> pg_catalog.pg_backend_pid() AND pid IN (
    SELECT pid FROM pg_catalog.pg_locks
    WHERE granted AND locktype = 'relation' AND relation >= 16384 AND mode LIKE '%%Exclusive%%'
      AND mode <> 'RowExclusiveLock' AND relation = coalesce(%(oid)s::oid, relation)
      AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()))
ORDER BY xact_start LIMIT 1
"""


def blocker_of(connection: Connection, pid: int) -> str:
    """What a server process waits for, as words behind "waits for", with what to do in a second line."""
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        if found := cursor.execute(_BLOCKING.encode(), [pid]).fetchone():
            return _words(found)
        if prepared := cursor.execute(_BLOCKING_PREPARED.encode(), [pid]).fetchone():
            return _prepared_words(prepared)
    return "transactions that began before it"


def oldest_transaction(connection: Connection) -> str:
    """The transaction that has been changing something for longest, in any database; as `blocker_of`."""
    pid, transaction = connection.execute(_OLDEST.encode()).fetchone() or (None, None)
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        if found := cursor.execute(f"{_ACTIVITY} WHERE pid = %s".encode(), [pid]).fetchone():
            return _words(found)
        asked = f"{_PREPARED} WHERE p.transaction::text = %s"
        if prepared := cursor.execute(asked.encode(), [transaction]).fetchone():
            return _prepared_words(prepared)
    return "transactions that were open before"


def lock_holder(connection: Connection, oid: int | None = None) -> str:
    """The longest transaction that keeps others from changing or reading a table; as `blocker_of`."""
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        found = cursor.execute(_LOCKING.encode(), {"oid": oid}).fetchone()
    return _words(found) if found else "a lock of another transaction"


def locked(connection: Connection, stream: str, oid: int) -> Finding:
    """What to say of a table that another transaction has locked."""
    text = f"{stream} is locked by another transaction: it is read when that has ended"
    return Finding("skip", text, f"It waits for {lock_holder(connection, oid)}", stream)


def _words(found: Any) -> str:
    query = " ".join((found.query or "").split())
    if len(query) > _LONGEST_QUERY:
        query = f"{query[:_LONGEST_QUERY]}..."
    # Statistics of other roles are shown to members of pg_read_all_stats only.
    state = found.state or "open"
    program = f", {found.program}" if found.program else ""
    since = f" for {readable_seconds(found.seconds)}" if found.seconds is not None else ""
    return (
        f"the transaction of process {found.pid} ({found.role}{program}), {state}{since}: {query}\n"
        f"To end it: SELECT pg_terminate_backend({found.pid});"
    )


def _prepared_words(found: Any) -> str:
    since = readable_seconds(found.seconds)
    gid = found.gid.replace("'", "''")
    return (
        f"the transaction that {found.owner} prepared {since} ago as '{found.gid}'\n"
        f"To end it: COMMIT PREPARED '{gid}'; or ROLLBACK PREPARED '{gid}';"
    )
