"""A run without Spark: the same flows, their tasks one after the other in this process, for small inputs.

Only the scheduling differs. Batches are planned, cut into tasks, fetched, decoded, written and committed by
the code that a run on Spark uses, and what passes between driver and worker is packed and unpacked as there.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from lakefeed.engine.batch.manifest import Manifest
from lakefeed.engine.batch.plan import FlowPlan
from lakefeed.engine.cores import ONE_CORE, Cores
from lakefeed.engine.flow import Flow
from lakefeed.engine.flow_run import FlowRun
from lakefeed.engine.run_events import Starting, Watcher, unwatched
from lakefeed.engine.spark.analyzer import analyze_here
from lakefeed.engine.spark.local_tasks import LocalTasks
from lakefeed.engine.spark.offset_channel import OffsetChannel, tasks_from_json, tasks_to_json
from lakefeed.engine.supervisor import Supervisor
from lakefeed.engine.task.shuffle import JoinTask, run_join
from lakefeed.events import Offsets, Split
from lakefeed.handles.progress import TableProgress
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def run_inline(pipeline: Pipeline, watch: Watcher = unwatched) -> None:
    """Read what is there now and commit it. Raises what a run would raise.

    Only SQL needs a JVM: Spark's analyzer, and Spark itself for a table whose SQL nobody else runs.
    """
    tables = Tables(pipeline, analyze_here)
    tables.functions.check()
    checkpoints = Path(pipeline.state) / pipeline.name / "checkpoints"
    with LocalTasks(lambda: watch(Starting())) as tasks:
        local: Any = tasks
        flows: list[Flow] = [
            InlineFlow(tables, name, local, checkpoints, watch, once=True) for name in pipeline.inputs
        ]
        Supervisor(pipeline, flows, watch, threading.Event()).run()


class InlineFlowRun(FlowRun):
    """A run of a flow whose batches run as soon as the channel opens, in the thread that opens it."""

    local: LocalTasks

    def _opened_channel(self) -> OffsetChannel:
        return _InlineChannel(self)

    def begin(self, spark: Any, checkpoint: Path) -> None:
        """Stand for Spark at the other end of the channel."""
        self.local = spark

    def _join(self, frame: DataFrame, tasks: Sequence[JoinTask]) -> list[Manifest]:
        return [run_join(self.plan, task) for task in tasks]

    def _check_query(self) -> None:
        """There is no query that could end."""


class InlineFlow(Flow):
    """A flow that needs no session: in its place it is given `LocalTasks`."""

    run_kind = InlineFlowRun

    def cores(self) -> Cores:
        """Tasks run one at a time."""
        return ONE_CORE

    def _spread(self, opened: list[TableProgress]) -> None:
        """There is no Spark that has more cores."""

    @property
    def has_lost_spark(self) -> bool:
        """There is no JVM that could end."""
        return False


class _InlineChannel(OffsetChannel):
    """Runs the tasks of a batch when it is opened, instead of telling Spark that it may."""

    def __init__(self, run: InlineFlowRun) -> None:
        self._run = run
        self._packed: bytes | None = None

    def open_to(self, end: Offsets, tasks: Sequence[Split]) -> None:
        """Run the batch up to `end`, and commit it."""
        self._packed = self._packed or pickle.dumps(self._run.plan)
        plan: FlowPlan = pickle.loads(self._packed)
        unpacked = tasks_from_json(tasks_to_json(tasks, time.time_ns() // 1000))
        batch = sum(self._run.position.values())
        rows = [
            (self._run.local.run(plan, ranges, serial=replace(serial, batch=batch)).to_json(),)
            for ranges, serial in unpacked
        ]
        frame: Any = SimpleNamespace(collect=lambda: rows)
        self._run.take(frame, 0)

    def close(self) -> None:
        """Nothing is open."""
