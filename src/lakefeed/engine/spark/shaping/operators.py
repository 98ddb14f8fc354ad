"""`where`, `select` and `expect` by Spark's own operators, between the two halves of a task."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from lakefeed.columns.staged import DELETIONS, UPDATE
from lakefeed.engine.spark.shaping.attempt import Attempt
from lakefeed.engine.task.carried import (
    EVENT_ORIGIN,
    KEPT,
    NOTE,
    OPS,
    PAYLOAD,
    REASON,
    UNCHANGED,
    beside,
    event_columns,
    verdict,
)
from lakefeed.sql.projection import BATCH_TIME, Projection
from lakefeed.sql.spark_types import spark_schema
from lakefeed.text import in_backticks

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from lakefeed.handles.table_plan import TablePlan

_TRIED = "(tried)"
_MADE = "(made)"
_MET = "(met)"


def columns_read(session: SparkSession, projection: Projection) -> list[str]:
    """The columns of the events that SQL reads, by Spark's own account.

    Rules read what `select` makes, and beside it only the time of the batch.
    """
    types = _types(event_columns(projection))
    frame = session.range(0).select(*(F.lit(None).cast(one.dataType).alias(one.name) for one in types))
    read = Attempt(frame, _wanted(projection)).columns()
    if any(BATCH_TIME in rule.expression.columns() for rule in projection.rules):
        read.add(BATCH_TIME)
    return [name for name in types.names if name.lower() in read]


def source_schema(table: TablePlan, columns: list[str]) -> StructType:
    """What the reading half yields, as Spark wants to know it."""
    assert table.projection is not None
    given = event_columns(table.projection)
    return _types(pa.schema([*(given.field(name) for name in columns), *beside(table)]))


def shaped(frame: DataFrame, table: TablePlan, columns: list[str]) -> DataFrame:
    """The rows that `where` and `select` make of events, what rules say of them, and what failed.

    An event goes along only where somebody may ask for it: a row that throws, breaks a rule, or fits no
    partition of the table becomes a dead letter, which needs payload and position; one that is
    left out is counted by its partition.
    """
    projection = table.projection
    assert projection is not None and table.columns is not None
    changes = OPS in beside(table).names
    events = frame.select(*map(_named, [*columns, *([OPS, UNCHANGED] if changes else [])]))
    attempt = Attempt(events, _wanted(projection, changes=changes))
    tried = frame.select(attempt.value().alias(_TRIED), *map(_named, [*columns, *beside(table).names]))
    threw = _named(_TRIED).isNull()
    made = _named(_TRIED).getField(_MADE)
    items = [item.name for item in projection.items]
    moment = [BATCH_TIME] if BATCH_TIME in columns and BATCH_TIME not in items else []
    rows = tried.select(
        *(made.getField(name).alias(name) for name in items),
        F.when(threw, F.lit(None)).otherwise(_named(_TRIED).getField(_MET)).alias(KEPT),
        F.when(threw & _named(NOTE).isNull(), attempt.reason()).alias(REASON),
        *map(_named, [*beside(table).names, *moment]),
    )
    return _judged(rows, table, projection)


def _wanted(projection: Projection, *, changes: bool = False) -> Column:
    """A struct of what `select` makes, null for a row that `where` leaves out, and whether it is met.

    Of `changes`, some are made whatever the condition says: see `lakefeed.rows.select.Where`.

    The struct stays around the condition: Spark moves what stands directly around it into its branches, and
    what the condition throws would not be caught.
    """
    items = F.struct(*(F.expr(item.text).alias(item.name) for item in projection.items))
    if projection.where_text is None:
        return F.struct(items.alias(_MADE), F.lit(True).alias(_MET))
    met = F.coalesce(F.expr(projection.where_text), F.lit(False))
    made = met
    if changes:
        made = (
            met
            | F.coalesce(_named(OPS).isin(*DELETIONS, UPDATE), F.lit(False))
            | _named(UNCHANGED).isNotNull()
        )
    return F.struct(F.when(made, items).alias(_MADE), met.alias(_MET))


def _judged(rows: DataFrame, table: TablePlan, projection: Projection) -> DataFrame:
    """Add what rules say of rows with the columns of the table; take away events that nobody asks for."""
    assert table.columns is not None
    items = {item.name.lower(): item.name for item in projection.items}
    known = {one.name: one.dataType for one in _types(table.columns)}
    if projection.rules:
        # Rules read what the table has: wider types, and columns that `select` does not make.
        seen = [_as_in_table(items.get(name.lower()), kind).alias(name) for name, kind in known.items()]
        others = [one for one in rows.columns if one.lower() not in {name.lower() for name in known}]
        rows = rows.select(*seen, *map(_named, others))
        rows = rows.withColumns(
            {verdict(at): _met(rows, rule.text) for at, rule in enumerate(projection.rules)}
        )
    kept = _named(KEPT)
    broken = [~_named(verdict(at)) for at, rule in enumerate(projection.rules) if rule.otherwise != "warn"]
    lacking = [
        _named(items[one.name.lower()]).isNull()
        for one in table.columns
        if not one.nullable and one.name.lower() in items
    ]
    asked = reduce(or_, [*broken, *lacking], kept.isNull())
    if (
        table.route
        or OPS in rows.columns
        or any(pa.types.is_string(one.type) for one in _partition_columns(table))
    ):
        asked = F.lit(True)
    counted = asked | ~kept
    carries = {PAYLOAD: F.when(asked, _named(PAYLOAD)), EVENT_ORIGIN: F.when(counted, _named(EVENT_ORIGIN))}
    return rows.withColumns(carries)


def _as_in_table(item: str | None, kind: DataType) -> Column:
    """An item as the table has it; a struct as it was made, as the table may have more fields."""
    made = F.lit(None) if item is None else _named(item)
    nested = isinstance(kind, ArrayType | MapType | StructType)
    return made if nested and item is not None else made.cast(kind)


def _partition_columns(table: TablePlan) -> list[pa.Field]:
    """The columns of the table that it is partitioned by."""
    assert table.columns is not None
    names = {field.name for field in table.partition_by}
    return [one for one in table.columns if one.name in names]


def _met(rows: DataFrame, text: str) -> Column:
    """Whether rows meet a rule; null and what throws counts as not met."""
    tried = Attempt(rows, F.struct(F.expr(text).alias(_MADE))).value().getField(_MADE)
    return F.coalesce(tried, F.lit(False))


def _types(schema: pa.Schema) -> StructType:
    nullable = pa.schema([one.with_nullable(True) for one in schema])
    return StructType.fromJson(spark_schema(nullable))


def _named(name: str) -> Column:
    return F.col(in_backticks(name))
