"""`lakefeed table convert`: a directory of Parquet files becomes a Delta table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakefeed.commands.table.options import At, DryRun, Json, Reason, Storage, Yes

if TYPE_CHECKING:
    import pyarrow as pa


def convert(
    path: At,
    partition_by: Annotated[
        str | None,
        typer.Option(
            help='Types of the columns in directory names: "day date, country string". Default: string.'
        ),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    reason: Reason = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Turn a directory of Parquet files into a Delta table, in place. No file is rewritten or moved."""
    from lakefeed.columns.column_types import type_text
    from lakefeed.commands.output import command_account
    from lakefeed.commands.table.table_command import Told, command, plain
    from lakefeed.files.statistics import footer_statistics
    from lakefeed.tables.operations import convert as conversion

    with command(path, None, storage, as_json) as at:
        plan = conversion.plan(at.path, at.store, _types(partition_by), footer_statistics)
        columns = {field.name: type_text(field.type) for field in [*plan.schema, *plan.partition_by]}
        lines = [
            f"{at.path}: {plan.files} would become a Delta table",
            *(f"  {name}: {kind}" for name, kind in columns.items()),
            f"partitioned by {', '.join(plan.partition_by.names) or 'nothing'}",
        ]
        data = {"files": plain(plan.files), "schema": columns, "partition_by": plan.partition_by.names}
        commit_info = command_account("convert", reason)

        def run() -> dict[str, Any]:
            version = conversion.run(plan, at.storage, commit_info).version()
            return {"version": version, "told": f"Done: version {version}. {plan.files}."}

        at.settle(Told(lines, data), yes, dry_run, run)


def _types(text: str | None) -> dict[str, pa.DataType]:
    from lakefeed.columns.column_types import column, stored_type
    from lakefeed.errors import UsageError

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
