"""`lakefeed table replace`: rows that match a condition, the partitioning, or the types of columns."""

from __future__ import annotations

import re
from shlex import quote
from typing import Annotated

import pyarrow as pa
import typer

from lakefeed.columns.column_types import column_text, type_text
from lakefeed.commands.table.table_command import PlannedChange, TableCommand, changing_command
from lakefeed.errors import TableError, UsageError
from lakefeed.handles import retype
from lakefeed.handles.retype import Misfits
from lakefeed.pipeline.options.partition_by import PartitionField, parse_partition_field, partition_problems
from lakefeed.rows.partition import add_partition_columns
from lakefeed.tables.operations import repartition
from lakefeed.tables.operations import replace as replacement
from lakefeed.text import counted

_ALL_AGAIN = "Every row is written again in one commit. Streaming readers of the table get all rows again."


@changing_command()
def replace(
    at: TableCommand,
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
) -> PlannedChange:
    """Replace rows, the partitioning or the types of columns."""
    given = {
        name
        for name, value in (("where", where), ("from", from_), ("partition_by", partition_by))
        if value is not None
    } | ({"column"} if column else set())
    if given not in ({"where", "from"}, {"partition_by"}, {"column"}) or (or_null and not column):
        raise UsageError("replace takes either --where and --from, or --partition-by, or --column.")
    if column:
        return _types(at, column, or_null)
    if partition_by is not None:
        return _partitioning(at, partition_by)
    return _rows(at, where or "", from_ or "")


def _rows(at: TableCommand, where: str, source: str) -> PlannedChange:
    plan = replacement.plan(at.table, where, replacement.Rows.at(source, at.storage))
    lines = [
        f"{at.path}, version {plan.version}: {plan.table}",
        f"{counted(plan.removed_rows, 'row')} would be removed from at most {plan.touched}",
        f"{counted(plan.source.count, 'row')} of {source} would be added",
    ]
    data = {
        "version": plan.version,
        "table": plan.table,
        "removed_rows": plan.removed_rows,
        "added_rows": plan.source.count,
        "touched": plan.touched,
    }
    return PlannedChange(lines, data, lambda: replacement.run(at.table, plan, at.commit_info("replace")))


def _partitioning(at: TableCommand, text: str) -> PlannedChange:
    schema, fields = at.table.schema, _partition_fields(text, at.table.schema)
    derived = [field for field in fields if field.derived and field.name not in schema.names]
    added = pa.schema([(one.name, one.arrow_type(schema.field(one.column).type)) for one in derived])
    plan = repartition.plan(at.table, [field.name for field in fields], added)
    was, becomes = (", ".join(names) or "nothing" for names in (plan.was, plan.partition_by))
    lines = [
        f"{at.path}, version {plan.version}: {plan.table}",
        f"partitioned by {was}, would be partitioned by {becomes}",
        _ALL_AGAIN,
    ]
    if at.table.transactions:
        lines.append(
            "Stop the pipeline first, and give its file the same `partition_by` before it runs again."
        )
    data = {
        "version": plan.version,
        "table": plan.table,
        "partition_by": list(plan.partition_by),
        "was": list(plan.was),
        "added_columns": added.names,
    }
    nothing = "Nothing to do: the table is already partitioned like this." if plan.nothing else None
    return PlannedChange(
        lines,
        data,
        lambda: repartition.run(
            at.table, plan, at.commit_info("replace"), lambda rows: add_partition_columns(rows, derived)
        ),
        nothing,
    )


def _partition_fields(text: str, schema: pa.Schema) -> list[PartitionField]:
    """The entries of a list, at commas that are in no parentheses and in no quotes."""
    parts = re.findall(r"(?:[^,('\"]|\([^)]*\)|'[^']*'|\"[^\"]*\")+", text)
    try:
        fields = [parse_partition_field(part.strip()) for part in parts if part.strip()]
    except ValueError as error:
        raise UsageError(f"--partition-by: {error}") from None
    for at, problem in partition_problems(fields, schema):
        raise UsageError(f"--partition-by {fields[at].text}: {problem}")
    return fields


def _types(at: TableCommand, texts: list[str], or_null: bool) -> PlannedChange:
    columns: dict[str, str] = {}
    for text in texts:
        name, kind = _name_and_type(text.strip(), at.table.schema.names)
        if not kind:
            raise UsageError(f"--column {text!r}: expected a name and a type, such as 'total double'")
        if name in columns:
            raise UsageError(f"--column: {name!r} is given twice")
        columns[name] = kind
    plan = retype.plan(at.table, columns)
    lines = [f"{at.path}, version {plan.layout.version}: {plan.layout.table}"]
    for one in plan.declared:
        lines.append(f"column {one.name} is {plan.was[one.name]}, would be {column_text(one)}")
    for name, lost in plan.misfits.items():
        values = counted(lost.count, "value")
        lines.append(f"  {values} of {name} would become null, such as {lost.example[:80]}")
        _refuse_misfits(at, plan.declared.field(name), lost, or_null)
    lines.append(_ALL_AGAIN)
    if at.table.transactions:
        lines.append("Stop the pipeline first, and correct `schema` in its file before it runs again.")
    data = {
        "version": plan.layout.version,
        "table": plan.layout.table,
        "columns": {one.name: column_text(one) for one in plan.declared},
        "was": plan.was,
        "misfits": {name: one.count for name, one in plan.misfits.items()},
    }
    nothing = "Nothing to do: the columns have these types already." if plan.nothing else None
    return PlannedChange(lines, data, lambda: retype.run(at.table, plan, at.commit_info("replace")), nothing)


def _refuse_misfits(at: TableCommand, column: pa.Field, lost: Misfits, or_null: bool) -> None:
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
