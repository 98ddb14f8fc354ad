"""The publication of a source: made where it is missing, and what it has of its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from lakefeed.errors import SourceError
from lakefeed.sources.postgres.connection import Connection
from lakefeed.sources.postgres.relations import matching, tables_of
from lakefeed.sources.postgres.source import PostgresSource

_PUBLISHED = (
    "SELECT schemaname || '.' || tablename, {} FROM pg_catalog.pg_publication_tables WHERE pubname = %s"
)
_NARROWED_SINCE = 150000
"""The server version whose publications may have some columns or some rows of a table."""


@dataclass(frozen=True)
class Published:
    """What a publication has of a table."""

    columns: tuple[str, ...] | None = None
    filter: str | None = None


def published_of(connection: Connection, publication: str) -> dict[str, Published]:
    """What a publication has of its tables, by stream."""
    is_newer = connection.info.server_version >= _NARROWED_SINCE
    asked = _PUBLISHED.format("attnames::text[], rowfilter" if is_newer else "NULL, NULL")
    rows: Any = connection.execute(asked.encode(), [publication])
    return {
        stream: Published(tuple(columns) if columns else None, condition)
        for stream, columns, condition in rows
    }


def make_publication(connection: Connection, source: PostgresSource, name: str) -> list[str]:
    """Make the publication, or add the tables that it lacks; returns the statements that were run.

    Called when `findings` has seen that there are tables, or a publication that has them.
    """
    there, known = tables_of(connection), published_of(connection, name)
    wanted = matching({stream: one.ancestors for stream, one in there.items()}, source.tables)
    lacking = [one for one in wanted if one not in known]
    if not lacking:
        return []
    asked = "SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = %s"
    exists = connection.execute(asked, [name]).fetchone()
    listed = sql.SQL(", ").join(sql.Identifier(there[one].schema, there[one].name) for one in lacking)
    verb = "ALTER PUBLICATION {} ADD TABLE {}" if exists else "CREATE PUBLICATION {} FOR TABLE {}"
    root = "" if exists else " WITH (publish_via_partition_root = true)"
    statement = sql.SQL(verb + root).format(sql.Identifier(name), listed)
    try:
        connection.execute(statement)
    except psycopg.errors.InsufficientPrivilege as error:
        raise SourceError(
            f"the publication {name} lacks {', '.join(lacking)}, and {connection.info.user} may not change "
            f"that: {str(error).splitlines()[0]}.\nRun as their owner: {statement.as_string(connection)};"
        ) from error
    return [statement.as_string(connection)]
