"""The columns that a query makes, and those that its table has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from lakefeed.columns.column_types import column, stored, type_text
from lakefeed.columns.names import column_name_problem
from lakefeed.columns.widening import widen, wider
from lakefeed.errors import TableError
from lakefeed.handles import widening
from lakefeed.handles.growth import refuse_too_wide
from lakefeed.handles.handle import TableHandle
from lakefeed.tables.schema import additions, missing_columns


def made_columns(table: str, columns: Iterable[tuple[str, str]]) -> pa.Schema:
    """The columns of a query's result, given as Spark writes their types, all nullable.

    Raises TableError for what no table can have.
    """
    seen: set[str] = set()
    found = []
    for name, kind in columns:
        if problem := column_name_problem(name):
            raise TableError(
                f"table {table}: the query has a column '{name}', and {problem}.\n"
                "Give it a name in the query: AS name."
            )
        if name.casefold() in seen:
            raise TableError(
                f"table {table}: the query has two columns '{name}'.\n"
                "Give one of them another name in the query: AS name."
            )
        seen.add(name.casefold())
        try:
            found.append(column(name, kind).with_nullable(True))
        except ValueError as error:
            raise TableError(
                f"table {table}: the query's column {name} cannot be stored: {error}.\nUse CAST in the query."
            ) from error
    return stored(pa.schema(found))


def conform(handle: TableHandle, made: pa.Schema, commit_info: Mapping[str, Any]) -> list[str]:
    """Create the table for a query's columns, or give it those that it lacks, by the rules of `evolve`.

    Returns what was changed, in words. Raises TableError where a column has another type.
    """
    if not handle.exists:
        handle.create(made, {}, {**commit_info, "kind": "create"})
        return ["created"]
    texts: list[str] = []
    if wide := wider_columns(handle, made):
        widening.widen(handle, wide, commit_info, texts.append)
    lacking = lacking_columns(handle, made)
    if not lacking:
        return texts
    before = handle.table.schema
    added = handle.add(pa.schema(lacking), {**commit_info, "kind": "evolve"})
    return [*texts, *additions(before, added)]


def wider_columns(handle: TableHandle, made: pa.Schema) -> list[pa.Field]:
    """The columns that a query makes wider than its table has them, as those of its inputs are wider now."""
    assert handle.spec is not None
    if handle.spec.evolve.type_change != "widen":
        return []
    have = {one.name: one.type for one in handle.table.schema}
    own = [one for one in _widened(made, handle.table.schema) if one.name in have]
    return [one for one in own if type_text(wider(have[one.name], one)) != type_text(have[one.name])]


def lacking_columns(handle: TableHandle, made: pa.Schema) -> list[pa.Field]:
    """The columns of a query that its table is to get. Raises TableError where it cannot, or may not."""
    assert handle.spec is not None
    table = handle.table
    rule = handle.spec.evolve.new_column
    made = _widened(made, table.schema)
    try:
        lacking = missing_columns(table.schema, made)
    except TableError as error:
        raise TableError(
            f"table {handle.name}: {str(error).splitlines()[0].replace('pipeline file', 'query')}\n"
            f"Use CAST in the query; or `lakefeed table drop` {handle.path}: it is computed anew."
        ) from error
    if not lacking or rule == "ignore":
        return []
    if rule == "fail":
        columns = ", ".join(f"{each.name} {type_text(each.type)}" for each in lacking)
        raise TableError(
            f"table {handle.name}: the query has new columns and `evolve.new_column` is fail: {columns}.\n"
            "Leave them out of the query, or choose another rule."
        )
    refuse_too_wide(handle, handle.columns(), pa.schema(lacking))
    return lacking


def _widened(made: pa.Schema, have: pa.Schema) -> pa.Schema:
    """The columns with the types of the table where these hold every value of the query's."""
    known = {each.name: each for each in have}
    return pa.schema(
        [
            each.with_type(known[each.name].type)
            if each.name in known and widen(each.type, known[each.name].type) == known[each.name].type
            else each
            for each in made
        ]
    )
