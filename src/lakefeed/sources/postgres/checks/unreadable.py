"""Tables that cannot be read: those that a pattern means are skipped, those that the file names stop a start.

Asked at each look for tables, so a table is read as soon as it can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lakefeed.sources import Finding
from lakefeed.sources.postgres.connection import quoted
from lakefeed.sources.postgres.relations import TableInfo, matching
from lakefeed.sources.postgres.replication.publication import PublicationState, Published, published_name
from lakefeed.sources.postgres.source import is_pattern
from lakefeed.sources.postgres.values.column_names import name_problem
from lakefeed.text import few, listed

_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
_MOST_STATEMENTS = 5
_Found = Callable[[Literal["warn", "fail"], str, str], Finding]


@dataclass(frozen=True)
class Chosen:
    """What a source reads of a database."""

    meant: Mapping[str, TableInfo]
    """The tables that the file means, by stream, those that cannot be read among them."""
    findings: Sequence[Finding]
    """What is wrong with them, `skip` where a pattern means the table."""

    @property
    def left_out(self) -> dict[str, Finding]:
        """The tables that cannot be read, each with the first reason."""
        found: dict[str, Finding] = {}
        for one in self.findings:
            if one.state in ("skip", "fail") and one.stream:
                found.setdefault(one.stream, one)
        return found

    @property
    def readable(self) -> dict[str, TableInfo]:
        """The tables that can be read, once they are published."""
        left_out = self.left_out
        return {stream: table for stream, table in self.meant.items() if stream not in left_out}


def choose(
    there: Mapping[str, TableInfo],
    wanted: Sequence[str],
    exclude: Sequence[str],
    published: Mapping[str, Published],
    publication: PublicationState,
    *,
    rows_only: bool,
) -> Chosen:
    """The tables that `wanted` means, all of the publication where it is empty, and what is wrong with each.

    `rows_only`: changes are not read, so nothing that they need is looked at.
    """
    above = {stream: table.ancestors for stream, table in there.items()}
    meant = {one: there[one] for one in matching(above, wanted or tuple(published), exclude)}
    named = {one for one in wanted if not is_pattern(one)}
    owns_some = any(table.is_table and table.is_owner for table in meant.values())
    found: list[Finding] = []
    for stream, table in meant.items():
        own = list(_of_table(table, publication, published.get(stream), rows_only))
        if stream not in named:
            # Where the file names the table, the Delta table that takes it says so.
            own += _clashing_names(table)
            own += _of_others(table, publication) if owns_some and not rows_only else []
            own = [replace(one, state="skip") if one.state == "fail" else one for one in own]
        found += own
    return Chosen(meant, found)


def _of_table(
    table: TableInfo, publication: PublicationState, published: Published | None, rows_only: bool
) -> Iterator[Finding]:
    def found(state: Literal["warn", "fail"], text: str, remedy: str) -> Finding:
        return Finding(state, f"{table.stream} {text}", remedy, table.stream)

    role = quoted(publication.role)
    if table.kind in _KINDS:
        remedy = "Read it from its own server" if table.kind == "f" else "Name the tables that it reads"
        remedy = f"{remedy}; `exclude` leaves it out."
        yield found("fail", f"is {_KINDS[table.kind]}: it has no changes of its own", remedy)
        return
    if table.persistence != "p":
        yield found(
            "fail", "is unlogged: its changes are not in the log", f"ALTER TABLE {table.sql_name} SET LOGGED;"
        )
    if not table.may_use:
        remedy = f"GRANT USAGE ON SCHEMA {quoted(table.schema)} TO {role};"
        yield found("fail", f"is in a schema that the role {publication.role} may not use", remedy)
    elif not table.may_read:
        remedy = f"GRANT SELECT ON TABLE {table.sql_name} TO {role};"
        yield found("fail", f"may not be read by the role {publication.role}", remedy)
    elif hidden := [one for one in table.unreadable if published is None or published.has(one)]:
        remedy = f"GRANT SELECT ({', '.join(map(quoted, hidden))}) ON TABLE {table.sql_name} TO {role};"
        yield found(
            "fail", f"has columns that the role {publication.role} may not read: {listed(hidden)}", remedy
        )
    if table.is_filtered:
        remedy = f"ALTER ROLE {role} BYPASSRLS;"
        yield found("fail", f"hides rows from the role {publication.role} by row-level security", remedy)
    if rows_only:
        return
    nameless = list(_identity(table, publication, published is not None, found))
    yield from nameless
    if not (published is not None or nameless or table.persistence != "p"):
        yield from _unpublished(table, publication)


def _clashing_names(table: TableInfo) -> Iterator[Finding]:
    """Two columns that would have one name in a Delta table."""
    names = [name for _, name in table.columns if not name.endswith(" generated")]
    problem = name_problem(table.stream, names)
    if problem:
        text, _, remedy = problem.partition("\n")
        yield Finding("fail", text.removesuffix("."), remedy, table.stream)


def _identity(
    table: TableInfo, publication: PublicationState, is_published: bool, found: _Found
) -> Iterator[Finding]:
    """Changes need something that names their row; the server refuses those of a published table without.

    Of a partitioned table, that is the replica identity of each partition that has rows.
    """
    is_empty = not table.has_parts and table.identity not in ("f", "i") and not table.has_key
    nameless = (table.sql_name,) if is_empty else table.nameless
    if not nameless or (publication.exists and not any(publication.publishes[1:3])):
        return
    what = "has only a DEFERRABLE primary key" if table.has_any_key else "has no primary key"
    what = "has REPLICA IDENTITY NOTHING" if table.identity == "n" else what
    refused = "once it is published, the server refuses every UPDATE and DELETE of it"
    if table.is_partitioned and table.has_parts:
        what = f"has partitions whose changes name no row, {few(nameless)}"
        refused = "once it is published, the server refuses every UPDATE and DELETE of them"
    remedy = _with_identity(table, nameless)
    if not table.has_key:
        remedy += " -- or give it a primary key, which upsert tables need"
    yield found("warn" if is_published else "fail", f"{what}: {refused}", remedy)


def _with_identity(table: TableInfo, nameless: Sequence[str]) -> str:
    """Statements that give tables an identity, those of many partitions in a block."""
    kind = "DEFAULT" if table.has_key else "FULL"
    if len(nameless) <= _MOST_STATEMENTS:
        return " ".join(f"ALTER TABLE {one} REPLICA IDENTITY {kind};" for one in nameless)
    tree = "'" + table.sql_name.replace("'", "''") + "'"
    return (
        f"DO $$ DECLARE part regclass; BEGIN FOR part IN SELECT relid FROM pg_partition_tree({tree}) WHERE "
        f"isleaf LOOP EXECUTE format('ALTER TABLE %s REPLICA IDENTITY {kind}', part); END LOOP; END $$;"
    )


def _of_others(table: TableInfo, publication: PublicationState) -> Iterator[Finding]:
    """A table that the role may not publish, where it makes the publication for those that it may."""
    if not publication.exists and publication.may_create and table.is_table and not table.is_owner:
        text = f"{table.stream} is not owned by the role {publication.role}, which cannot publish it"
        statement = f"ALTER PUBLICATION {quoted(publication.name)} ADD TABLE {published_name(table)};"
        yield Finding("fail", text, f"{statement} -- as a superuser, once it exists", table.stream)


def _unpublished(table: TableInfo, publication: PublicationState) -> Iterator[Finding]:
    """A table that the role may not publish; one that may be published is, at the next look."""
    if not publication.exists or (table.is_owner and publication.is_owner):
        return
    text = f"the publication {publication.name} does not cover {table.stream}"
    remedy = f"ALTER PUBLICATION {quoted(publication.name)} ADD TABLE {published_name(table)};"
    yield Finding("fail", text, remedy, table.stream)
