"""Which column of a Delta table a column of Postgres becomes: docs/sources/postgres-types.md lists them."""

from __future__ import annotations

import pyarrow as pa

from lakefeed.columns.column_types import TIMESTAMP
from lakefeed.columns.names import clean_column_name
from lakefeed.sources.postgres.values.type_catalog import PostgresColumn, PostgresType

_LARGEST_PRECISION = 38
_MONEY_DIGITS = 19

_PLAIN = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "oid": pa.int64(),
    "xid": pa.int64(),
    "cid": pa.int64(),
    "xid8": pa.decimal128(20, 0),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamptz": TIMESTAMP,
    "bytea": pa.binary(),
}
_OF_EXTENSIONS = {
    ("hstore", "hstore"): pa.map_(pa.string(), pa.string()),
    ("vector", "vector"): pa.list_(pa.field("element", pa.float32())),
    ("vector", "halfvec"): pa.list_(pa.field("element", pa.float32())),
    ("postgis", "geometry"): pa.binary(),
    ("postgis", "geography"): pa.binary(),
}
_TEXTS_OF_EXTENSIONS = frozenset(
    [("citext", "citext"), ("ltree", "ltree"), ("ltree", "lquery"), ("vector", "sparsevec"), ("cube", "cube")]
)


def made(column: PostgresColumn) -> pa.DataType:
    """The type of the column in Arrow, and so in the table; everything that is not known is text."""
    kind = column.type
    if kind.base is not None:
        return made(kind.base)
    if kind.element is not None:
        return pa.list_(pa.field("element", made(element(column)))) if column.dimensions < 2 else pa.string()
    if kind.kind == "c":
        return _struct(kind)
    if kind.extension is not None:
        return _OF_EXTENSIONS.get((kind.extension, kind.name), pa.string())
    if kind.name == "numeric":
        return _numeric(column.typmod)
    if kind.name == "money":
        return pa.decimal128(_MONEY_DIGITS, kind.scale)
    return _PLAIN.get(kind.name, pa.string())


def element(column: PostgresColumn) -> PostgresColumn:
    """What an array holds, as a column: the length or precision of a declaration is that of its elements."""
    assert column.type.element is not None
    return PostgresColumn(column.name, column.type.element, column.typmod)


def notice(column: PostgresColumn) -> str | None:
    """A sentence about a column that comes as text because nothing is known of its type."""
    unknown = _unknown(column)
    if unknown is None:
        return None
    origin = f" of the extension {unknown.extension}" if unknown.extension else ""
    return f"column {column.name}: nothing is known of the type {unknown.name}{origin}; it comes as its text"


def _unknown(column: PostgresColumn) -> PostgresType | None:
    kind = column.type
    if kind.base is not None:
        return _unknown(kind.base)
    if kind.element is not None:
        return _unknown(element(column))
    if kind.kind == "c":
        return next(filter(None, map(_unknown, kind.fields)), None)
    if kind.kind in ("e", "r", "m"):
        return None
    if kind.extension is not None:
        known = {*_OF_EXTENSIONS, *_TEXTS_OF_EXTENSIONS}
        return None if (kind.extension, kind.name) in known else kind
    return None if kind.is_built_in else kind


def _struct(kind: PostgresType) -> pa.DataType:
    """A composite type, or text where its attributes cannot be fields of one struct."""
    names = {clean_column_name(each.name).casefold() for each in kind.fields}
    if not kind.fields or len(names) < len(kind.fields):
        return pa.string()
    return pa.struct([pa.field(clean_column_name(each.name), made(each)) for each in kind.fields])


def _numeric(typmod: int) -> pa.DataType:
    """A decimal with all digits, also of scales that only Postgres has; text where no decimal has so many."""
    if typmod < 0:
        return pa.string()
    precision = ((typmod - 4) >> 16) & 0xFFFF
    # Eleven bits with a sign since Postgres 15, and at most 1000 before.
    scale = (((typmod - 4) & 0x7FF) ^ 1024) - 1024
    digits = max(precision, scale) if scale >= 0 else precision - scale
    return pa.decimal128(digits, max(scale, 0)) if digits <= _LARGEST_PRECISION else pa.string()
