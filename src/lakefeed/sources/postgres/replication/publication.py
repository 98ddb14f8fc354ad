"""The publication of a source: made where it is missing, and what it has of its tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from lakefeed.errors import SourceError
from lakefeed.sources import Finding
from lakefeed.sources.postgres.checks.blockers import locked
from lakefeed.sources.postgres.connection import Connection, one_row, quoted
from lakefeed.sources.postgres.relations import TableInfo
from lakefeed.text import first_line

_PUBLISHED = """
WITH RECURSIVE publication AS (SELECT * FROM pg_catalog.pg_publication WHERE pubname = %(publication)s),
members AS (
    SELECT r.prrelid AS relid, <narrowed> FROM publication p
    JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
    UNION ALL
    SELECT c.oid, NULL, NULL FROM publication p
    JOIN pg_catalog.pg_class c ON p.puballtables OR <by schema>
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.oid >= 16384
),
parts AS (
    SELECT relid AS top, relid FROM members
    UNION
    SELECT p.top, h.inhrelid FROM parts p JOIN pg_catalog.pg_inherits h ON h.inhparent = p.relid
    JOIN pg_catalog.pg_class c ON c.oid = h.inhrelid AND c.relispartition
),
published AS (
    SELECT m.relid, m.attrs, m.qual FROM members m WHERE (SELECT pubviaroot FROM publication)
        AND NOT EXISTS (SELECT FROM parts p WHERE p.relid = m.relid AND p.top <> m.relid)
    UNION ALL
    SELECT p.relid, m.attrs, m.qual FROM parts p
    LEFT JOIN members m ON m.relid = p.relid
    JOIN pg_catalog.pg_class c ON c.oid = p.relid AND c.relkind = 'r'
    WHERE NOT (SELECT pubviaroot FROM publication)
)
SELECT n.nspname || '.' || c.relname, <columns>,
       CASE WHEN o.relid = ANY (%(conditions_of)s::oid[]) THEN pg_catalog.pg_get_expr(o.qual, o.relid) END
FROM (SELECT DISTINCT ON (relid) * FROM published ORDER BY relid, attrs IS NULL, qual IS NULL) AS o
JOIN pg_catalog.pg_class c ON c.oid = o.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
"""
_COLUMNS = """(
    SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = o.relid AND a.attnum > 0 AND NOT a.attisdropped
      AND CASE WHEN o.attrs IS NOT NULL THEN a.attnum = ANY (o.attrs)
               ELSE a.attgenerated = '' OR (a.attgenerated = 's' AND <generated>) END
)"""
_BY_SCHEMA = """
    c.relnamespace IN (SELECT pnnspid FROM pg_catalog.pg_publication_namespace WHERE pnpubid = p.oid)
"""
_STATE = """
SELECT current_user, pg_catalog.has_database_privilege(current_database(), 'CREATE'), p.oid, p.pubviaroot,
       pg_catalog.pg_has_role(p.pubowner, 'USAGE'),
       ARRAY[p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate],
       pg_catalog.obj_description(p.oid, 'pg_publication')
FROM (VALUES (1)) AS one LEFT JOIN pg_catalog.pg_publication p ON p.pubname = %s
"""
_NARROWED_SINCE = 150000
"""The server version whose publications may have some columns or some rows of a table, or whole schemas."""
GONE = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)
"""What the server says of a table that was dropped."""
GENERATED_SINCE = 180000
"""The server version whose publications may have stored generated columns."""


@dataclass(frozen=True)
class Published:
    """What a publication has of a table."""

    columns: tuple[str, ...] | None = None
    filter: str | None = None

    def has(self, column: str) -> bool:
        """Whether it has a column."""
        return self.columns is None or column in self.columns

    def sent(self, table: TableInfo) -> list[str]:
        """The columns of a table that changes have."""
        names = ((name, name.removesuffix(" generated")) for _, name in table.columns)
        return [one for name, one in names if self.has(one) and (one == name or self.columns is not None)]


def published_of(
    connection: Connection, publication: str, conditions_of: Iterable[int] = ()
) -> dict[str, Published]:
    """What a publication has of its tables, by stream.

    By the catalog: the view pg_publication_tables waits for a table that somebody alters. So do the
    conditions of rows, which are read of the tables with these oids alone.
    """
    version = connection.info.server_version
    newer, generated = version >= _NARROWED_SINCE, version >= GENERATED_SINCE
    parts = {
        "<narrowed>": "r.prattrs AS attrs, r.prqual AS qual" if newer else "NULL AS attrs, NULL AS qual",
        "<by schema>": _BY_SCHEMA if newer else "false",
        "<columns>": _COLUMNS if newer else "NULL",
        "<generated>": "(SELECT pubgencols FROM publication) = 's'" if generated else "false",
    }
    asked = _PUBLISHED if newer else _PUBLISHED.replace("pg_catalog.pg_get_expr(o.qual, o.relid)", "o.qual")
    for sign, text in parts.items():
        asked = asked.replace(sign, text)
    values = {"publication": publication, "conditions_of": list(conditions_of)}
    rows: Any = connection.execute(asked.encode(), values)
    return {
        stream: Published(tuple(columns) if columns else None, condition)
        for stream, columns, condition in rows
    }


@dataclass(frozen=True)
class PublicationState:
    """A publication, and what the role that asks may do with it."""

    name: str
    role: str
    may_create: bool
    """Whether the role may create publications in the database."""
    oid: int | None = None
    is_by_root: bool = True
    """Whether changes of a partition come under the name of its table."""
    is_owner: bool = False
    publishes: tuple[bool, ...] = (True, True, True, True)
    """Whether it has insertions, updates, deletions and truncations."""
    comment: str | None = None

    @property
    def exists(self) -> bool:
        """Whether it is there."""
        return self.oid is not None


def publication_state(connection: Connection, name: str) -> PublicationState:
    """Ask for a publication, whether it is there or not."""
    role, may_create, oid, *rest = one_row(connection, _STATE, [name])
    if oid is None:
        return PublicationState(name, role, may_create)
    is_by_root, is_owner, publishes, comment = rest
    return PublicationState(name, role, may_create, oid, is_by_root, is_owner, tuple(publishes), comment)


def published_name(table: TableInfo) -> str:
    """A table as a publication takes it: without the tables that inherit from it, which are others."""
    return f"ONLY {table.sql_name}" if table.children else table.sql_name


def describe(connection: Connection, name: str, comment: str) -> None:
    """Give a publication a comment."""
    statement = sql.SQL("COMMENT ON PUBLICATION {} IS {}")
    connection.execute(statement.format(sql.Identifier(name), sql.Literal(comment)))


def publish(
    connection: Connection, name: str, lacking: Sequence[TableInfo], comment: str, patience: float
) -> tuple[list[str], list[Finding]]:
    """Make the publication, or add tables that it lacks; returns the statements that were run.

    And what keeps tables from being published for now: another owner, or a lock that another transaction has
    for longer than `patience` seconds. A new publication has a comment that says whose it is.
    """
    made: list[str] = []
    skipped: list[Finding] = []
    waiting = [lacking]
    while waiting:
        tables = waiting.pop()
        exists = publication_state(connection, name).exists
        statement = _statement(connection, name, tables, exists=exists)
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {round(patience * 1000)}".encode())
                connection.execute(statement.encode())
                if not exists:
                    describe(connection, name, comment)
            made.append(statement)
            continue
        except psycopg.errors.InsufficientPrivilege as error:
            if not exists:
                raise SourceError(
                    f"the publication {name} lacks {', '.join(one.stream for one in tables)}, and "
                    f"{connection.info.user} may not change that: {first_line(error)}.\n"
                    f"Run as their owner: {statement};"
                ) from error
            why = f"cannot be published: {first_line(error)}", f"{statement}; -- as its owner"
            found = [Finding("skip", f"{one.stream} {why[0]}", why[1], one.stream) for one in tables]
        except psycopg.errors.LockNotAvailable:
            found = [locked(connection, one.stream, one.oid) for one in tables]
        except (*GONE, psycopg.errors.DuplicateObject):
            # Dropped, or added by another process, since it was looked at.
            found = []
        if len(tables) == 1:
            skipped += found
        else:
            # One by one, and before them a publication that locks nothing.
            waiting += [*([one] for one in tables), *([] if exists else [[]])]
    return made, skipped


def _statement(connection: Connection, name: str, tables: Sequence[TableInfo], *, exists: bool) -> str:
    listed = ", ".join(map(published_name, tables))
    if exists:
        return f"ALTER PUBLICATION {quoted(name)} ADD TABLE {listed}"
    stored = connection.info.server_version >= GENERATED_SINCE
    generated = ", publish_generated_columns = stored" if stored else ""
    some = f" FOR TABLE {listed}" if tables else ""
    return f"CREATE PUBLICATION {quoted(name)}{some} WITH (publish_via_partition_root = true{generated})"
