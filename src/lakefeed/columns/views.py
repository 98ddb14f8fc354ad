"""Views: how delta-rs says that texts and bytes lie in memory. Arrow chooses no rows of such columns."""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def without_views(rows: Rows) -> Rows:
    """The same rows in columns of the usual kind."""
    plain = [_plain(field.type) for field in rows.schema]
    if all(kind is field.type for kind, field in zip(plain, rows.schema, strict=True)):
        return rows
    schema = pa.schema([field.with_type(kind) for field, kind in zip(rows.schema, plain, strict=True)])
    return rows.cast(schema)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        fields = [field.with_type(_plain(field.type)) for field in kind]
        same = all(one.type is field.type for one, field in zip(fields, kind, strict=True))
        return kind if same else pa.struct(fields)
    if pa.types.is_list(kind):
        inner = _plain(kind.value_type)
        return kind if inner is kind.value_type else pa.list_(kind.value_field.with_type(inner))
    if pa.types.is_map(kind):
        key, item = _plain(kind.key_type), _plain(kind.item_type)
        return kind if (key, item) == (kind.key_type, kind.item_type) else pa.map_(key, item)
    return kind
