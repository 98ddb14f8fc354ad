"""What keeps tables of a database from going into one Delta table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from lakefeed.columns.change_columns import no_key, other_keys
from lakefeed.columns.column_types import type_text
from lakefeed.columns.widening import widen
from lakefeed.sources.postgres.connection import Connection
from lakefeed.sources.postgres.relations import TableInfo
from lakefeed.sources.postgres.snapshot.rows import no_events, relation_of
from lakefeed.sources.postgres.values.table_columns import TableColumns
from lakefeed.sources.postgres.values.type_catalog import TypeCatalog


def key_problem(connection: Connection, tables: Mapping[str, TableInfo], keys: Sequence[str]) -> str | None:
    """A key of the file that is not the key of a table, or a table that has none."""
    for stream, table in tables.items():
        if set(keys or table.keys) != set(table.keys):
            names = {field.name for field in relation_of(connection, stream, table.oid, None).fields}
            if table.keys and set(keys) <= names:
                return other_keys(keys, stream, table.keys)
        if not table.keys:
            return no_key(stream)
    return None


def type_problem(
    connection: Connection, tables: Mapping[str, TableInfo], table_of: Callable[[str], str | None]
) -> str | None:
    """A column that two tables have with types that no column holds both of, and that go into one table."""
    together: dict[str | None, dict[str, TableInfo]] = {}
    for stream, table in tables.items():
        together.setdefault(table_of(stream), {})[stream] = table
    found = (_problem_of_one(connection, one) for one in together.values() if len(one) > 1)
    return next(filter(None, found), None)


def _problem_of_one(connection: Connection, tables: Mapping[str, TableInfo]) -> str | None:
    casts = TableColumns(TypeCatalog(connection))
    seen: dict[str, tuple[str, pa.DataType]] = {}
    for stream, table in tables.items():
        columns = no_events(casts, relation_of(connection, stream, table.oid, None), ()).columns
        assert columns is not None
        for column in columns.schema:
            other, kind = seen.setdefault(column.name, (stream, column.type))
            if not column.type.equals(kind) and pa.types.is_string(widen(column.type, kind)):
                return (
                    f"column {column.name} is {type_text(kind)} in {other} and {type_text(column.type)} in "
                    f"{stream}, and a table has one type for a name, as has a route with SQL or with other "
                    "columns than `_stream`.\n"
                    f"Give {stream} a table of its own with `streams: {stream}`, and name in `streams` here "
                    "those that go together."
                )
    return None
