"""Columns that can be a key, or an order."""

from __future__ import annotations

import pyarrow as pa

from lakefeed.columns.column_types import type_text
from lakefeed.errors import TableError
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.text import did_you_mean


def key_problem(name: str, kind: pa.DataType) -> str | None:
    """Why a column cannot be part of a key: two numbers that look alike need not be the same float."""
    if pa.types.is_nested(kind) or pa.types.is_floating(kind):
        return f"column {name} is {type_text(kind)}, which cannot be part of a key"
    return None


def sequence_problem(name: str, kind: pa.DataType) -> str | None:
    """Why changes cannot be ordered by a column."""
    if pa.types.is_nested(kind) or pa.types.is_boolean(kind):
        return f"column {name} is {type_text(kind)}, which gives changes no order"
    return None


def check_columns(schema: pa.Schema, rules: KeyRules, path: str) -> None:
    """Raise TableError unless the table has the columns of the rules, in types that they can have."""
    for option, names, problem in (
        ("keys", rules.keys, key_problem),
        ("sequence_by", rules.sequence_by, sequence_problem),
    ):
        for name in names:
            if name not in schema.names:
                hint = did_you_mean(name, schema.names)
                raise TableError(f"{path}: `{option}`: the table has no column {name!r}{hint}")
            if found := problem(name, schema.field(name).type):
                raise TableError(f"{path}: `{option}`: {found}.\nChoose another column, or cast it.")
