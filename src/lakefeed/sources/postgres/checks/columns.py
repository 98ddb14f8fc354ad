"""Columns of a table that its copy lacks, or has under another name."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Any

from lakefeed.sources import Finding
from lakefeed.sources.postgres.checks.blockers import LOCKED_TABLES
from lakefeed.sources.postgres.connection import Connection, quoted
from lakefeed.sources.postgres.replication.publication import GENERATED_SINCE, Published
from lakefeed.sources.postgres.values.column_names import event_name, name_problem, other_names
from lakefeed.text import listed

_COLUMNS = f"""
SELECT n.nspname || '.' || c.relname, array_agg(a.attname::text ORDER BY a.attnum),
       array_agg(a.attgenerated::text ORDER BY a.attnum),
       array_agg(pg_catalog.format_type(a.atttypid, a.atttypmod) || ' AS '
                 || coalesce(pg_catalog.pg_get_expr(d.adbin, d.adrelid), '') ORDER BY a.attnum)
FROM pg_catalog.pg_attribute a
     JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
     JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     LEFT JOIN pg_catalog.pg_attrdef d
       ON a.attgenerated <> '' AND d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p')
  AND n.nspname || '.' || c.relname = ANY (%s) AND c.oid NOT IN ({LOCKED_TABLES})
GROUP BY 1
"""


def column_findings(
    connection: Connection,
    publication: str,
    published: dict[str, Published],
    streams: list[str],
    *,
    rows_only: bool,
) -> Iterator[Finding]:
    """Generated columns that never arrive, names that a Delta table cannot have, and names that clash."""
    rows: Any = connection.execute(_COLUMNS.encode(), [streams])
    for stream, names, kinds, expressions in rows:
        known = published.get(stream)
        if not (rows_only and known is None):
            generated = zip(names, kinds, expressions, strict=True)
            columns = {name: (kind, text) for name, kind, text in generated if kind}
            yield from _generated(connection, publication, stream, columns, known)
        sent = [name for name in names if known is None or known.has(name)]
        if problem := name_problem(stream, sent):
            text, _, remedy = problem.partition("\n")
            yield Finding("warn", text.removesuffix("."), remedy, stream)
        elif other_names(sent):
            renamed = listed(f"`{name}` is {event_name(name)}" for name in other_names(sent))
            text = f"columns of {stream} have another name in events, and in tables without `names: keep`: "
            yield Finding("ok", text + renamed, stream=stream)


def _generated(
    connection: Connection,
    publication: str,
    stream: str,
    columns: dict[str, tuple[str, str]],
    published: Published | None,
) -> Iterator[Finding]:
    """Generated columns that the server does not send, and how to have them all the same."""
    version = connection.info.server_version
    sends = version >= GENERATED_SINCE
    listed_columns = published.columns if published else None
    lacking = [
        name
        for name, (kind, _) in columns.items()
        if not sends or kind != "s" or (listed_columns is not None and name not in listed_columns)
    ]
    if not lacking:
        return
    if sends and all(columns[name][0] == "s" for name in lacking):
        text = f"the publication {publication} leaves out the generated columns {listed(lacking)} of {stream}"
        remedy = (
            f"ALTER PUBLICATION {quoted(publication)} SET (publish_generated_columns = stored); -- and have "
            f"old rows read anew: lakefeed snapshot FILE --source NAME --stream {quote(stream)} --yes"
        )
        yield Finding("warn", f"{text}: its copy does not have them", remedy, stream)
        return
    why = "virtual columns are never sent" if sends else f"PostgreSQL {version // 10000} does not send them"
    text = f"{stream} has generated columns, and {why}: its copy does not have {listed(lacking)}"
    # Not as an item to copy: Spark takes some of these for something else, such as numeric for decimal(10,0).
    items = "; ".join(f"{event_name(name)} is {columns[name][1]}" for name in lacking)
    remedy = f"Compute them with `select`, in Spark SQL. In the database, {items}"
    yield Finding("warn", text, remedy, stream)
