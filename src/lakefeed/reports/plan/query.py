"""What a run would do with a table of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakefeed.columns.names import keeping_names
from lakefeed.engine.spark.analyzer import bare_jvm
from lakefeed.handles import widening
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.query.analysis import columns_of, inputs_of
from lakefeed.handles.query.columns import lacking_columns, made_columns, wider_columns
from lakefeed.handles.query.inputs import Inputs
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.options.partition_by import check_partitioning
from lakefeed.reports.plan.column_words import added_columns, column_words
from lakefeed.tables.table import LakeTable
from lakefeed.text import counted, listed

if TYPE_CHECKING:
    from lakefeed.reports.plan.plan import PlannedTable


def _plan_columns(tables: Tables, handle: TableHandle, plan: PlannedTable, names: list[str]) -> None:
    """The columns that a query would make, where all tables that it reads are there."""
    schemas = {name: table.schema for name in names if (table := tables.handles[name].look())}
    columns = columns_of(bare_jvm(), tables.pipeline, handle.name, schemas)
    with keeping_names(kept=tables.pipeline.tables[handle.name].keeps_names):
        made = made_columns(handle.name, columns)
    if not handle.exists:
        check_partitioning(handle.partition_fields, made)
        plan.columns = [column_words(column) for column in handle.table_schema(made)]
        return
    if wide := wider_columns(handle, made):
        found = widening.plan(handle, wide)
        plan.widened = [found.text] if found.columns else []
        made = pa.schema([one for one in made if one.name not in found.columns])
    plan.columns = added_columns(handle.table, lacking_columns(handle, made))
    plan.action = "alter" if plan.columns or plan.widened else plan.action


def plan_refresh(tables: Tables, handle: TableHandle, plan: PlannedTable, table: LakeTable | None) -> None:
    """Whether the query of a table would be run, and why."""
    names = inputs_of(bare_jvm(), tables.pipeline, handle.name)
    standing = Inputs(tables, handle.name, names).stand(table.transactions if table else {})
    if not standing.missing:
        _plan_columns(tables, handle, plan, names)
    for name in names:
        seen = standing.seen.get(name)
        if seen is None:
            plan.reads[name] = "does not exist yet"
        elif standing.recorded is None:
            plan.reads[name] = f"version {seen.version:,}, not read yet"
        else:
            since = f"{counted(len(seen.changed), 'version')} with other rows since"
            plan.reads[name] = f"version {seen.version:,}, read up to {standing.recorded[name]:,}, {since}"
    if standing.missing:
        plan.refresh = f"waits for {listed(standing.missing)}"
    else:
        plan.refresh = "replaces all rows" if standing.is_due else "is up to date"
