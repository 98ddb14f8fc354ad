"""Defaults that Postgres stores beside a table: what rows have in a column that was added after them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakefeed.sources.postgres.connection import Connection
from lakefeed.sources.postgres.replication.publication import Published, published_of
from lakefeed.sources.postgres.values.casts import cast
from lakefeed.sources.postgres.values.finite import is_finite
from lakefeed.sources.postgres.values.type_catalog import PostgresColumn, TypeCatalog

_STORED = """
WITH RECURSIVE parts (oid) AS (
    SELECT %s::oid
    UNION
    SELECT i.inhrelid FROM parts JOIN pg_catalog.pg_inherits i ON i.inhparent = parts.oid
           JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid WHERE c.relispartition
)
SELECT a.attname, a.atttypid::bigint, a.atttypmod, a.attndims, stored.text
FROM pg_catalog.pg_attribute a LEFT JOIN (
    SELECT p.attname, min((p.attmissingval::text::text[])[1]) AS text
    FROM parts JOIN pg_catalog.pg_attribute p ON p.attrelid = parts.oid AND p.atthasmissing
    GROUP BY p.attname HAVING count(DISTINCT (p.attmissingval::text::text[])[1]) = 1
) AS stored USING (attname)
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
"""
"""The columns of a table, and what old rows have in them: of a partitioned one the partitions know that."""


def stored_defaults(
    connection: Connection, publication: str, stream: str, oid: int, *, finite: Sequence[str] = ()
) -> dict[str, tuple[pa.Scalar, str]]:
    """The value of each column that was added with a default: as a column of Arrow holds it, and as text.

    A table that was written anew since (VACUUM FULL) has none any more. Where partitions have stored
    different ones, nothing says which row has which.
    """
    types, found = TypeCatalog(connection), {}
    published = published_of(connection, publication).get(stream, Published())
    for name, kind, typmod, dimensions, text in connection.execute(_STORED, [oid, oid]).fetchall():
        if text is not None and published.has(name):
            column = PostgresColumn(name, types.type_of(kind), typmod, dimensions)
            is_own = is_finite(stream, name, (), finite)
            values, _ = cast(pa.array([text], pa.string()), column, finite=is_own)
            if values[0].is_valid:
                found[name] = values[0], text
    return found


def columns_of(connection: Connection, oid: int) -> dict[str, bool]:
    """The names of the columns of a table, and which of them have a stored default."""
    columns = connection.execute(_STORED, [oid, oid]).fetchall()
    return {name: text is not None for name, *_, text in columns}
