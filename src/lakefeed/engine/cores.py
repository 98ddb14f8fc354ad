"""The cores that run tasks, and how many of them a batch is planned for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GROWTH = 2
"""With dynamic allocation, a batch is planned for so many times the cores that are there: Spark starts
executors only while tasks wait for a core."""


@dataclass(frozen=True)
class Cores:
    """The cores of a session, and what a batch is cut into."""

    running: int
    """Tasks that the registered executors can run side by side."""
    executors: int
    """0 where tasks run in the driver's process."""
    tasks: int
    """The most tasks to cut a batch into."""

    def without_one(self) -> Cores:
        """Leave one core to another flow."""
        return replace(self, tasks=max(1, self.tasks - 1))


ONE_CORE = Cores(running=1, executors=0, tasks=1)


def session_cores(spark: SparkSession) -> Cores:
    """The cores that a session has at this moment; executors come and go while a run lasts.

    `defaultParallelism` is not it: a user may set it, and without executors it is 2.
    """
    context = spark.sparkContext
    scala = context._jsc.sc()
    running = int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
    # The driver has a block manager as well.
    executors = 0 if scala.isLocal() else max(0, int(scala.getExecutorMemoryStatus().size()) - 1)
    # `getConf` copies every setting, with a call to the JVM for each.
    conf = context._conf
    if scala.isLocal() or (conf.get("spark.dynamicAllocation.enabled") or "").lower() != "true":
        return Cores(running, executors, max(1, running))
    most = int(conf.get("spark.dynamicAllocation.maxExecutors") or 2**31 - 1)
    each = max(1, running // executors) if executors else int(conf.get("spark.executor.cores") or 1)
    return Cores(running, executors, max(1, running, min(_GROWTH * max(running, each), most * each)))
