"""Defaults that Postgres stores beside a table: what rows have in a column that was added after them."""

from __future__ import annotations

import pyarrow as pa

from lakefeed.sources.postgres.connection import Connection
from lakefeed.sources.postgres.replication.publication import Published, published_of
from lakefeed.sources.postgres.values.casts import cast
from lakefeed.sources.postgres.values.type_catalog import PostgresColumn, TypeCatalog

_MISSING = """
SELECT attname, atttypid::bigint, atttypmod, (attmissingval::text::text[])[1] FROM pg_catalog.pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND atthasmissing AND attndims = 0
"""
_COLUMNS = """
SELECT attname, atthasmissing FROM pg_catalog.pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
"""


def stored_defaults(connection: Connection, publication: str, stream: str, oid: int) -> dict[str, pa.Scalar]:
    """The value of each column that was added with a default, as a column of Arrow holds it.

    A table that was written anew since (VACUUM FULL) has none any more, and arrays are left out.
    """
    types, found = TypeCatalog(connection), {}
    published = published_of(connection, publication).get(stream, Published())
    for name, kind, typmod, text in connection.execute(_MISSING, [oid]).fetchall():
        if published.columns is None or name in published.columns:
            column = PostgresColumn(name, types.type_of(kind), typmod)
            values, _ = cast(pa.array([text], pa.string()), column)
            if values[0].is_valid:
                found[name] = values[0]
    return found


def columns_of(connection: Connection, oid: int) -> dict[str, bool]:
    """The names of the columns of a table, and which of them have a stored default."""
    return dict(connection.execute(_COLUMNS, [oid]).fetchall())
