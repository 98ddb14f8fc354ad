"""Retyping: a column of a table gets another type, and every row is written again with it, in one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from lakefeed.columns.column_types import (
    JSON,
    MEANT,
    column,
    column_text,
    meant,
    meant_text,
    stored,
    type_text,
)
from lakefeed.columns.widening import holds_all
from lakefeed.errors import UsageError
from lakefeed.formats import Rules
from lakefeed.formats.csv.format import CONVERSIONS as TEXT_CONVERSIONS
from lakefeed.formats.fit.fitter import Fitter
from lakefeed.formats.fit.json_text import json_text
from lakefeed.formats.fit.type_rules import is_text
from lakefeed.stores import store_errors
from lakefeed.tables.operations import repartition as layout
from lakefeed.tables.operations.operation import CommitInfo, Report
from lakefeed.tables.table import LakeTable
from lakefeed.text import suggestion

_RULES = Rules(new_column="ignore", type_change="rescue")


@dataclass
class Misfits:
    """Values of a column that its new type does not hold."""

    count: int = 0
    example: str = ""
    nulls: int = 0
    """Of a column that shall be `not null`: how many it has already."""


@dataclass
class RetypePlan:
    """What new types would do; nothing has been changed."""

    layout: layout.RepartitionPlan
    declared: pa.Schema
    """The columns in their new types."""
    was: dict[str, str]
    misfits: dict[str, Misfits] = field(default_factory=dict)

    @property
    def nothing(self) -> bool:
        """Whether the columns have these types already."""
        return not len(self.declared)


def plan(table: LakeTable, columns: Mapping[str, str]) -> RetypePlan:
    """Read the columns, and count the values that the new types do not hold. Raises UsageError."""
    declared, was = [], {}
    for name, text in columns.items():
        new = _declared(table, name, text)
        old = table.schema.field(name)
        fitting = stored(pa.schema([new])).field(0)
        same = old.type.equals(fitting.type) and _meant(old) == _meant(fitting)
        if not same or old.nullable != new.nullable:
            declared.append(new)
            was[name] = meant_text(old)
    target = layout.plan(table, table.partition_columns)
    found = RetypePlan(replace(target, retyped=stored_columns(table, declared)), pa.schema(declared), was)
    _count(table, found)
    return found


def run(table: LakeTable, plan: RetypePlan, commit_info: CommitInfo) -> Report:
    """Write every row again, in one commit; a value that does not fit becomes null."""
    told = {**commit_info, "columns": {one.name: column_text(one) for one in plan.declared}}
    retypers = [Retyper(one) for one in plan.declared]

    def shape(rows: pa.RecordBatch) -> pa.RecordBatch:
        for one in retypers:
            made, _ = one.take(rows.column(one.name))
            at = rows.schema.get_field_index(one.name)
            rows = rows.set_column(at, plan.layout.retyped.field(one.name), made)
        return rows

    return layout.run(table, plan.layout, told, shape)


def _declared(table: LakeTable, name: str, text: str) -> pa.Field:
    if name not in table.schema.names:
        raise UsageError(f"--column: the table has no column {name!r}{suggestion(name, table.schema.names)}")
    try:
        new = column(name, text)
    except ValueError as error:
        raise UsageError(f"--column {name}: {error}") from None
    old = table.schema.field(name)
    if name in table.partition_columns:
        raise UsageError(f"--column {name}: the table is partitioned by it, so its type cannot change")
    if pa.types.is_nested(new.type) or (pa.types.is_nested(old.type) and new.type not in (JSON, pa.string())):
        raise UsageError(
            f"--column {name}: {type_text(old.type)} cannot become {text}: a column with fields or elements "
            f"can only become json.\nMove the table instead: read its events again into a new path."
        )
    return pa.field(name, new.type, old.nullable and new.nullable)


def stored_columns(table: LakeTable, declared: Sequence[pa.Field]) -> pa.Schema:
    """The new columns as stored, with what else their metadata says, such as a comment."""
    fields = []
    for one in stored(pa.schema(declared)):
        old = table.schema.field(one.name).metadata or {}
        others = {key: value for key, value in old.items() if key != MEANT}
        fields.append(one.with_metadata({**others, **(one.metadata or {})}))
    return pa.schema(fields)


def _meant(stored_field: pa.Field) -> bytes | None:
    meant: bytes | None = (stored_field.metadata or {}).get(MEANT)
    return meant


def some_convert(table: LakeTable, declared: pa.Field, rows: int) -> bool:
    """Whether the first values of a column, of so many rows or more, fit another type: for a look only."""
    if pa.types.is_nested(declared.type):
        return False
    retyper, old, seen = Retyper(declared), table.schema.field(declared.name), 0
    with store_errors(table.path):
        for batch in pa.RecordBatchReader.from_stream(table.at(table.version).scan(columns=[old.name])):
            if retyper.take(batch.column(old.name).cast(old.type))[1]:
                return False
            seen += batch.num_rows
            if seen >= rows:
                break
    return True


def _count(table: LakeTable, plan: RetypePlan) -> None:
    retypers = [Retyper(one) for one in plan.declared]
    if not retypers:
        return
    plan.misfits = {one.name: Misfits() for one in retypers}
    with store_errors(table.path):
        for batch in pa.RecordBatchReader.from_stream(table.at(table.version).scan()):
            for one in retypers:
                values = batch.column(one.name).cast(table.schema.field(one.name).type)
                _, lost = one.take(values)
                known = plan.misfits[one.name]
                known.count += len(lost)
                known.nulls += 0 if plan.declared.field(one.name).nullable else values.null_count
                if lost and not known.example:
                    known.example = json_text(values, lost[0])
    plan.misfits = {name: one for name, one in plan.misfits.items() if one.count or one.nulls}


def retyped(values: pa.Array, stored_field: pa.Field) -> pa.Array:
    """The values in the type of a column, null where they do not fit."""
    if holds_all(stored_field.type, values.type):
        return values.cast(stored_field.type)
    return Retyper(meant(stored_field)).take(values)[0]


class Retyper:
    """Converts the values of one column, by the rules that events are read with."""

    def __init__(self, declared: pa.Field) -> None:
        self.name, self._type = declared.name, declared.type
        nullable = declared.with_nullable(True)
        # What is no text becomes a string as its JSON text.
        values = nullable.with_type(JSON) if declared.type == pa.string() else nullable
        self._values = Fitter(pa.schema([values]), _RULES)
        self._texts = Fitter(pa.schema([nullable]), _RULES, TEXT_CONVERSIONS)

    def take(self, values: pa.Array) -> tuple[pa.Array, list[int]]:
        """The values in the new type, null where they do not fit, and the indexes of these."""
        if pa.types.is_floating(values.type) and pa.types.is_decimal(self._type):
            # The shortest text of a float is the number that was meant.
            values = values.cast(pa.string())
        fitter = self._texts if is_text(values.type) else self._values
        made = pa.StructArray.from_arrays([values], fields=[pa.field(self.name, values.type)])
        found = fitter.fit(made)
        lost = [] if found.rescued is None else np.flatnonzero(found.rescued.is_valid()).tolist()
        return found.rows.column(0), lost
