"""What the catalog of a database says about rights and settings: asked once, in few statements."""

from __future__ import annotations

from typing import Any

from psycopg.rows import namedtuple_row

from lakefeed.sources.postgres.checks.blockers import LOCKED_TABLES
from lakefeed.sources.postgres.checks.unreadable import choose
from lakefeed.sources.postgres.connection import Connection, quoted
from lakefeed.sources.postgres.relations import tables_of
from lakefeed.sources.postgres.replication.publication import publication_state, published_of

LONG_OPEN = "1 minute"
"""From when on an open transaction is worth a word."""

_SERVER = """
SELECT current_setting('server_version_num')::int / 10000 AS version, pg_is_in_recovery() AS is_standby,
       current_user AS role, current_database() AS database, current_setting('server_encoding') AS encoding,
       current_setting('wal_level') AS wal_level,
       (SELECT setting::bigint FROM pg_settings WHERE name = 'max_slot_wal_keep_size') AS keep_mb,
       current_setting('max_replication_slots')::int AS slots,
       current_setting('max_wal_senders')::int AS senders,
       (SELECT count(*) FROM pg_replication_slots) AS slots_used,
       (SELECT count(*) FROM pg_stat_replication) AS senders_used,
       (SELECT rolsuper OR rolreplication FROM pg_roles WHERE rolname = current_user)
         OR EXISTS (SELECT FROM pg_roles WHERE rolname = 'rds_replication' AND pg_has_role(oid, 'MEMBER'))
         AS may_replicate,
       has_database_privilege(current_database(), 'CREATE') AS may_create,
       coalesce(current_setting('idle_session_timeout', true), '0') AS idle_session_timeout,
       coalesce(current_setting('transaction_timeout', true), '0') AS transaction_timeout,
       coalesce(current_setting('old_snapshot_threshold', true), '-1') AS old_snapshot_threshold
"""
_SLOT = """
SELECT plugin, database, slot_type, wal_status FROM pg_replication_slots WHERE slot_name = %s
"""
_IDLE_SLOTS = "SELECT slot_name FROM pg_replication_slots WHERE NOT active ORDER BY 1 LIMIT 3"
_OLDEST_TRANSACTION = """
SELECT pid, extract(epoch FROM now() - xact_start)::bigint AS seconds FROM pg_stat_activity
WHERE backend_xid IS NOT NULL AND xact_start < now() - %s::interval ORDER BY xact_start LIMIT 1
"""
_NARROWED = f"""
SELECT n.nspname || '.' || c.relname AS stream, pg_get_expr(r.prqual, r.prrelid) AS rows,
       (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a
        WHERE a.attrelid = r.prrelid AND a.attnum = ANY (r.prattrs)) AS columns
FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE r.prpubid = %s AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL) AND c.oid NOT IN ({LOCKED_TABLES})
"""


class Examined:
    """The server, the slot, the publication and the tables of one source, as the catalog shows them."""

    def __init__(
        self,
        connection: Connection,
        publication: str,
        slot: str,
        wanted: tuple[str, ...],
        exclude: tuple[str, ...] = (),
        *,
        rows_only: bool = False,
    ) -> None:
        self._connection = connection
        self.publication_name, self.slot_name, self.wanted = publication, slot, wanted
        self.server = self._rows(_SERVER)[0]
        self.slot = next(iter(self._rows(_SLOT, slot)), None)
        self.idle_slots = [row.slot_name for row in self._rows(_IDLE_SLOTS)]
        self.oldest_transaction = next(iter(self._rows(_OLDEST_TRANSACTION, LONG_OPEN)), None)
        self.publication = publication_state(connection, publication)
        self.published = published_of(connection, publication)
        self.narrowed = []
        if self.publication.exists and self.server.version >= 15:
            self.narrowed = self._rows(_NARROWED, self.publication.oid)
        self.everything = tables_of(connection)
        self.chosen = choose(
            self.everything, wanted, exclude, self.published, self.publication, rows_only=rows_only
        )
        self.role = quoted(self.server.role)

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        with self._connection.cursor(row_factory=namedtuple_row) as cursor:
            return cursor.execute(statement.encode(), values or None).fetchall()
