"""Schema changes of a table: what to add, what does not fit, and the one commit that changes it."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import CommitFailedError

from lakefeed.errors import TableError
from lakefeed.pipeline.types import type_text
from lakefeed.tables.table import LakeTable, commit_properties, only_known


def missing_columns(table: pa.Schema, wanted: pa.Schema) -> list[pa.Field]:
    """Columns of `wanted` that the table lacks; structs come back with only their new fields.

    Raises TableError where a column exists in another type: a column's type never changes silently.
    """
    return _missing(list(table), list(wanted), "")


def _missing(have: list[pa.Field], want: list[pa.Field], where: str) -> list[pa.Field]:
    known = {field.name.lower(): field for field in have}
    found = []
    for field in want:
        path = f"{where}{field.name}"
        there = known.get(field.name.lower())
        if there is None:
            found.append(field)
        elif there.name != field.name:
            raise TableError(
                f"column {path} differs from the table's column {there.name} only in case; rename one."
            )
        elif pa.types.is_struct(field.type) and pa.types.is_struct(there.type):
            inner = _missing(list(there.type), list(field.type), f"{path}.")
            if inner:
                found.append(pa.field(field.name, pa.struct(inner), field.nullable))
        elif not _same(there.type, field.type):
            raise TableError(
                f"column {path} is {type_text(there.type)} in the table and {type_text(field.type)} in the "
                "pipeline file.\nChange `schema`, or choose another path."
            )
    return found


def _same(have: pa.DataType, want: pa.DataType) -> bool:
    """Equal but for what Delta does not keep: names of list items and map entries."""
    return bool(Schema.from_arrow(pa.schema([("c", have)])) == Schema.from_arrow(pa.schema([("c", want)])))


def add_columns(table: LakeTable, columns: list[pa.Field], account: Mapping[str, object]) -> bool:
    """Add columns, nested ones too, in one commit; False when another writer altered the table first.

    New columns are nullable, since old rows do not have them.
    """
    fields: list[Field] = list(Schema.from_arrow(pa.schema([_nullable(column) for column in columns])).fields)

    def alter(delta: DeltaTable) -> None:
        delta.alter.add_columns(fields, commit_properties=commit_properties({}, account))

    try:
        table.change(alter)
    except CommitFailedError:
        table.refresh()
        return False
    return True


def keep_properties(table: LakeTable, wanted: Mapping[str, str], account: Mapping[str, object]) -> None:
    """Set the table properties that the pipeline file gives and the table has otherwise."""
    have = table.properties
    changed = {key: value for key, value in wanted.items() if have.get(key) != value}
    if not changed:
        return

    def alter(delta: DeltaTable) -> None:
        delta.alter.set_table_properties(
            changed,
            raise_if_not_exists=only_known(changed),
            commit_properties=commit_properties({}, account),
        )

    table.change(alter)


def _nullable(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(inner) for inner in kind])
    return pa.field(field.name, kind, nullable=True)
