"""Types as the catalog of a Postgres database describes them, with everything that they are made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lakefeed.sources.postgres.connection import Connection, one_row

_TYPES = """
SELECT t.oid::bigint, t.typname, t.typtype::text, x.extname, coalesce(e.oid, 0)::bigint,
       t.typbasetype::bigint, t.typtypmod, t.typndims, t.typrelid::bigint
FROM pg_catalog.pg_type t
LEFT JOIN pg_catalog.pg_type e ON e.typarray = t.oid
LEFT JOIN pg_catalog.pg_depend d
  ON d.classid = 'pg_catalog.pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e'
LEFT JOIN pg_catalog.pg_extension x ON x.oid = d.refobjid
WHERE t.oid = ANY(%s)
"""
_FIELDS = """
SELECT attrelid::bigint, attname, atttypid::bigint, atttypmod, attndims, attnum
FROM pg_catalog.pg_attribute
WHERE attrelid = ANY(%s) AND attnum > 0 AND NOT attisdropped
ORDER BY attrelid, attnum
"""
_DIMENSIONS = "SELECT attname, attndims FROM pg_catalog.pg_attribute WHERE attrelid = %s AND attndims > 0"
_FIRST_OF_USERS = 16384
"""Smaller oids belong to types that come with the server."""
_MONEY_SCALE = "SELECT pg_catalog.scale(1::money::numeric)"


@dataclass(frozen=True)
class PostgresType:
    """A type by its name in the catalog, and the types that it is made of."""

    name: str
    kind: str = "b"
    """`typtype`: b a base type, c composite, d a domain, e an enum, r a range, m a multirange, p pseudo."""
    extension: str | None = None
    """The extension that brought the type, such as `hstore`."""
    is_built_in: bool = True
    element: PostgresType | None = None
    """Of an array: the type of its elements."""
    base: PostgresColumn | None = None
    """Of a domain: what it is a domain of."""
    fields: tuple[PostgresColumn, ...] = ()
    """Of a composite type: its attributes, in order."""
    only_grew: bool = True
    """Of a composite type: whether none was ever dropped, so that values from before lack the last ones."""
    scale: int = 0
    """Of money: how many digits the locale of the database has after the point."""


@dataclass(frozen=True)
class PostgresColumn:
    """A column of a table, an attribute of a composite type, or what a domain stands for."""

    name: str
    type: PostgresType
    typmod: int = -1
    """What the declaration says in parentheses, as the catalog holds it; -1 for nothing."""
    dimensions: int = 0
    """With how many dimensions an array is declared, `attndims`: Postgres itself does not look at it."""


UNKNOWN = PostgresType("unknown", is_built_in=False)
"""A type that is not in the catalog (any more)."""


class TypeCatalog:
    """Knows the types of a database by their oid, and asks the catalog for each of them once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rows: dict[int, tuple[Any, ...]] = {}
        self._attributes: dict[int, list[tuple[Any, ...]]] = {}
        self._types: dict[int, PostgresType] = {}

    def load(self, oids: Iterable[int]) -> None:
        """Ask for all of these types, and for what they are made of, in few statements."""
        wanted = {oid for oid in oids if oid not in self._rows}
        while wanted:
            found = self._connection.execute(_TYPES, [sorted(wanted)]).fetchall()
            # One that has been dropped meanwhile: asked for once.
            self._rows.update(dict.fromkeys(wanted, ()))
            self._rows.update({row[0]: row for row in found})
            relations = [row[8] for row in found if row[8] and row[2] == "c"]
            fields = self._connection.execute(_FIELDS, [relations]).fetchall() if relations else []
            for field in fields:
                self._attributes.setdefault(field[0], []).append(field)
            parts = {row[4] for row in found} | {row[5] for row in found} | {field[2] for field in fields}
            wanted = parts - self._rows.keys() - {0}

    def type_of(self, oid: int) -> PostgresType:
        """The type; `UNKNOWN` where the catalog has none with this oid."""
        if oid not in self._types:
            self.load([oid])
            self._types[oid] = self._type(oid)
        return self._types[oid]

    def dimensions(self, relation: int) -> dict[str, int]:
        """With how many dimensions the arrays of a table are declared, by column: the stream does not say."""
        return dict(self._connection.execute(_DIMENSIONS, [relation]).fetchall())

    def _type(self, oid: int) -> PostgresType:
        if not self._rows[oid]:
            return UNKNOWN
        _, name, kind, extension, element, base, typmod, dimensions, relation = self._rows[oid]
        attributes = self._attributes.get(relation, ())
        return PostgresType(
            name=name,
            kind=kind,
            extension=extension,
            is_built_in=oid < _FIRST_OF_USERS,
            element=self.type_of(element) if element else None,
            base=PostgresColumn(name, self.type_of(base), typmod, dimensions) if kind == "d" else None,
            fields=tuple(
                PostgresColumn(attribute, self.type_of(of), own, own_dimensions)
                for _, attribute, of, own, own_dimensions, _ in attributes
            ),
            only_grew=not attributes or attributes[-1][5] == len(attributes),
            scale=int(one_row(self._connection, _MONEY_SCALE)[0]) if name == "money" else 0,
        )
