"""What `select`, `where` and `expect` would make of a sample of events, and the words for it in a plan."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from lakefeed.columns.widening import merge_proposals, merged_proposals
from lakefeed.engine.task.steps import event_steps, sql_steps
from lakefeed.events import Events, Refused
from lakefeed.formats import Decoded
from lakefeed.formats.refusal import refused_column
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.progress import Expectations
from lakefeed.handles.table_plan import TablePlan
from lakefeed.handles.widening import WidenPlan
from lakefeed.reports.plan.remedy import Remedy
from lakefeed.rows import Rows, Step
from lakefeed.rows.evaluator import ByArrow
from lakefeed.sql.expression import Column
from lakefeed.sql.projection import Projection
from lakefeed.tables.detail.shaped import merged_counts

_MOST_ERRORS = 200
BY_ARROW = "by Arrow, inside the tasks that decode and write"


@dataclass
class SampleOutcome:
    """What some of the waiting events would become in one table."""

    events: int = 0
    dead_letters: Counter[str] = field(default_factory=Counter)
    """By code."""
    errors: list[str] = field(default_factory=list)
    """What some of the events were told that do not fit the columns."""
    examples: dict[str, str] = field(default_factory=dict)
    """The first error of each code."""
    misfits: Counter[str] = field(default_factory=Counter)
    """By the column that refused them."""
    new_columns: pa.Schema | None = None
    wider: pa.Schema | None = None
    """Columns in the types that the table needs for values which do not fit."""
    widening: WidenPlan | None = None
    partitions: int = 0
    """Different values of `partition_by` among the rows."""
    rows: int = 0
    filtered: int = 0
    expectations: Expectations = field(default_factory=dict)
    returned: pa.Schema | None = None
    """Columns that the user's function has returned, and the table has not."""
    projection: Projection | None = None
    remedy: Remedy | None = None
    """The types with which more of the events fit, where many do not."""
    unfit: set[str] = field(default_factory=set)
    """Columns with values that their type cannot hold and text can."""

    @property
    def refused(self) -> int:
        """All that would become dead letters."""
        return sum(self.dead_letters.values())

    def refuse(self, refused: Iterable[Refused]) -> None:
        """Count events that would become dead letters."""
        for one in refused:
            self.dead_letters[one.code] += 1
            self.examples.setdefault(one.code, one.error)
            if one.stage == "schema":
                self.misfits[refused_column(one.stage, one.error) or ""] += 1
                self.errors += [one.error] if len(self.errors) < _MOST_ERRORS else []


def shape_sample(
    handle: TableHandle, events: pa.Schema, decoded: list[tuple[Events, Decoded]], sample: SampleOutcome
) -> list[pa.RecordBatch]:
    """Let decoded events pass the steps of their table, whose events have these columns.

    Returns the rows as the table would get them, without the columns that `partition_by` derives; none where
    Spark would have to make them.
    """
    assert handle.spec is not None and handle.shaping is not None
    shaping = handle.shaping
    plan = replace(handle.plan(handle.shape, {}, {}), events=events if handle.spec.reshapes else None)
    plan = replace(plan, rename=handle.rename_of(events))
    if not handle.spec.reshapes:
        plan = replace(plan, columns=events)
    rows = events
    if handle.spec.python:
        sample.returned = _returned(plan, decoded)
        rows = merge_proposals(plan.returned or pa.schema([]), sample.returned or pa.schema([]))
        plan = replace(plan, returned=rows)
    sample.projection = shaping.projection(rows)
    plan = replace(plan, columns=shaping.made(rows), projection=sample.projection)
    steps = event_steps(plan, [])
    if sample.projection and not sample.projection.needs_spark:
        steps += sql_steps(plan, ByArrow(time.time_ns() // 1000))
    shaped = [_passed(steps, _rows(portion, made), sample) for portion, made in decoded]
    return [] if sample.projection and sample.projection.needs_spark else shaped


def _returned(plan: TablePlan, decoded: list[tuple[Events, Decoded]]) -> pa.Schema | None:
    found: pa.Schema | None = None
    for portion, made in decoded:
        rows = _rows(portion, made)
        for step in event_steps(plan, []):
            done = step(rows)
            rows = done.rows
            found = merged_proposals(found, done.unknown)
    return found


def _rows(events: Events, decoded: Decoded) -> Rows:
    gone = [*(one.index for one in decoded.refused), *decoded.skipped]
    indexes = np.delete(np.arange(len(events)), gone).tolist()
    return Rows(decoded.rows, events, indexes, decoded.rescued)


def _passed(steps: list[Step], rows: Rows, sample: SampleOutcome) -> pa.RecordBatch:
    for step in steps:
        done = step(rows)
        sample.refuse(done.refused)
        sample.filtered += len(done.filtered)
        sample.expectations = merged_counts(sample.expectations, done.counts)
        rows = done.rows
    return rows.batch


def way(projection: Projection) -> str:
    """Which way the rows of a table take, and why."""
    return f"by Spark's operators: {projection.needs_spark}" if projection.needs_spark else BY_ARROW


def shaping_lines(projection: Projection) -> Iterator[str]:
    """What is done to rows, a line for each part that does something."""
    if projection.where_text is not None:
        yield f"where {projection.where_text}"
    for item in projection.items:
        if not isinstance(item.expression, Column) or item.expression.name != item.name:
            yield f"select {item.text}"
    for rule in projection.rules:
        yield f"expect {rule.name}: {rule.text}, otherwise {rule.otherwise}"
