"""`lakefeed table convert`: a directory of Parquet files becomes a Delta table."""

from __future__ import annotations

from typing import Annotated, Any

import pyarrow as pa
import typer

from lakefeed.columns.column_types import column, stored_type, type_text
from lakefeed.commands.table.table_command import PlannedChange, TableCommand, changing_command
from lakefeed.errors import UsageError
from lakefeed.tables.operations import convert as operation


@changing_command(without=("file",))
def convert(
    at: TableCommand,
    partition_by: Annotated[
        str | None,
        typer.Option(
            help='Types of the columns in directory names: "day date, country string". Default: string.'
        ),
    ] = None,
) -> PlannedChange:
    """Turn a directory of Parquet files into a Delta table, in place. No file is rewritten or moved."""
    plan = operation.plan(at.path, at.store, _types(partition_by))
    columns = {field.name: type_text(field.type) for field in [*plan.schema, *plan.partition_by]}
    lines = [
        f"{at.path}: {plan.files} would become a Delta table",
        *(f"  {name}: {kind}" for name, kind in columns.items()),
        f"partitioned by {', '.join(plan.partition_by.names) or 'nothing'}",
    ]
    data = {"files": plan.files, "schema": columns, "partition_by": plan.partition_by.names}

    def apply() -> dict[str, Any]:
        version = operation.run(plan, at.storage, at.commit_info("convert")).version()
        return {"version": version, "told": f"Done: version {version}. {plan.files}."}

    return PlannedChange(lines, data, apply)


def _types(text: str | None) -> dict[str, pa.DataType]:
    found = {}
    for part in (text or "").split(","):
        name, _, kind = part.strip().partition(" ")
        if not name:
            continue
        try:
            found[name] = stored_type(column(name, kind.strip() or "string").type)
        except ValueError as error:
            raise UsageError(f"--partition-by {name}: {error}") from None
    return found
