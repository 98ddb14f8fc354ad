"""What keeps tables of a database from going into one Delta table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import pyarrow as pa

from lakefeed.columns.change_columns import WHOLE_ROW, no_key, other_keys
from lakefeed.columns.column_types import type_text
from lakefeed.columns.widening import widen
from lakefeed.pipeline.options.changes import key_problem
from lakefeed.sources.postgres.connection import Connection
from lakefeed.sources.postgres.relations import TableInfo
from lakefeed.sources.postgres.snapshot.rows import no_events, relation_of
from lakefeed.sources.postgres.values.column_names import event_name
from lakefeed.sources.postgres.values.table_columns import TableColumns
from lakefeed.sources.postgres.values.type_catalog import TypeCatalog
from lakefeed.text import listed


def key_problems(
    connection: Connection,
    tables: Mapping[str, TableInfo],
    keys: Sequence[str],
    declared: Collection[str] = (),
    *,
    whole: Collection[str] = (),
) -> dict[str, str]:
    """Keys of the file that are not the key of a table, and tables without a key that Delta can have.

    `declared` are columns whose type the file says, `whole` streams whose rows have generated columns too.
    """
    found: dict[str, str] = {}
    for stream, table in tables.items():
        given, own = {*map(event_name, keys)}, {*map(event_name, table.keys)}
        if tuple(keys) == WHOLE_ROW:
            if table.identity != "f" and stream not in whole:
                found[stream] = (
                    f"changes of {stream} do not have the whole row as it was, and `keys: all` needs that.\n"
                    f"ALTER TABLE {table.sql_name} REPLICA IDENTITY FULL; or remove `keys`."
                )
        elif not table.keys:
            found[stream] = no_key(stream)
        elif table.identity == "f" and not table.has_key and table.has_any_key and stream not in whole:
            found[stream] = (
                f"the primary key of {stream} is DEFERRABLE: inside of a transaction two rows may have one "
                "key, and nothing says which of them a change is of.\nGive it a table of its own with "
                "`mode: upsert` and `keys: all`; or use `mode: append`."
            )
        elif stream not in whole and (computed := _computed_keys(connection, table)):
            found[stream] = (
                f"the key of {stream} has {listed(computed)}, which the server computes and does not send.\n"
                f"ALTER TABLE {table.sql_name} REPLICA IDENTITY USING INDEX an index over other columns; or "
                "use `mode: append`."
            )
        elif given and given != own:
            fields = relation_of(connection, stream, table.oid, None).fields
            if given <= {event_name(field.name) for field in fields}:
                found[stream] = other_keys(keys, stream, table.keys)
        elif table.has_odd_key and (problem := _type_problem_of_key(connection, table, declared)):
            found[stream] = problem
    return found


def _computed_keys(connection: Connection, table: TableInfo) -> list[str]:
    """Generated columns of the key that changes do not have."""
    if not {f"{name} generated" for name in table.keys}.intersection(name for _, name in table.columns):
        return []
    sent = {field.name for field in relation_of(connection, table.stream, table.oid, None).fields}
    # Nothing is sent of a table that was dropped since it was looked at.
    return [name for name in table.keys if name not in sent] if sent else []


def _type_problem_of_key(connection: Connection, table: TableInfo, declared: Collection[str]) -> str | None:
    """Why the key has a type that tells no rows of a Delta table apart; None where it tells them."""
    relation = relation_of(connection, table.stream, table.oid, table.keys)
    columns = no_events(TableColumns(TypeCatalog(connection)), relation, ()).columns
    assert columns is not None
    # None of them is there where the table was dropped since it was looked at.
    for name in {*map(event_name, table.keys)}.intersection(columns.schema.names):
        if name not in declared and (problem := key_problem(columns.schema.field(name).type)):
            return (
                f"column {name} of the key of {table.stream}: {problem}.\n"
                f"Give {table.stream} another key; or use `mode: append`."
            )
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
