"""A run without Spark: the engine's own flow, tasks and committer, one batch after the other in this thread.

What it leaves behind in the tables is what a run leaves there, in milliseconds.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lakefeed import Pipeline
from lakefeed.engine.batch.committer import Committer
from lakefeed.engine.batch.plan import spans
from lakefeed.engine.flow import Flow
from lakefeed.engine.run_events import unwatched
from lakefeed.engine.task.task import run_task
from lakefeed.events import Offsets, lowest
from lakefeed.handles.tables import Tables
from lakefeed.sources import source_of
from lakefeed.sources.kafka import fetch

_SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))


def drain(file: Path, batch: int = 1_000_000, *, keep_consumers: bool = False) -> Pipeline:
    """Read everything that waits, at most `batch` events of a partition in a batch.

    A worker of Spark keeps its consumers for the next batch.
    """
    pipeline = Pipeline.from_file(file)
    tables = Tables(pipeline)
    for source in pipeline.sources:
        flow = Flow(tables, source, _SPARK, file.parent / "state", unwatched, once=True)
        while not _run(flow, tables, pipeline, source, batch):
            pass
        for error in flow.failures.values():
            raise error
    if not keep_consumers:
        close_consumers()
    return pipeline


def close_consumers() -> None:
    """Let go of the consumers that a worker would keep: they would outlive the broker."""
    while fetch._kept:
        fetch._kept.popitem()[1].close()


def _run(flow: Flow, tables: Tables, pipeline: Pipeline, source: str, batch: int) -> bool:
    """One run; False when a table was changed and the rest must be read with its new schema."""
    client = source_of(pipeline, source).client(pipeline.name, source)
    opened, failures = flow._start_positions.find(client, flow.assignment.tables)
    flow._bear(failures, client)
    committer = Committer(tables, source, client.marks(), opened, unwatched)
    try:
        flow._record_starts(opened, committer)
        plan = flow._plan(opened)
        at: Offsets = lowest(progress.rows_from for progress in opened)
        ends = client.latest()
        while any(ends[name] > at[name] for name in at):
            end = plan.cut(at, {name: min(ends[name], at[name] + batch) for name in at})
            wanted = spans(at, end)
            outcome = committer.commit(wanted, [run_task(plan, wanted)], client.confirm)
            if outcome.failures or outcome.proposals:
                return flow._apply(outcome, client)
            at = end
        committer.record_positions()
        return True
    finally:
        committer.close()
        client.close()
