"""Retries: how often and how long a flow is started again after an error, and when it is not any more."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakefeed.backoff import backoff
from lakefeed.errors import BatchFailed, Defect, GaveUp, LakefeedError
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.units import format_duration

if TYPE_CHECKING:
    from lakefeed.engine.flow import Flow

_FIRST_WAIT = 0.5
_LONGEST_WAIT = 30.0
_BATCH_ATTEMPTS = 5
"""How often a batch that Spark loses is tried again: waiting longer does not bring it back."""
_DEFECT_ATTEMPTS = 5
"""The same for a defect, which may have to do with the moment and not with the events."""


def spark_output(pipeline: Pipeline) -> Path | None:
    """The file with the output of the JVM; None where there is none, or the program brought its session."""
    file = Path(pipeline.state) / pipeline.name / "spark.err"
    return file if file.exists() and file.stat().st_size else None


@dataclass
class Retries:
    """Counts the failures of one flow since it last came further."""

    pipeline: Pipeline
    flow: Flow
    _failing_since: float | None = None
    _attempts: int = 0
    _lost: int = 0
    _defects: int = 0
    _landed: int = 0

    def renew(self) -> None:
        """A run has ended as it should; a defect counts until a batch was committed."""
        self._failing_since, self._attempts, self._lost = None, 0, 0

    def after(self, error: LakefeedError) -> float:
        """How many seconds to wait before the next try; raises what ends the flow when there is none."""
        if self.flow.batches != self._landed:
            self.renew()
            self._defects, self._landed = 0, self.flow.batches
        self._failing_since = self._failing_since or time.monotonic()
        self._lost += isinstance(error, BatchFailed)
        self._defects += isinstance(error, Defect)
        output = spark_output(self.pipeline)
        see = f"; see {output}" if output else ""
        if self.flow.has_lost_spark:
            raise GaveUp(
                f"Spark's JVM has exited: it was killed, or it ran out of memory{see}.\n"
                "Start again: the run continues at the positions in the tables."
            ) from error
        if self._defects > _DEFECT_ATTEMPTS:
            raise error
        if self._lost > _BATCH_ATTEMPTS:
            raise GaveUp(f"{error}\nThe same batch failed {self._lost} times{see}.") from error
        if time.monotonic() - self._failing_since > self.pipeline.give_up_after:
            limit = format_duration(self.pipeline.give_up_after)
            raise GaveUp(
                f"{error}\nGave up after {limit}; the next start continues at the positions in the tables."
            ) from error
        return self.wait()

    def wait(self) -> float:
        """How many seconds to wait, longer each time."""
        self._attempts += 1
        return backoff(self._attempts, _FIRST_WAIT, _LONGEST_WAIT)
