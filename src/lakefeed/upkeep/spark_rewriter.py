"""`engine: spark`: rewrites as commands of Spark's Delta, for tables that outgrow the driver."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakefeed.engine.flow_run import spark_errors
from lakefeed.engine.spark.delta import require_delta
from lakefeed.errors import Conflict, TableError
from lakefeed.handles.handle import TableHandle
from lakefeed.tables.operations import vacuum
from lakefeed.tables.operations.operation import operation_info
from lakefeed.tables.rewrite import compact as compaction
from lakefeed.tables.rewrite import z_order
from lakefeed.tables.rewrite.conditions import partition_conditions
from lakefeed.tables.table import COMMIT_KEY, LakeTable
from lakefeed.text import in_backticks
from lakefeed.upkeep.rewriter import BY, DeltaRewriter, FileChange

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_CODECS = {"lz4": "lz4raw"}
_SESSION = {
    # Files that every engine reads, with the types that the stream has written.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # The plan has checked the retention, with the allowance that the pipeline file gives.
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
}


class SparkRewriter:
    """OPTIMIZE, DELETE and VACUUM of Spark's Delta on the pipeline's own session.

    Spark's log store does not see that another process commits at the same moment: it would put its entry
    over the other's. So the table's lock is held for as long as a command runs, and the stream's commits wait
    for it; and a table in an object store, where others may write as well, is refused.
    """

    def __init__(self, spark: SparkSession, handle: TableHandle, pipeline: str) -> None:
        self._handle = handle
        self._pipeline = pipeline
        self._reader = DeltaRewriter(handle, pipeline)
        self._given = spark
        self._session: SparkSession | None = None

    def table(self) -> LakeTable:
        """Plans are made without Spark, for either engine."""
        return self._reader.table()

    def compact(self, plan: compaction.CompactPlan, step: compaction.CompactStep) -> FileChange:
        """OPTIMIZE one partition."""
        size = {"spark.databricks.delta.optimize.maxFileSize": str(plan.target_size)}
        size["spark.databricks.delta.optimize.minFileSize"] = str(plan.target_size)
        where = _where(partition_conditions(step.partition, self.table().schema))
        with self._commanding("compact", {"partition": dict(step.partition)}, size) as ask:
            return _optimized(ask(f"OPTIMIZE {self._name}{where}"))

    def cluster(self, plan: z_order.ZOrderPlan, step: z_order.ZOrderStep) -> FileChange:
        """OPTIMIZE one partition with ZORDER BY."""
        size = {"spark.databricks.delta.optimize.maxFileSize": str(plan.target_size)}
        told = {"columns": list(plan.columns), "partition": dict(step.partition)}
        columns = ", ".join(in_backticks(column) for column in plan.columns)
        with self._commanding("cluster", told, size) as ask:
            where = _where(partition_conditions(step.partition, self.table().schema))
            return _optimized(ask(f"OPTIMIZE {self._name}{where} ZORDER BY ({columns})"))

    def delete(self, where: str) -> FileChange:
        """DELETE, in one commit or in none."""
        with self._commanding("delete", {"where": where}) as ask:
            before = self.table().version
            ask(f"DELETE FROM {self._name} WHERE {where}")
            after = self.table().version
        return self._reader.change(range(before + 1, after + 1))

    def checkpoint(self) -> None:
        """A checkpoint is none of Spark's commands; readers of either engine have use for it."""
        self._reader.checkpoint()

    def vacuum(self, plan: vacuum.VacuumPlan, on_file: Callable[[], None]) -> FileChange:
        """VACUUM of exactly the files of the plan, given as an inventory."""
        if not plan.files:
            return FileChange()
        with self._commanding("vacuum", {"files": len(plan.files)}) as ask:
            assert self._session is not None
            root = self._handle.path.removeprefix("file://").rstrip("/")
            rows = [(f"file:{root}/{file.path}", file.size, False, file.modified) for file in plan.files]
            columns = "path string, length long, isDir boolean, modificationTime long"
            self._session.createDataFrame(rows, columns).createOrReplaceTempView("lakefeed_inventory")
            hours = plan.retain / 3600
            ask(
                f"VACUUM {self._name} USING INVENTORY (SELECT * FROM lakefeed_inventory) RETAIN {hours} HOURS"
            )
            on_file()
        store = self.table().store
        left = {info.path for info in store.get_file_info([file.path for file in plan.files]) if info.is_file}
        gone = [file.size for file in plan.files if file.path not in left]
        return FileChange(len(gone), 0, sum(gone), 0)

    @property
    def _name(self) -> str:
        return f"delta.{in_backticks(self._handle.path)}"

    @contextmanager
    def _commanding(
        self, kind: str, told: Mapping[str, Any], settings: Mapping[str, str] | None = None
    ) -> Iterator[Callable[[str], list[Row]]]:
        """Lets the body give commands with the commit info of an operation, while nobody else commits."""
        session = self._opened()
        commit_info = operation_info(kind, by=BY, pipeline=self._pipeline, **told)
        metadata = json.dumps({COMMIT_KEY: commit_info}, separators=(",", ":"))
        with self._handle.lock, spark_errors():
            session.conf.set("spark.databricks.delta.commitInfo.userMetadata", metadata)
            for key, value in (settings or {}).items():
                session.conf.set(key, value)
            try:
                yield lambda command: session.sql(command).collect()
            except Exception as error:
                if "Concurrent" in type(error).__name__ or ".Concurrent" in str(error)[:200]:
                    raise Conflict(f"{self._handle.path}: another writer committed first.") from error
                raise

    def _opened(self) -> SparkSession:
        """A session beside the stream's, in the same Spark, with settings of its own."""
        if self._session is None:
            handle = self._handle
            if "://" in handle.path and not handle.path.startswith("file:"):
                raise TableError(
                    f"{handle.path}: Spark's commits to an object store are not conditional, so commits of "
                    f"other writers could be lost.\nLeave `engine` out for this table."
                )
            require_delta(self._given)
            session = self._given.newSession()
            cores = str(max(2, self._given.sparkContext.defaultParallelism))
            codec = handle.spec.compression if handle.spec else "zstd"
            for key, value in _SESSION.items():
                session.conf.set(key, value)
            session.conf.set("spark.sql.parquet.compression.codec", _CODECS.get(codec, codec))
            rows = handle.spec.max_rows_per_file if handle.spec else None
            session.conf.set("spark.sql.files.maxRecordsPerFile", str(rows or 0))
            session.conf.set("spark.sql.shuffle.partitions", cores)
            session.conf.set("spark.databricks.delta.snapshotPartitions", cores)
            self._session = session
        return self._session


def _where(conditions: list[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _optimized(rows: list[Row]) -> FileChange:
    metrics = rows[0].metrics
    return FileChange(
        metrics.numFilesRemoved,
        metrics.numFilesAdded,
        metrics.filesRemoved.totalSize or 0,
        metrics.filesAdded.totalSize or 0,
    )
