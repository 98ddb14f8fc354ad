"""Defaults that Postgres stores beside a table: what rows have in a column that was added after them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakefeed.sources.postgres.connection import Connection
from lakefeed.sources.postgres.replication.publication import Published, published_of
from lakefeed.sources.postgres.values.casts import cast
from lakefeed.sources.postgres.values.finite import is_finite
from lakefeed.sources.postgres.values.type_catalog import PostgresColumn, TypeCatalog

_MISSING = """
SELECT attname, atttypid::bigint, atttypmod, attndims, (attmissingval::text::text[])[1]
FROM pg_catalog.pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND atthasmissing
"""
_COLUMNS = """
SELECT attname, atthasmissing FROM pg_catalog.pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
"""


def stored_defaults(
    connection: Connection, publication: str, stream: str, oid: int, *, finite: Sequence[str] = ()
) -> dict[str, tuple[pa.Scalar, str]]:
    """The value of each column that was added with a default: as a column of Arrow holds it, and as text.

    A table that was written anew since (VACUUM FULL) has none any more.
    """
    types, found = TypeCatalog(connection), {}
    published = published_of(connection, publication).get(stream, Published())
    for name, kind, typmod, dimensions, text in connection.execute(_MISSING, [oid]).fetchall():
        if published.has(name):
            column = PostgresColumn(name, types.type_of(kind), typmod, dimensions)
            is_own = is_finite(stream, name, (), finite)
            values, _ = cast(pa.array([text], pa.string()), column, finite=is_own)
            if values[0].is_valid:
                found[name] = values[0], text
    return found


def columns_of(connection: Connection, oid: int) -> dict[str, bool]:
    """The names of the columns of a table, and which of them have a stored default."""
    return dict(connection.execute(_COLUMNS, [oid]).fetchall())
