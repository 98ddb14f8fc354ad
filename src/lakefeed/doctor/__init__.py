"""The doctor: checks everything that a run needs, and says what to do about each problem.

Nothing is changed, no JVM is started, and what is written to test a store is deleted again.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakefeed.doctor import machine, services, stores
from lakefeed.doctor.check_result import CheckResult
from lakefeed.pipeline.pipeline import Pipeline

__all__ = ["CheckResult", "examine"]


def examine(pipeline: Pipeline | None = None) -> Iterator[CheckResult]:
    """Look at this machine and, with a pipeline, at all that it reads from and writes to, one by one."""
    yield from machine.examine(pipeline)
    if pipeline is not None:
        yield from services.examine(pipeline)
        yield from stores.examine(pipeline)
