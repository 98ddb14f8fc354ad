"""What the catalog says of tables: which there are, what identifies their rows, how large they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from lakefeed.sources.postgres.connection import Connection
from lakefeed.sources.postgres.snapshot.chunk_key import ChunkKey

_TABLES = """
SELECT n.nspname, c.relname, c.oid, c.relkind, c.relreplident, stored.rows, stored.blocks,
       coalesce((SELECT array_agg(a.attname ORDER BY array_position(i.indkey::int2[], a.attnum))
                 FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a
                      ON a.attrelid = c.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
                 WHERE i.indrelid = c.oid AND (CASE WHEN c.relreplident = 'i' THEN i.indisreplident
                                                    ELSE i.indisprimary END)), '{}'),
       (SELECT t.typname FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a
               ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
               JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
        WHERE i.indrelid = c.oid AND i.indisprimary),
       coalesce((SELECT r.oid FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication p
                 ON p.oid = r.prpubid WHERE r.prrelid = c.oid AND p.pubname = %(publication)s),
                <by schema>, 0),
       ARRAY(SELECT an.nspname || '.' || ac.relname FROM pg_catalog.pg_partition_ancestors(c.oid) AS up
             JOIN pg_catalog.pg_class ac ON ac.oid = up.relid
             JOIN pg_catalog.pg_namespace an ON an.oid = ac.relnamespace WHERE up.relid <> c.oid),
       stored.storage,
       coalesce((SELECT pg_catalog.hashtext(string_agg(a.attnum || ':' || a.atttypid || ':' || a.atttypmod,
                                                       ',' ORDER BY a.attnum))
                 FROM pg_catalog.pg_attribute a
                 WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), 0)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     CROSS JOIN LATERAL (
         -- A partitioned table has no rows of its own, and nothing but ANALYZE by hand estimates them.
         SELECT coalesce(sum(greatest(l.reltuples, 0)), 0)::bigint AS rows,
                coalesce(sum(pg_catalog.pg_relation_size(l.oid)), 0)::bigint
                / current_setting('block_size')::int AS blocks,
                coalesce(sum(pg_catalog.pg_relation_filenode(l.oid)::bigint), 0)::bigint AS storage
         FROM (SELECT c.oid UNION SELECT relid::oid FROM pg_catalog.pg_partition_tree(c.oid)) AS parts (oid)
              JOIN pg_catalog.pg_class l ON l.oid = parts.oid
         WHERE l.relkind <> 'p') AS stored
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
  AND n.nspname NOT LIKE 'pg\\_%%' AND c.relpersistence = 'p'
ORDER BY 1, 2
"""
_BY_SCHEMA = """(SELECT s.oid FROM pg_catalog.pg_publication_namespace s JOIN pg_catalog.pg_publication p
                 ON p.oid = s.pnpubid WHERE s.pnnspid = c.relnamespace AND p.pubname = %(publication)s)"""
_SCHEMAS_SINCE = 150000
"""The server version that publishes all tables of a schema first."""
_INTEGERS = ("int2", "int4", "int8")


@dataclass(frozen=True)
class TableInfo:
    """A table of the database."""

    schema: str
    name: str
    oid: int
    is_partitioned: bool
    identity: str
    """How changes name their row: `d` by the primary key, `i` by an index, `f` by all columns, `n` not."""
    rows: int
    """An estimate."""
    blocks: int
    keys: tuple[str, ...]
    """The columns of the primary key, or of the index that is the replica identity."""
    key_type: str | None
    """The type of the first column of the primary key."""
    membership: int = 0
    """Which entry of the publication it is: another one after it was taken out and added again."""
    ancestors: tuple[str, ...] = ()
    """The partitioned tables that it is a part of."""
    storage: int = 0
    """Another one after its rows were written anew."""
    types: int = 0
    """Another one after the types of its columns have changed, or columns have come or gone."""

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
    """All tables of users, by stream."""
    found = []
    by_schema = _BY_SCHEMA if connection.info.server_version >= _SCHEMAS_SINCE else "NULL"
    asked = _TABLES.replace("<by schema>", by_schema).encode()
    for row in connection.execute(asked, {"publication": publication}):
        schema, name, oid, kind, identity, rows, blocks, keys, key_type, member, above, *made = row
        key = (tuple(keys), key_type, member, tuple(above))
        found.append(TableInfo(schema, name, oid, kind == "p", identity, rows, blocks, *key, *made))
    return {one.stream: one for one in found}


def matching(tables: Mapping[str, Sequence[str]], patterns: Sequence[str]) -> list[str]:
    """The tables that one of the patterns means; `tables` has the ancestors of each.

    A partition comes under the name of its table, unless only the partition is meant.
    """

    def is_meant(name: str) -> bool:
        return any(fnmatchcase(name, one) for one in patterns)

    return [name for name, above in tables.items() if is_meant(name) and not any(map(is_meant, above))]
