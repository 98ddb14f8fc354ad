"""The jobs of upkeep: which tables of a run it looks after, how, and with which engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefeed.handles.handle import TableHandle
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.upkeep import Cluster, Compact, DeleteAfter, Upkeep, Vacuum
from lakefeed.stores import is_unsafe
from lakefeed.tables.rewrite.compact import TARGET_FILE_SIZE
from lakefeed.upkeep.rewriter import DeltaRewriter, Rewriter
from lakefeed.upkeep.spark_rewriter import SparkRewriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class UpkeepJob:
    """A table that upkeep looks after, and how."""

    handle: TableHandle
    upkeep: Upkeep
    rewriter: Rewriter
    target_file_size: int
    cluster_by: tuple[str, ...]

    def intervals(self) -> dict[str, float]:
        """The operations of this table, and how often each is due."""
        found = {}
        if isinstance(self.upkeep.delete_after, DeleteAfter):
            found["delete"] = self.upkeep.delete_after.every
        if isinstance(self.upkeep.compact, Compact):
            found["compact"] = self.upkeep.compact.every
        if isinstance(self.upkeep.cluster, Cluster) and self.cluster_by:
            found["cluster"] = self.upkeep.cluster.every
        if isinstance(self.upkeep.vacuum, Vacuum):
            found["vacuum"] = self.upkeep.vacuum.every
        return found


def jobs_of(
    tables: Tables, spark: SparkSession | None, stopping: Callable[[], bool] = lambda: False
) -> Iterator[UpkeepJob]:
    """Every table of the run whose upkeep is on, the dead letters last.

    Not those whose commits nothing protects: upkeep would be the second writer, beside the stream.
    """
    name = tables.pipeline.name
    for handle in (*tables.handles.values(), tables.dead_letters):
        upkeep, spec = handle.upkeep, handle.spec
        if upkeep is None or is_unsafe(handle.path, handle.storage):
            continue
        rewriter: Rewriter = DeltaRewriter(handle, name, stopping)
        if upkeep.engine == "spark" and spark is not None:
            rewriter = SparkRewriter(spark, handle, name)
        size = spec.target_file_size if spec else TARGET_FILE_SIZE
        yield UpkeepJob(handle, upkeep, rewriter, size, spec.cluster_by if spec else ())


class UpkeepJobs:
    """The jobs of a run; tables that a route has made since the last look are among them."""

    def __init__(
        self, tables: Tables, spark: SparkSession | None, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        self._tables, self._spark, self._stopping = tables, spark, stopping
        self._known: dict[str, UpkeepJob] = {}

    def __call__(self) -> list[UpkeepJob]:
        """All of them; what is known of a table already stays."""
        for job in jobs_of(self._tables, self._spark, self._stopping):
            self._known.setdefault(job.handle.name, job)
        return list(self._known.values())
