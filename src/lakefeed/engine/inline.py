"""A run without Spark: the same flows, their tasks one after the other in this process, for small inputs.

Only the scheduling differs. Batches are planned, cut into tasks, fetched, decoded, written and committed by
the code that a run on Spark uses, and what passes between driver and worker is packed and unpacked as there.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.engine.assignment import Seat
from lakefeed.engine.batch.plan import FlowPlan
from lakefeed.engine.batch.task import run_task
from lakefeed.engine.flow import Flow
from lakefeed.engine.flow_run import FlowRun
from lakefeed.engine.run_events import Watcher, unwatched
from lakefeed.engine.spark.offset_channel import OffsetChannel, tasks_from_json, tasks_to_json
from lakefeed.engine.supervisor import Supervisor
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.sources import Offsets, Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run_inline(pipeline: Pipeline, watch: Watcher | None = None) -> None:
    """Read what is there now and land it, without a JVM. Raises what a run would raise."""
    lake, told = Tables(pipeline), watch or unwatched
    checkpoints = Path(pipeline.state) / pipeline.name / "checkpoints"
    flows: list[Flow] = [InlineFlow(lake, name, checkpoints, told) for name in pipeline.sources]
    Supervisor(pipeline, flows, told, threading.Event()).run()


class InlineFlowRun(FlowRun):
    """A life whose batches run as soon as the gate opens, in the thread that opens it."""

    def begin(self, spark: SparkSession | None, checkpoint: Path) -> None:
        """Take the place of Spark behind the gate."""
        self.channel.close()
        self.channel = _InlineGate(self)

    def _check_query(self) -> None:
        """There is no query that could end."""


class InlineFlow(Flow):
    """A flow that needs no session."""

    life_kind = InlineFlowRun

    def __init__(
        self,
        lake: Tables,
        source: str,
        state: Path,
        watch: Watcher,
        *,
        once: bool = True,
        seat: Seat | None = None,
    ) -> None:
        no_session: Any = None
        super().__init__(lake, source, no_session, state, watch, once=once, seat=seat)

    @property
    def cores(self) -> int:
        """One task at a time."""
        return 1

    def _beside(self, seat: Seat) -> Flow:
        state, watch = self._state, self._watch
        return type(self)(self._lake, self.source, state, watch, once=self._once, seat=seat)

    @property
    def is_stranded(self) -> bool:
        """There is no JVM that could end."""
        return False


class _InlineGate(OffsetChannel):
    """Runs the tasks of a batch when it is opened, instead of telling Spark that it may."""

    def __init__(self, life: InlineFlowRun) -> None:
        self._life = life
        self._packed = pickle.dumps(life.plan)

    def open_to(self, end: Offsets, tasks: Sequence[Split]) -> None:
        """Run the batch up to `end`, and land it."""
        plan: FlowPlan = pickle.loads(self._packed)
        unpacked = tasks_from_json(tasks_to_json(tasks))
        rows = [(run_task(plan, ranges).to_json(),) for ranges in unpacked]
        frame: Any = _Collected(rows)
        landed: DataFrame = frame
        self._life.take(landed, 0)

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class _Collected:
    """What a data frame of manifests is asked for."""

    rows: list[tuple[str]]

    def collect(self) -> list[tuple[str]]:
        return self.rows
