"""A query as Spark runs it: over views that show one version of each table, its rows written by workers."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefeed.columns.names import keeping_names
from lakefeed.engine.spark.delta import require_delta
from lakefeed.files import WrittenFile
from lakefeed.handles.query.analysis import inputs_of, type_words
from lakefeed.handles.query.columns import made_columns
from lakefeed.handles.query.inputs import Input
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.refresh.spark_words import QueryError, spark_words
from lakefeed.refresh.stored_rows import needs_own_reader, stored_rows
from lakefeed.refresh.write import MANIFEST, WritePlan, files_of, writing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_POOL = "lakefeed-queries"


class SparkQuery:
    """The query of one table, in a session beside the stream's, in the same Spark. Used by one thread."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, table: str) -> None:
        self.table = table
        text = pipeline.tables[table].query
        assert text is not None
        self.text = text
        self._spark = spark
        self._pipeline = pipeline
        # Of its own for each run: a program may run the pipeline again in the same Spark.
        self._group = f"lakefeed {pipeline.name} {table} {uuid.uuid4().hex}"
        self._session: SparkSession | None = None
        self._frame: DataFrame | None = None
        self._cancelled = False

    def reads(self) -> list[str]:
        """The tables of the file that it reads. Raises TableError for a query that can never run."""
        require_delta(self._spark, f"table {self.table}: `query`")
        return inputs_of(self._spark._jvm, self._pipeline, self.table)

    def over(self, inputs: Sequence[Input], versions: Mapping[str, int]) -> pa.Schema:
        """Take these versions of the tables; the columns that the query makes of them."""
        self._refuse_if_cancelled()
        with spark_words(self.table):
            session = self._opened()
            for one in inputs:
                self._rows(session, one, versions[one.name]).createOrReplaceTempView(f"`{one.name}`")
            self._frame = session.sql(self.text)
            schema = self._frame.schema.jsonValue()
        columns = [(one["name"], type_words(one["type"])) for one in schema["fields"]]
        with keeping_names(kept=self._pipeline.tables[self.table].keeps_names):
            return made_columns(self.table, columns)

    def _rows(self, session: SparkSession, one: Input, version: int) -> DataFrame:
        """One version of a table that the query reads."""
        if needs_own_reader(one.path, self._pipeline.spark.conf):
            cores = int(self._spark.sparkContext.defaultParallelism)
            return stored_rows(session, one, version, 4 * max(2, cores))
        path = one.path.removeprefix("file://")
        if path.startswith("s3://"):
            path = f"s3a{path[2:]}"
        return session.read.format("delta").option("versionAsOf", version).load(path)

    def write(self, plan: WritePlan) -> list[WrittenFile]:
        """Run it, and write its rows into files that no version of the table holds yet."""
        assert self._frame is not None
        self._refuse_if_cancelled()
        # Rows of one partition value meet in one task, and files get a size that readers like.
        columns = dict.fromkeys(field.column for field in plan.partition_by)
        with spark_words(self.table):
            balanced = self._frame.hint("rebalance", *columns)
            written = balanced.mapInArrow(writing(plan), MANIFEST).collect()
        return files_of(row.manifest for row in written)

    def cancel(self) -> None:
        """End what runs, if anything, and run nothing more."""
        self._cancelled = True
        with suppress(Exception):
            # Also what is still being planned, and becomes a job in a moment.
            self._spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(self._group)

    def _refuse_if_cancelled(self) -> None:
        if self._cancelled:
            raise QueryError(f"table {self.table}: the query was cancelled, as the run ends.")

    def _opened(self) -> SparkSession:
        context = self._spark.sparkContext
        if self._session is None:
            self._session = self._spark.newSession()
            given = self._pipeline.spark.conf
            for key, value in _settings(max(2, context.defaultParallelism)).items():
                if key not in given:
                    self._session.conf.set(key, value)
        # Of the thread that calls: its jobs take turns with those of the streams, and can be cancelled.
        context.setJobGroup(self._group, f"refresh of {self.table}")
        context.setLocalProperty("spark.scheduler.pool", _POOL)
        return self._session


def _settings(cores: int) -> dict[str, str]:
    """What suits a query over whole tables, and not a stream of small batches."""
    return {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": str(4 * cores),
        "spark.databricks.delta.snapshotPartitions": str(cores),
    }
