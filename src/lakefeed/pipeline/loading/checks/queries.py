"""Whether the queries of a file read tables that there are, and what else their tables may have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lakefeed.pipeline.loading.outline import Outline, TableOutline
from lakefeed.pipeline.options.query import inputs_in_order, relations, table_of, unknown_table
from lakefeed.pipeline.table import Table

if TYPE_CHECKING:
    from lakefeed.pipeline.secrets import Path

_TAKEN = frozenset(
    {
        *("path", "query", "refresh", "create", "evolve", "partition_by", "sort_by", "cluster_by"),
        *("compression", "target_file_size", "max_rows_per_file", "file_name", "properties"),
        *("commit_retries", "storage", "upkeep"),
    }
)
"""The keys of a table that has a query."""

_KNOWN = frozenset(field.serialization_alias or name for name, field in Table.model_fields.items())

_REASONS = {
    "from": "a table has either `from` or `query`; remove one of them",
    "route": "a query fills one table; use `path`",
    "mode": "each refresh replaces all rows of a table with `query`; remove this",
    "schema": "the query says which columns there are; use CAST in it for other types",
    "select": "the query selects already; say it there",
    "where": "the query filters already; say it there",
    "expect": "rules judge events on their way in; expect it of a table that the query reads",
    "python": "a function shapes events on their way in; name it at a table that the query reads",
    "rename": "the query names its columns; use AS in it",
    "drop": "the query names its columns; leave it out there",
}


def query_problems(outline: Outline) -> Iterator[tuple[Path, str]]:
    """Everything that is wrong with queries, with the path of the key."""
    for name, table in outline.tables.items():
        if "query" not in table.keys:
            if "from" not in table.keys:
                yield ("tables", name, "from"), "required, but missing"
            if "refresh" in table.keys:
                message = "has an effect only with `query`; add that, or remove this"
                yield ("tables", name, "refresh"), message
            continue
        yield from _misfits(name, table)
        yield from _strangers(name, table, outline)
    yield from _circles(outline)


def _misfits(name: str, table: TableOutline) -> Iterator[tuple[Path, str]]:
    for key in sorted(table.keys & _KNOWN - _TAKEN):
        message = _REASONS.get(key, "has no effect on a table with `query`; remove this")
        yield ("tables", name, key), message
    if table.evolve_rules & {"rescue", "dead_letter", "widen"}:
        message = "a query has no events to rescue or to make dead letters of; use add, ignore or fail"
        yield ("tables", name, "evolve"), message
    if any(key[0] == "delete_after" and path[0] == "tables" for key, (_, path) in table.upkeep.given.items()):
        message = "the query decides which rows there are; put the age into its WHERE"
        yield ("tables", name, "upkeep", "delete_after"), message


def _strangers(name: str, table: TableOutline, outline: Outline) -> Iterator[tuple[Path, str]]:
    """Relations that are no tables of the file, or none that a query can read."""
    read = relations(table.query or "")
    if table.query and not read:
        message = "reads no table; a query is run when tables of this file have changed that it reads"
        yield ("tables", name, "query"), message
    for relation in read:
        found = table_of(relation, list(outline.tables))
        path: Path = ("tables", name, "query")
        if found is None:
            yield path, unknown_table(relation, [each for each in outline.tables if each != name])
        elif outline.tables[found].route or "route" in outline.tables[found].keys:
            yield path, f"reads '{found}', which has a `route` and so many tables; it cannot be read as one"


def _circles(outline: Outline) -> Iterator[tuple[Path, str]]:
    try:
        inputs_in_order({name: table.query for name, table in outline.tables.items()})
    except ValueError as error:
        first = str(error).partition(" -> ")[0]
        yield ("tables", first, "query"), f"reads its own result: {error}; a table cannot be made of itself"
