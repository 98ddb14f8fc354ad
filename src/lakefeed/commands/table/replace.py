"""`lakefeed table replace`: rows that meet a condition give way to others, or the layout to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakefeed.commands.table.options import At, DryRun, File, Json, Reason, Storage, Yes

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from lakefeed.commands.table.table_command import TableCommand, Told
    from lakefeed.reprocess.retype import Misfits
    from lakefeed.tables.operations.operation import Report
    from lakefeed.tables.table import LakeTable


def replace(
    path: At,
    where: Annotated[
        str | None, typer.Option(help="A SQL condition; rows for which it is true are removed.")
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", help="A Delta table or Parquet files with the new rows.")
    ] = None,
    partition_by: Annotated[
        str | None,
        typer.Option(help="New partition columns, or day(column) as in a pipeline file; '' for none."),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="Give a column another type: 'total double'."),
    ] = None,
    or_null: Annotated[
        bool, typer.Option("--or-null", help="With --column: a value that does not fit becomes null.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    reason: Reason = None,
    file: File = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Replace rows, the partitioning or the types of columns."""
    from lakefeed.commands.table.table_command import command
    from lakefeed.errors import UsageError

    rows = where is not None and from_ is not None and partition_by is None
    layout = partition_by is not None and where is None and from_ is None
    types = bool(column) and not layout and where is None and from_ is None
    if rows + layout + types != 1 or (column and not types) or (or_null and not types):
        raise UsageError("replace takes either --where and --from, or --partition-by, or --column.")
    with command(path, file, storage, as_json) as at:
        table = at.table()
        if types:
            told, run = _types(at, table, column or [], or_null, reason)
        elif layout:
            told, run = _layout(at, table, partition_by or "", reason)
        else:
            told, run = _rows(at, table, where or "", from_ or "", reason)
        at.settle(told, yes, dry_run, run)


def _rows(
    at: TableCommand, table: LakeTable, where: str, source: str, reason: str | None
) -> tuple[Told, Callable[[], Report]]:
    from lakefeed.commands.output import command_account
    from lakefeed.commands.table.table_command import Told, plain
    from lakefeed.tables.operations import replace as replacement
    from lakefeed.text import counted

    plan = replacement.plan(table, where, replacement.Rows.at(source, at.storage))
    lines = [
        f"{at.path}, version {plan.version}: {plan.table}",
        f"{counted(plan.removed_rows, 'row')} would be removed from at most {plan.touched}",
        f"{counted(plan.source.count, 'row')} of {source} would be added",
    ]
    data = {
        "version": plan.version,
        "table": plain(plan.table),
        "removed_rows": plan.removed_rows,
        "added_rows": plan.source.count,
        "touched": plain(plan.touched),
    }
    commit_info = command_account("replace", reason)
    return Told(lines, data), lambda: replacement.run(table, plan, commit_info)


def _layout(
    at: TableCommand, table: LakeTable, text: str, reason: str | None
) -> tuple[Told, Callable[[], Report]]:
    import pyarrow as pa

    from lakefeed.commands.output import command_account
    from lakefeed.commands.table.table_command import Told, plain
    from lakefeed.errors import UsageError
    from lakefeed.pipeline.options.partition_by import parse_partition_field, partition_problems
    from lakefeed.rows.partition import add_partition_columns
    from lakefeed.tables.operations import repartition as layout

    try:
        fields = [parse_partition_field(part) for part in _parts(text)]
    except ValueError as error:
        raise UsageError(f"--partition-by: {error}") from None
    for at_field, problem in partition_problems(fields, table.schema):
        raise UsageError(f"--partition-by {fields[at_field].text}: {problem}")
    derived = [field for field in fields if field.derived and field.name not in table.schema.names]
    added = pa.schema([(one.name, one.arrow_type(table.schema.field(one.column).type)) for one in derived])
    plan = layout.plan(table, [field.name for field in fields], added)
    lines = [
        f"{at.path}, version {plan.version}: {plan.table}",
        f"partitioned by {_listed(plan.was)}, would be partitioned by {_listed(plan.partition_by)}",
        "Every row is written again in one commit. Streaming readers of the table get all rows again.",
    ]
    if table.transactions:
        lines.append(
            "Stop the pipeline first, and give its file the same `partition_by` before it runs again."
        )
    data = {
        "version": plan.version,
        "table": plain(plan.table),
        "partition_by": list(plan.partition_by),
        "was": list(plan.was),
        "added_columns": added.names,
    }
    nothing = "Nothing to do: the table is already partitioned like this." if plan.nothing else None
    commit_info = command_account("replace", reason)
    return Told(lines, data, nothing), lambda: layout.run(
        table, plan, commit_info, lambda rows: add_partition_columns(rows, derived)
    )


def _types(
    at: TableCommand, table: LakeTable, texts: list[str], or_null: bool, reason: str | None
) -> tuple[Told, Callable[[], Report]]:
    from lakefeed.columns.column_types import column_text
    from lakefeed.commands.output import command_account
    from lakefeed.commands.table.table_command import Told, plain
    from lakefeed.errors import UsageError
    from lakefeed.reprocess import retype
    from lakefeed.text import counted

    columns = {}
    for text in texts:
        name, kind = _name_and_type(text.strip(), table.schema.names)
        if not kind:
            raise UsageError(f"--column {text!r}: expected a name and a type, such as 'total double'")
        if name in columns:
            raise UsageError(f"--column: {name!r} is given twice")
        columns[name] = kind
    plan = retype.plan(table, columns)
    lines = [f"{at.path}, version {plan.layout.version}: {plan.layout.table}"]
    for one in plan.declared:
        lines.append(f"column {one.name} is {plan.was[one.name]}, would be {column_text(one)}")
    for name, lost in plan.misfits.items():
        values = counted(lost.count, "value")
        lines.append(f"  {values} of {name} would become null, such as {lost.example[:80]}")
        _refuse_misfits(at, plan.declared.field(name), lost, or_null)
    lines.append(
        "Every row is written again in one commit. Streaming readers of the table get all rows again."
    )
    if table.transactions:
        lines.append("Stop the pipeline first, and correct `schema` in its file before it runs again.")
    data = {
        "version": plan.layout.version,
        "table": plain(plan.layout.table),
        "columns": {one.name: column_text(one) for one in plan.declared},
        "was": plan.was,
        "misfits": {name: one.count for name, one in plan.misfits.items()},
    }
    nothing = "Nothing to do: the columns have these types already." if plan.nothing else None
    commit_info = command_account("replace", reason)
    return Told(lines, data, nothing), lambda: retype.run(table, plan, commit_info)


def _refuse_misfits(at: TableCommand, column: pa.Field, lost: Misfits, or_null: bool) -> None:
    from shlex import quote

    from lakefeed.columns.column_types import type_text
    from lakefeed.errors import TableError
    from lakefeed.text import counted

    name = column.name
    if lost.nulls:
        spelled = name if name.isidentifier() else f'"{name}"'
        remedy = f"lakefeed table delete {quote(at.path)} --where {quote(f'{spelled} is null')}"
        values = f"{counted(lost.nulls, 'value')} of {name} {'is' if lost.nulls == 1 else 'are'} null"
        raise TableError(
            f"{at.path}: {values}, so it cannot be not null.\n"
            f"Nothing was changed. Take these rows out with `{remedy}`, or leave out `not null`."
        )
    if lost.count and not (or_null and column.nullable):
        more = ", choose json, or add --or-null" if column.nullable else " or choose json: it is not null"
        raise TableError(
            f"{at.path}: {counted(lost.count, 'value')} of {name} cannot become {type_text(column.type)}, "
            f"such as {lost.example[:80]}.\n"
            f"Nothing was changed. Take these rows out with `lakefeed table delete`{more}."
        )


def _name_and_type(text: str, names: list[str]) -> tuple[str, str]:
    """The parts of `total double`; the name of a column may have blanks too."""
    known = [name for name in names if text.startswith(f"{name} ")]
    name = max(known, key=len, default=text.partition(" ")[0])
    return name, text.removeprefix(name).strip()


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"


def _parts(text: str) -> list[str]:
    """The entries of a list, at commas that are in no parentheses and in no quotes."""
    import re

    found = re.findall(r"(?:[^,('\"]|\([^)]*\)|'[^']*'|\"[^\"]*\")+", text)
    return [part.strip() for part in found if part.strip()]
