"""Fields that have another name in the table than in the events."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lakefeed.rows import Rows, StepResult


def as_in_events(columns: pa.Schema, rename: Mapping[str, str]) -> pa.Schema:
    """The columns of a table under the names that events have for them; `rename` is from old to new."""
    old = {new: old for old, new in rename.items()}
    return pa.schema([field.with_name(old.get(field.name, field.name)) for field in columns])


def as_in_table(columns: pa.Schema, rename: Mapping[str, str]) -> pa.Schema:
    """The fields of events under the names that the table has for them."""
    return pa.schema([field.with_name(rename.get(field.name, field.name)) for field in columns])


class Rename:
    """Gives columns the names that the table has for them."""

    def __init__(self, rename: Mapping[str, str]) -> None:
        self._rename = rename

    def __call__(self, rows: Rows) -> StepResult:
        """The same columns under other names."""
        return StepResult(
            rows.of(rows.batch.rename_columns(as_in_table(rows.batch.schema, self._rename).names))
        )
