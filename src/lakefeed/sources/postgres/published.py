"""What a publication has of its tables: some columns, some rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakefeed.sources.postgres.connection import Connection

_FILTERS = "SELECT {} FROM pg_catalog.pg_publication_tables WHERE pubname = %s"


@dataclass(frozen=True)
class Published:
    """What a publication has of a table."""

    columns: tuple[str, ...] | None = None
    filter: str | None = None


def published_of(connection: Connection, publication: str) -> dict[str, Published]:
    """What a publication has of its tables, by stream."""
    known = "attnames::text[], rowfilter" if connection.info.server_version >= 150000 else "NULL, NULL"
    rows: Any = connection.execute(
        _FILTERS.format(f"schemaname || '.' || tablename, {known}").encode(), [publication]
    )
    return {
        stream: Published(tuple(columns) if columns else None, condition)
        for stream, columns, condition in rows
    }
