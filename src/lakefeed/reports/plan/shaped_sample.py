"""What `select`, `where` and `expect` would make of a sample of events, and the words for it in a plan."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from lakefeed.columns.widening import merge_proposals
from lakefeed.engine.batch.manifest import added
from lakefeed.engine.task.steps import event_steps, sql_steps
from lakefeed.events import Events, Refused
from lakefeed.formats import Decoded
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.progress import Expectations
from lakefeed.handles.table_plan import TablePlan
from lakefeed.rows import Rows, Step
from lakefeed.rows.evaluator import ByArrow
from lakefeed.sql.expression import Column
from lakefeed.sql.projection import Projection

BY_ARROW = "by Arrow, inside the tasks that decode and write"


@dataclass
class ShapedSample:
    """What became of sampled events behind decoding."""

    rows: list[pa.RecordBatch] = field(default_factory=list)
    """As the table would get them, without the columns that `partition_by` derives."""
    refused: list[Refused] = field(default_factory=list)
    filtered: int = 0
    expectations: Expectations = field(default_factory=dict)
    returned: pa.Schema | None = None
    """Columns that the user's function has returned and that are not known yet."""
    projection: Projection | None = None


def shape_sample(
    handle: TableHandle, events: pa.Schema, decoded: list[tuple[Events, Decoded]]
) -> ShapedSample:
    """Let decoded events pass the steps of their table, whose events have these columns."""
    assert handle.spec is not None and handle.shaping is not None
    sample, shaping = ShapedSample(), handle.shaping
    plan = replace(handle.plan(handle.shape, {}, {}), events=events if handle.spec.reshapes else None)
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
    for portion, made in decoded:
        _pass(steps, _rows(portion, made), sample)
    return sample


def _returned(plan: TablePlan, decoded: list[tuple[Events, Decoded]]) -> pa.Schema | None:
    found: pa.Schema | None = None
    for portion, made in decoded:
        rows = _rows(portion, made)
        for step in event_steps(plan, []):
            done = step(rows)
            rows = done.rows
            if done.unknown is not None:
                found = done.unknown if found is None else merge_proposals(found, done.unknown)
    return found


def _rows(events: Events, decoded: Decoded) -> Rows:
    gone = [*(one.index for one in decoded.refused), *decoded.skipped]
    indexes = np.delete(np.arange(len(events)), gone).tolist()
    return Rows(decoded.rows, events, indexes, decoded.rescued)


def _pass(steps: list[Step], rows: Rows, sample: ShapedSample) -> None:
    for step in steps:
        done = step(rows)
        sample.refused += done.refused
        sample.filtered += len(done.filtered)
        for rule, counts in done.counts.items():
            sample.expectations[rule] = added([sample.expectations.get(rule, {}), dict(counts)])
        rows = done.rows
    sample.rows.append(rows.batch)


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
