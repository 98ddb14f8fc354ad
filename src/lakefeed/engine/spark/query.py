"""The query of a flow: a frame that has a manifest for each task of a batch."""

from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING

from lakefeed.engine.spark.shaping.operators import columns_read, shaped, source_schema
from lakefeed.engine.spark.source import MANIFEST_SCHEMA, data_source
from lakefeed.engine.spark.worker import write_packed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakefeed.engine.batch.plan import FlowPlan
    from lakefeed.events import Offsets

_SETTINGS = {
    # A text means the same whatever the program that brings the session has set.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # What two items share would be computed before both, outside of what is tried, and fail the task.
    "spark.sql.subexpressionElimination.enabled": "false",
    # With a limit, Spark asks after each row how many bytes it has: with lists, all rows are looked at then.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    # What a task writes at once; larger batches cost less for each row.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
}


def manifests(spark: SparkSession, name: str, address: str, start: Offsets, plan: FlowPlan) -> DataFrame:
    """The frame of a flow, by a data source that is registered under `name`."""
    table = plan.shaped
    if table is None:
        spark.dataSource.register(data_source(name, address, start, plan))
        return spark.readStream.format(name).load()
    session = shaping_session(spark)
    assert table.projection is not None
    columns = columns_read(session, table.projection)
    events = source_schema(table, columns)
    # Of its own kind: Spark refuses a new name that the session of the thread has, from a flow without SQL.
    name = f"{name}_shaped"
    session.dataSource.register(data_source(name, address, start, plan, events))
    frame = shaped(session.readStream.format(name).load(), table, columns)
    return frame.mapInArrow(partial(write_packed, pickle.dumps(plan)), MANIFEST_SCHEMA)


def shaping_session(spark: SparkSession) -> SparkSession:
    """A session in the same JVM in which SQL means what it means everywhere."""
    session = spark.newSession()
    for key, value in _SETTINGS.items():
        session.conf.set(key, value)
    return session
