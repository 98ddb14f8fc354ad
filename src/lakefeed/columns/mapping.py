"""Column mapping: the names and ids that columns have in the files and the log of a table that maps them.

The schema of such a table says both in the metadata of its fields, so the schema that rows are read or
written with is all that a reader or writer needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

MODE = "delta.columnMapping.mode"
HIGHEST_ID = "delta.columnMapping.maxColumnId"
MAPPING = (MODE, HIGHEST_ID)
ID = "delta.columnMapping.id"
PHYSICAL_NAME = "delta.columnMapping.physicalName"
_ID, _PHYSICAL_NAME, _FIELD_ID = ID.encode(), PHYSICAL_NAME.encode(), b"PARQUET:field_id"


def is_mapped(properties: Mapping[str, Any]) -> bool:
    """Whether a table with these properties maps its columns."""
    return str(properties.get(MODE, "none")).lower() != "none"


def physical_name(column: pa.Field) -> str:
    """What files and the log call a column: its own name where the table does not map columns."""
    name: bytes = (column.metadata or {}).get(_PHYSICAL_NAME, column.name.encode())
    return name.decode()


def stored_name(column: pa.Field, there: Mapping[str, pa.Field]) -> str:
    """What a file that has these columns calls a column of its table.

    By the id of the column where a file has no such name, as others may have written it.
    """
    name, number = physical_name(column), (column.metadata or {}).get(_ID)
    if name not in there and number is not None:
        ids = ((one.metadata or {}).get(_FIELD_ID) for one in there.values())
        return next((key for key, one in zip(there, ids, strict=True) if one == number), name)
    return name


def present_names(wanted: pa.Schema, there: pa.Schema) -> list[str]:
    """What a file with the columns `there` calls those of the wanted columns that it has."""
    by_name = {one.name: one for one in there}
    return [name for one in wanted if (name := stored_name(one, by_name)) in by_name]


def physical_schema(columns: pa.Schema) -> pa.Schema:
    """The columns as files have them: under physical names, with their ids, at every level."""
    if not has_mapping(columns):
        return columns
    return pa.schema([_each(column, _physical) for column in columns])


def unmapped(columns: pa.Schema) -> pa.Schema:
    """The columns under their own names alone, for rows that are in no file of the table."""
    if not has_mapping(columns):
        return columns
    return pa.schema([_each(column, _plain) for column in columns], metadata=columns.metadata)


def mapped_as(columns: pa.Schema, table: pa.Schema) -> pa.Schema:
    """The columns with the names and ids that the table has for those of its own."""
    if not has_mapping(table):
        return columns
    known = {one.name: one for one in table}
    return pa.schema([_mapped_as(one, known.get(one.name)) for one in columns])


def mapped_as_in(columns: Iterable[pa.Field], version: Iterable[pa.Field]) -> list[pa.Field]:
    """The columns with the names and ids that they have in another version of their table, at every level.

    A rename keeps the physical name of a column, a rebuild keeps only the name.
    """
    there = list(version)
    by_name, stored = {one.name: one for one in there}, {physical_name(one): one for one in there}
    return [_mapped_as_in(one, stored.get(physical_name(one), by_name.get(one.name))) for one in columns]


def relabelled(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """The rows under other names of columns and fields, which are in the same order. Copies nothing."""
    if rows.schema.equals(columns, check_metadata=True):
        return rows
    batches = [pa.record_batch(_Relabelled(batch, columns)) for batch in rows.to_batches()]
    return pa.Table.from_batches(batches, columns)


@dataclass(frozen=True)
class _Relabelled:
    """A batch that tells another schema through Arrow's C interface."""

    rows: pa.RecordBatch
    columns: pa.Schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self.columns.__arrow_c_schema__(), self.rows.__arrow_c_array__()[1]


def has_mapping(columns: pa.Schema) -> bool:
    """Whether a column, or a field inside of one, has another name in files."""
    # A struct may be of a mapped table while the column around it is not.
    return any(_is_mapped(column) for column in columns)


def _is_mapped(column: pa.Field) -> bool:
    if _PHYSICAL_NAME in (column.metadata or {}):
        return True
    kind = column.type
    return pa.types.is_nested(kind) and any(_is_mapped(kind.field(at)) for at in range(kind.num_fields))


def _mapped_as(column: pa.Field, own: pa.Field | None) -> pa.Field:
    if own is None:
        return column
    told = {key: value for key, value in (own.metadata or {}).items() if key in (_ID, _PHYSICAL_NAME)}
    kind = own.type if own.type == column.type else column.type
    return column.with_type(kind).with_metadata({**(column.metadata or {}), **told} or None)


def _mapped_as_in(column: pa.Field, own: pa.Field | None) -> pa.Field:
    # A column that is not there has no file, whatever column has its id by then.
    told = {_PHYSICAL_NAME: physical_name(column if own is None else own).encode()}
    if own is not None and _ID in (own.metadata or {}):
        told[_ID] = own.metadata[_ID]
    kept = {key: value for key, value in (column.metadata or {}).items() if key not in (_ID, _PHYSICAL_NAME)}
    kind = column.type if own is None else _type_as_in(column.type, own.type)
    return column.with_type(kind).with_metadata({**kept, **told})


def _type_as_in(kind: pa.DataType, own: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind) and pa.types.is_struct(own):
        return pa.struct(mapped_as_in(kind, own))
    if pa.types.is_list(kind) and pa.types.is_list(own):
        return pa.list_(kind.value_field.with_type(_type_as_in(kind.value_type, own.value_type)))
    if pa.types.is_map(kind) and pa.types.is_map(own):
        return pa.map_(kind.key_type, kind.item_field.with_type(_type_as_in(kind.item_type, own.item_type)))
    return kind


def _physical(column: pa.Field) -> pa.Field:
    number = (column.metadata or {}).get(_ID)
    return column.with_name(physical_name(column)).with_metadata({_FIELD_ID: number} if number else None)


def _plain(column: pa.Field) -> pa.Field:
    kept = {key: value for key, value in (column.metadata or {}).items() if key not in (_ID, _PHYSICAL_NAME)}
    return column.with_metadata(kept or None)


def _each(column: pa.Field, made: Callable[[pa.Field], pa.Field]) -> pa.Field:
    """The column after a change of its own, and of each field of the structs inside."""
    return made(column.with_type(_type(column.type, made)))


def _type(kind: pa.DataType, made: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_each(one, made) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_type(kind.value_type, made)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_type(kind.item_type, made)))
    return kind
