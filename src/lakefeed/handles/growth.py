"""Columns that events have and that a table does not get."""

from __future__ import annotations

import pyarrow as pa

from lakefeed.columns.column_types import type_text
from lakefeed.errors import TableError
from lakefeed.handles.handle import TableHandle

_MOST_COLUMNS = 2_000


def refuse_new_columns(handle: TableHandle, proposal: pa.Schema) -> None:
    """Raise TableError where the rule for new columns is to stop."""
    if handle.spec and handle.spec.evolve.new_column == "fail":
        columns = ", ".join(f"{field.name} {type_text(field.type)}" for field in proposal)
        raise TableError(
            f"table {handle.name}: events have new columns and `evolve.new_column` is fail: {columns}.\n"
            "Add them to `schema`, name them in `drop`, or choose another rule, then start again."
        )


def refuse_too_wide(table: str, columns: pa.Schema | None, proposal: pa.Schema) -> None:
    """Raise TableError when events would make thousands of columns: then their keys are data."""
    wide = sum(map(_leaves, columns or ())) + sum(map(_leaves, proposal))
    if wide > _MOST_COLUMNS:
        names = ", ".join(proposal.names[:3])
        raise TableError(
            f"table {table}: events have {len(proposal)} new columns ({names}, ...), {wide:,} in all; "
            f"at most {_MOST_COLUMNS:,} are added automatically.\n"
            "Declare `schema`, with a map where keys are data."
        )


def _leaves(field: pa.Field) -> int:
    return sum(map(_leaves, field.type)) if pa.types.is_struct(field.type) else 1
