"""Values that rows get when their table gets a column: a database gives them to old rows and tells nobody.

What is to be filled in is kept as a property of the table until it is done. So a run that is killed between
the new column and its values finishes that before it reads anything: no row with an own value comes between.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

from lakefeed.tables.operations.operation import CommitInfo, change
from lakefeed.tables.schema import keep_properties
from lakefeed.tables.table import LakeTable

PROPERTY = "lakefeed.default."
"""Begins the name of the property that holds what a column is to be filled with, in SQL; empty when done."""
_NAMES = {
    "float": "Float32",
    "double": "Float64",
    "date32[day]": "Date32",
    "string": "Utf8",
    "bool": "Boolean",
}


def literal(value: pa.Scalar) -> str | None:
    """A value as SQL of DataFusion; None for a type that has no plain text."""
    kind, text = value.type, str(value.as_py())
    if pa.types.is_timestamp(kind):
        zone = f'Some("{kind.tz}")' if kind.tz else "None"
        return f"arrow_cast('{value.as_py().isoformat()}', 'Timestamp(Microsecond, {zone})')"
    if pa.types.is_decimal128(kind):
        return f"arrow_cast('{text}', 'Decimal128({kind.precision}, {kind.scale})')"
    if pa.types.is_integer(kind) and pa.types.is_signed_integer(kind):
        return f"arrow_cast('{text}', '{str(kind).capitalize()}')"
    if str(kind) in _NAMES:
        quoted = text.replace("'", "''")
        return f"arrow_cast('{quoted}', '{_NAMES[str(kind)]}')"
    return None


def intend(table: LakeTable, values: Mapping[str, str], commit_info: CommitInfo) -> None:
    """Keep what columns are to be filled with, before the table gets them; values are SQL."""
    keep_properties(table, {PROPERTY + name: text for name, text in values.items()}, commit_info)


def fill(table: LakeTable, commit_info: CommitInfo) -> list[str]:
    """Fill what was intended, in one commit; the names of the columns. Rows with a value keep it."""
    wanted = {
        name.removeprefix(PROPERTY): text
        for name, text in table.properties.items()
        if name.startswith(PROPERTY) and text and name.removeprefix(PROPERTY) in table.schema.names
    }
    if not wanted:
        return []
    quoted = {name: '"' + name.replace('"', '""') + '"' for name in wanted}
    updates = {quoted[name]: f"coalesce({quoted[name]}, {text})" for name, text in wanted.items()}
    lacking = " OR ".join(f"{one} IS NULL" for one in quoted.values())

    def update(delta: DeltaTable, properties: CommitProperties) -> None:
        delta.update(updates=updates, predicate=lacking, commit_properties=properties)

    change(table, commit_info, update)
    keep_properties(table, {PROPERTY + name: "" for name in wanted}, commit_info)
    return list(wanted)
