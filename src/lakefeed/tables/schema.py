"""Schema changes of a table: what to add, what does not fit, and the one commit that changes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from shlex import quote

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import CommitFailedError

from lakefeed.columns.column_types import DEEPEST, JSON, depth, meant, meant_text, type_text
from lakefeed.columns.mapping import unmapped
from lakefeed.errors import Conflict, TableError
from lakefeed.tables.allow_vectors import add_mapped_columns, set_properties
from lakefeed.tables.table import LakeTable, commit_properties, only_known
from lakefeed.text import yaml_mapping

_ALTER_ATTEMPTS = 10


class OtherType(TableError):
    """A column of the table is of another type than the pipeline file says."""

    def __init__(self, path: str, have: pa.DataType, want: pa.DataType) -> None:
        super().__init__(
            f"column {path} is {type_text(have)} in the table and {type_text(want)} in the "
            "pipeline file.\nChange `schema`, or choose another path."
        )
        self.path = path
        self.have = have

    def with_remedy(
        self, table: str, location: str, declared: pa.Schema | None, file: str, *, is_mapped: bool
    ) -> TableError:
        """The same with what to run so that the table has the declared type, where that can be done."""
        new = declared.field(self.path).type if declared and self.path in declared.names else None
        # What has fields or elements becomes JSON text, and nothing else.
        if new is None or (pa.types.is_nested(self.have) and new not in (JSON, pa.string())):
            return TableError(f"table {table}: {location}: {self}")
        wanted, have = type_text(new), type_text(self.have)
        if is_mapped:
            # delta-rs writes such a table only in the types that it has.
            return TableError(
                f"table {table}: {location}: column {self.path} is {have} in the table and {wanted} in the "
                f"pipeline file.\nStop the pipeline, then `lakefeed rebuild {file} --table {table} --yes`.\n"
                f"Or declare `{self.path}: {have}`."
            )
        return TableError(
            f"table {table}: {location}: column {self.path} is {have} in the table and {wanted} in the "
            f"pipeline file.\nStop the pipeline, then `lakefeed table replace {quote(location)} --column "
            f"{quote(f'{self.path} {wanted}')} --yes` and `lakefeed dead-letters replay {file} --table "
            f"{table} --yes`.\n"
            f"Or declare `{yaml_mapping({self.path: have})[1:-1]}`."
        )


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
        else:
            inner = _lacking(there, field, path)
            if inner is not None:
                found.append(pa.field(field.name, inner, field.nullable))
    return found


def _lacking(have: pa.Field, want: pa.Field, path: str) -> pa.DataType | None:
    """What a column lacks of another; the error for another type names the types that people wrote."""
    try:
        return _missing_inside(have.type, want.type, path)
    except OtherType as error:
        if error.path != path:
            raise
        raise OtherType(path, meant(have).type, meant(want).type) from None


def _missing_inside(have: pa.DataType, want: pa.DataType, path: str) -> pa.DataType | None:
    """What a type lacks of another, in its shape; None when nothing is missing."""
    if pa.types.is_struct(want) and pa.types.is_struct(have):
        fields = _missing(list(have), list(want), f"{path}.")
        return pa.struct(fields) if fields else None
    if _same(have, want) or (pa.types.is_timestamp(have) and pa.types.is_timestamp(want)):
        return None
    if pa.types.is_list(want) and pa.types.is_list(have):
        inner = _missing_inside(have.value_type, want.value_type, path)
        return pa.list_(pa.field("element", inner)) if inner is not None else None
    if pa.types.is_map(want) and pa.types.is_map(have):
        inner = _missing_inside(have.item_type, want.item_type, path)
        return pa.map_(want.key_type, inner) if inner is not None else None
    raise OtherType(path, have, want)


def additions(have: pa.Schema, added: list[pa.Field]) -> Iterator[str]:
    """What was added to a table that had these columns, in words.

    `new column brand string`, or inside a column that was there `new field meta.ip string`.
    """
    known = {field.name: field.type for field in have}
    for field in added:
        if field.name not in known:
            yield f"new column {field.name} {meant_text(field)}"
        else:
            yield from _additions_inside(known[field.name], field.type, field.name)


def _additions_inside(have: pa.DataType, added: pa.DataType, path: str) -> Iterator[str]:
    if pa.types.is_struct(added):
        known = {field.name: field.type for field in have}
        for field in added:
            inner = f"{path}.{field.name}"
            if field.name in known:
                yield from _additions_inside(known[field.name], field.type, inner)
            else:
                yield f"new field {inner} {meant_text(field)}"
    elif pa.types.is_list(added):
        yield from _additions_inside(have.value_type, added.value_type, path)
    elif pa.types.is_map(added):
        yield from _additions_inside(have.item_type, added.item_type, path)


def _same(have: pa.DataType, want: pa.DataType) -> bool:
    """Equal but for what Delta does not keep: names of list items and map entries."""
    return bool(Schema.from_arrow(pa.schema([("c", have)])) == Schema.from_arrow(pa.schema([("c", want)])))


def add_columns(table: LakeTable, columns: list[pa.Field], commit_info: Mapping[str, object]) -> bool:
    """Add columns, nested ones too, in one commit; False when another writer altered the table first.

    New columns are nullable, since old rows do not have them. Raises TableError for one that readers of the
    table could not bear: there is no way back from such a schema.
    """
    for column in columns:
        if (levels := depth(column.type)) > DEEPEST:
            raise TableError(
                f"table {table.name}: the new column {column.name} is nested {levels} levels deep, readers "
                f"support {DEEPEST}.\nName it in `drop`, or choose another rule in `evolve`."
            )
    added = Schema.from_arrow(unmapped(pa.schema([_nullable(column) for column in columns])))
    if table.shape.is_mapped:
        # delta-rs gives no ids.
        return add_mapped_columns(table, added.to_json(), commit_info)
    fields: list[Field] = list(added.fields)

    def alter(delta: DeltaTable) -> None:
        delta.alter.add_columns(fields, commit_properties=commit_properties({}, commit_info))

    return _altered(table, alter)


def keep_properties(table: LakeTable, wanted: Mapping[str, str], commit_info: Mapping[str, object]) -> None:
    """Set the table properties that the pipeline file gives and the table has otherwise.

    Looks again whenever another writer was faster: it may have set them as well.
    """
    for _ in range(_ALTER_ATTEMPTS):
        have = table.properties
        changed = {key: value for key, value in wanted.items() if have.get(key) != value}
        if not changed or _set_properties(table, changed, commit_info):
            return
    raise Conflict(
        f"table {table.name}: other writers changed {table.path} {_ALTER_ATTEMPTS} times while "
        f"{', '.join(sorted(wanted))} was set."
    )


def _set_properties(table: LakeTable, changed: dict[str, str], commit_info: Mapping[str, object]) -> bool:
    if table.shape.reader > 2:
        # delta-rs would add features to such a table that nobody asked for.
        return set_properties(table, changed, commit_info) is not None

    def alter(delta: DeltaTable) -> None:
        delta.alter.set_table_properties(
            changed,
            raise_if_not_exists=only_known(changed),
            commit_properties=commit_properties({}, commit_info),
        )

    return _altered(table, alter)


def _altered(table: LakeTable, alter: Callable[[DeltaTable], None]) -> bool:
    try:
        table.change(alter)
    except CommitFailedError:
        table.refresh()
        return False
    return True


def _nullable(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(inner) for inner in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_type, _nullable(kind.item_field))
    return pa.field(field.name, kind, nullable=True, metadata=field.metadata)
