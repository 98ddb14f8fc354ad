"""Tasks run in this process, for small inputs: dead letters that are sent again, samples of a test.

Spark is started only for a table whose SQL needs it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lakefeed.engine.batch.manifest import Manifest
from lakefeed.engine.batch.plan import FlowPlan
from lakefeed.engine.spark.analyzer import bare_gateway
from lakefeed.engine.spark.session import existing_session
from lakefeed.engine.task.halves import read_half, write_half
from lakefeed.engine.task.task import run_task
from lakefeed.events import Events, OffsetRange
from lakefeed.files.names import Serial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.adaptive.enabled": "false",
}


class LocalTasks:
    """Runs tasks one after the other. Close it: a session that it started would be that of later runs.

    `starting` is called before it starts one.
    """

    def __init__(self, starting: Callable[[], None] = lambda: None) -> None:
        self._starting = starting
        self._own: SparkSession | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self,
        plan: FlowPlan,
        ranges: Sequence[OffsetRange],
        given: Iterable[Events] | None = None,
        serial: Serial | None = None,
    ) -> Manifest:
        """Run one task as `run_task` does, through Spark's operators where the table needs them."""
        if plan.shaped is None:
            return run_task(plan, ranges, given=given, serial=serial)
        # Imports Spark.
        from lakefeed.engine.spark.query import shaping_session
        from lakefeed.engine.spark.shaping.operators import columns_read, shaped, source_schema

        session, table = shaping_session(self._session()), plan.shaped
        assert table.projection is not None
        columns = columns_read(session, table.projection)
        events = source_schema(table, columns)
        batches = list(read_half(plan, events.names, ranges, serial or Serial(planned=_now()), given))
        frame = session.createDataFrame(pa.Table.from_batches(batches), events)
        manifest = write_half(plan, shaped(frame, table, columns).toArrow().to_batches())
        assert manifest is not None
        return manifest

    def close(self) -> None:
        """Stop what was started."""
        if self._own is None:
            return
        from pyspark import SparkContext

        with suppress(Exception):
            self._own.stop()
        self._own = None
        SparkContext._gateway = SparkContext._jvm = None

    def _session(self) -> SparkSession:
        with self._lock:
            found = existing_session()
            if found is not None:
                return found
            self._starting()
            from pyspark import SparkConf, SparkContext
            from pyspark.sql import SparkSession

            conf = SparkConf(loadDefaults=False).setMaster("local[1]").setAppName("lakefeed")
            conf.setAll([*_SETTINGS.items(), ("spark.pyspark.python", sys.executable)])
            gateway: Any = bare_gateway()
            self._own = SparkSession(SparkContext(conf=conf, gateway=gateway))
            return self._own


def _now() -> int:
    return time.time_ns() // 1_000
