"""What the catalog says of tables: which there are, what identifies their rows, how large they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg.rows import dict_row

from lakefeed.sources.postgres.checks.blockers import LOCKED_TABLES
from lakefeed.sources.postgres.connection import Connection
from lakefeed.sources.postgres.snapshot.chunk_key import ChunkKey
from lakefeed.sources.postgres.source import matches

_KEY = """
coalesce((SELECT array_agg(<what> ORDER BY array_position(i.indkey::int2[], a.attnum))
          FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a
               ON a.attrelid = c.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
          WHERE i.indrelid = c.oid AND (CASE WHEN c.relreplident = 'i' THEN i.indisreplident
                                             ELSE i.indisprimary END)), '{}')
"""
"""The primary key, or the index that is the replica identity, of the table `c`: something of each column."""
_TABLES = """
WITH RECURSIVE below (top, oid) AS (
    SELECT oid, oid FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p')
    UNION
    SELECT b.top, h.inhrelid FROM below b JOIN pg_catalog.pg_inherits h ON h.inhparent = b.oid
),
-- A partitioned table has no rows of its own, and nothing but ANALYZE by hand estimates them.
parts AS (
    SELECT b.top, sum(greatest(l.reltuples, 0))::bigint AS rows, sum(l.relpages)::bigint AS blocks,
           sum(pg_catalog.pg_relation_filenode(l.oid)::bigint)::bigint AS storage,
           array_agg(l.oid::bigint) FILTER (WHERE l.relpages = 0) AS unmeasured,
           array_agg(pg_catalog.format('%%I.%%I', n.nspname, l.relname) ORDER BY n.nspname, l.relname)
               FILTER (WHERE l.relkind = 'r' AND NOT (l.relreplident = 'f' OR EXISTS (
                   SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = l.oid AND i.indisvalid
                   AND CASE l.relreplident WHEN 'd' THEN i.indisprimary AND i.indimmediate
                                           WHEN 'i' THEN i.indisreplident END))) AS nameless
    FROM below b JOIN pg_catalog.pg_class l ON l.oid = b.oid
         JOIN pg_catalog.pg_namespace n ON n.oid = l.relnamespace
    WHERE l.relkind <> 'p' AND (b.oid = b.top OR l.relispartition)
    GROUP BY b.top
),
heirs AS (
    SELECT b.top, array_agg(n.nspname || '.' || l.relname ORDER BY n.nspname, l.relname) AS children
    FROM below b JOIN pg_catalog.pg_class l ON l.oid = b.oid
         JOIN pg_catalog.pg_namespace n ON n.oid = l.relnamespace
    WHERE b.oid <> b.top AND NOT l.relispartition
    GROUP BY b.top
)
SELECT n.nspname AS schema, c.relname AS name, c.oid, c.relkind AS kind, c.relreplident AS identity,
       coalesce(parts.rows, 0) AS rows, coalesce(parts.blocks, 0) AS blocks,
       coalesce(parts.storage, 0) AS storage, coalesce(parts.unmeasured, '{}') AS unmeasured,
       coalesce(parts.nameless, '{}') AS nameless, parts.top IS NOT NULL AS has_parts,
       coalesce(heirs.children, '{}') AS children,
       <key a.attname> AS keys,
       (SELECT t.typname FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a
               ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
               JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
        WHERE i.indrelid = c.oid AND i.indisprimary) AS key_type,
       coalesce((SELECT r.oid FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication p
                 ON p.oid = r.prpubid WHERE r.prrelid = c.oid AND p.pubname = %(publication)s),
                <by schema>, <by all>, 0) AS membership,
       <by all> IS NOT NULL AS is_by_all,
       ARRAY(SELECT an.nspname || '.' || ac.relname FROM pg_catalog.pg_partition_ancestors(c.oid) AS up
             JOIN pg_catalog.pg_class ac ON ac.oid = up.relid
             JOIN pg_catalog.pg_namespace an ON an.oid = ac.relnamespace WHERE up.relid <> c.oid)
           AS ancestors,
       -- With xmin: ALTER TABLE ... TYPE may keep the type (USING total + 1), or change it and then back.
       coalesce((SELECT pg_catalog.hashtext(string_agg(
                            a.attnum || ':' || a.atttypid || ':' || a.atttypmod || ':' || a.xmin,
                            ',' ORDER BY a.attnum))
                 FROM pg_catalog.pg_attribute a
                 WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), 0) AS types,
       ARRAY(SELECT a.attnum || ':' || a.attname
                    || CASE WHEN a.attgenerated <> '' THEN ' generated' ELSE '' END
             FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum)
           AS numbered_columns,
       -- A label keeps its oid, and a field its number, when it gets another name.
       ARRAY(SELECT m.type || ':' || m.name
             FROM (SELECT DISTINCT o.oid, o.typrelid FROM pg_catalog.pg_attribute a
                          JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
                          JOIN pg_catalog.pg_type o ON o.oid IN (t.oid, t.typelem, t.typbasetype)
                   WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND t.oid >= 16384) AS o
                  CROSS JOIN LATERAL (
                      SELECT o.oid AS type, e.oid::bigint AS number, e.enumlabel AS name
                      FROM pg_catalog.pg_enum e WHERE e.enumtypid = o.oid
                      UNION ALL
                      SELECT o.oid, f.attnum, CASE WHEN f.attisdropped THEN '' ELSE f.attname END
                      FROM pg_catalog.pg_attribute f WHERE f.attrelid = o.typrelid AND f.attnum > 0) AS m
             ORDER BY m.type, m.number) AS names,
       c.relpersistence AS persistence,
       EXISTS (SELECT FROM pg_catalog.pg_index i
               WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate) AS has_key,
       EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) AS has_any_key,
       <key a.attnum || ':' || a.atttypid || ':' || a.atttypmod> AS key_types,
       EXISTS (SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a
                      ON a.attrelid = c.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
                      JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
               WHERE i.indrelid = c.oid AND (i.indisprimary OR i.indisreplident)
                     AND (t.typtype NOT IN ('b', 'e') OR t.typcategory = 'A'
                          OR t.typname IN ('float4', 'float8'))) AS has_odd_key,
       coalesce(pg_catalog.has_schema_privilege(n.oid, 'USAGE'), false) AS may_use,
       coalesce(pg_catalog.has_table_privilege(c.oid, 'SELECT')
                OR pg_catalog.has_any_column_privilege(c.oid, 'SELECT'), false) AS may_read,
       CASE WHEN pg_catalog.has_table_privilege(c.oid, 'SELECT') THEN '{}'
            ELSE ARRAY(SELECT a.attname FROM pg_catalog.pg_attribute a
                       WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                             AND NOT pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT')
                       ORDER BY a.attnum) END AS unreadable,
       coalesce(pg_catalog.row_security_active(c.oid), false) AS is_filtered,
       coalesce(pg_catalog.pg_has_role(c.relowner, 'USAGE'), false) AS is_owner,
       pg_catalog.format('%%I.%%I', n.nspname, c.relname) AS sql_name
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     LEFT JOIN parts ON parts.top = c.oid LEFT JOIN heirs ON heirs.top = c.oid
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname <> 'information_schema'
  AND n.nspname NOT LIKE 'pg\\_%%'
ORDER BY n.nspname, c.relname
"""
_BY_SCHEMA = """(SELECT s.oid FROM pg_catalog.pg_publication_namespace s JOIN pg_catalog.pg_publication p
                 ON p.oid = s.pnpubid WHERE s.pnnspid = c.relnamespace AND p.pubname = %(publication)s)"""
_BY_ALL = """(SELECT p.oid FROM pg_catalog.pg_publication p
                 WHERE p.puballtables AND p.pubname = %(publication)s)"""
_SIZES = f"""
SELECT c.oid::bigint, pg_catalog.pg_relation_size(c.oid) / current_setting('block_size')::int
FROM pg_catalog.pg_class c WHERE c.oid = ANY (%s::oid[]) AND c.oid NOT IN ({LOCKED_TABLES})
"""
_LOCK_MILLISECONDS = 200
_SCHEMAS_SINCE = 150000
"""The server version that publishes all tables of a schema first."""
_INTEGERS = ("int2", "int4", "int8")


@dataclass(frozen=True)
class TableInfo:
    """A table, view or foreign table of the database, as the role that asks sees it."""

    schema: str
    name: str
    oid: int
    kind: str
    """`r` a table, `p` a partitioned one, `v` a view, `m` a materialized view, `f` a foreign table."""
    identity: str
    """How changes name their row: `d` by the primary key, `i` by an index, `f` by all columns, `n` not."""
    rows: int
    """An estimate."""
    blocks: int
    keys: tuple[str, ...]
    """The columns of the primary key, or of the index that is the replica identity."""
    key_type: str | None
    """The type of the first column of the primary key."""
    has_odd_key: bool = False
    """Whether a column of a key has a type that a Delta table may not take for one."""
    has_key: bool = True
    """Whether it has a primary key that names rows: not a deferrable one."""
    has_any_key: bool = True
    nameless: tuple[str, ...] = ()
    """The tables that its rows are in, as statements name them, whose changes name no row."""
    has_parts: bool = True
    """Whether there is a table that its rows are in: a partitioned one may have no partition yet."""
    unmeasured: tuple[int, ...] = ()
    """The oids of those that were never analyzed: their size is not among `blocks`."""
    storage: int = 0
    """Another one after its rows were written anew."""
    membership: int = 0
    """Which entry of the publication it is: another one after it was taken out and added again."""
    is_by_all: bool = False
    """Whether the publication has all tables of the database, so that its own oid is the entry."""
    ancestors: tuple[str, ...] = ()
    """The partitioned tables that it is a part of."""
    children: tuple[str, ...] = ()
    """The tables that inherit from it, and from these; its partitions are none."""
    types: int = 0
    """Another one after the types of its columns have changed, or columns have come or gone."""
    numbered_columns: tuple[str, ...] = ()
    """`3:total` for each column."""
    names: tuple[str, ...] = ()
    """`16385:happy` for each label of its enums and field of its composite types, by type and age; a field
    that was dropped has no name."""
    persistence: str = "p"
    """`p` for a table whose changes are in the log, `u` for an unlogged one."""
    may_use: bool = True
    may_read: bool = True
    """Whether the role may read some column of it."""
    unreadable: tuple[str, ...] = ()
    """The columns that it may not read."""
    is_filtered: bool = False
    """Whether row-level security hides rows from the role."""
    is_owner: bool = True
    sql_name: str = ""
    """`public."Odd name"`, as statements name it."""
    key_types: tuple[str, ...] = ()
    """`3:23:-1` for each column of `keys`: its number, its type and the modifier of that."""

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """The number that a column keeps when it is renamed, and its name, with ` generated` where it is."""
        parted = (one.partition(":") for one in self.numbered_columns)
        return tuple((number, column) for number, _, column in parted)

    @property
    def is_partitioned(self) -> bool:
        """Whether its rows are those of its partitions."""
        return self.kind == "p"

    @property
    def is_table(self) -> bool:
        """Whether it has rows that can be published."""
        return self.kind in ("r", "p")

    @property
    def stream(self) -> str:
        """`schema.table`."""
        return f"{self.schema}.{self.name}"

    @property
    def chunks(self) -> ChunkKey | None:
        """How rows are told apart that are read in several batches; None where they are read all at once."""
        if self.key_type in _INTEGERS and self.identity != "i":
            return ChunkKey(self.keys[:1])
        return ChunkKey(self.keys, is_hashed=True) if self.keys else None

    @property
    def is_numbered(self) -> bool:
        """Whether an integer alone tells the rows apart."""
        return len(self.keys) == 1 and self.chunks is not None and not self.chunks.is_hashed


def tables_of(connection: Connection, publication: str = "") -> dict[str, TableInfo]:
    """All tables, views and foreign tables of users, by stream. Temporary ones belong to a session.

    It waits for no lock: an ALTER TABLE may hold one for hours.
    """
    by_schema = _BY_SCHEMA if connection.info.server_version >= _SCHEMAS_SINCE else "NULL"
    asked = _TABLES.replace("<by schema>", by_schema).replace("<by all>", _BY_ALL)
    asked = re.sub("<key (.*)>", lambda found: _KEY.replace("<what>", found[1]), asked)
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(asked.encode(), {"publication": publication}).fetchall()
    found = []
    for row in rows:
        values: Any = {name: tuple(one) if isinstance(one, list) else one for name, one in row.items()}
        found.append(TableInfo(**values))
    sizes = _sizes(connection, [oid for one in found for oid in one.unmeasured])
    return {one.stream: _measured(one, sizes) for one in found}


def measured(connection: Connection, table: TableInfo) -> TableInfo:
    """A table with the size that it has now; the connection has a lock of it."""
    return _measured(table, _sizes(connection, table.unmeasured)) if table.unmeasured else table


def _measured(table: TableInfo, sizes: Mapping[int, int]) -> TableInfo:
    blocks = sum(sizes.get(oid, 0) for oid in table.unmeasured)
    return replace(table, blocks=table.blocks + blocks) if blocks else table


def _sizes(connection: Connection, oids: Sequence[int]) -> dict[int, int]:
    """The blocks of tables, by oid, but of those that another transaction has for itself."""
    if not oids:
        return {}
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = {_LOCK_MILLISECONDS}".encode())
            return dict(connection.execute(_SIZES.encode(), [list(oids)]).fetchall())
    except psycopg.errors.LockNotAvailable:
        # Taken between the two looks; the size is asked for again when the rows are read.
        return {}


def key_of(connection: Connection, oid: int) -> set[str]:
    """The columns by which changes of a table name their row now, but where these are all columns."""
    asked = f"SELECT {_KEY.replace('<what>', 'a.attname')} FROM pg_catalog.pg_class c WHERE c.oid = %s"
    row = connection.execute(asked.encode(), [oid]).fetchone()
    return set(row[0]) if row else set()


def matching(
    tables: Mapping[str, Sequence[str]], patterns: Sequence[str], exclude: Sequence[str] = ()
) -> list[str]:
    """The tables that one of the patterns means; `tables` has the ancestors of each.

    A partition comes under the name of its table, unless only the partition is meant; it is left out with
    its table.
    """

    def is_meant(name: str) -> bool:
        return matches(name, patterns)

    return [
        name
        for name, above in tables.items()
        if is_meant(name)
        and not any(map(is_meant, above))
        and not any(matches(one, exclude) for one in (name, *above))
    ]
